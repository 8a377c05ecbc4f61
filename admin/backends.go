package admin

import (
	"net/http"
	"time"

	"xpyd/admin/desk"
	"xpyd/router"
)

// backendEntry is one backend as GET /backends shows it.
type backendEntry struct {
	Role string `json:"role"` // encode, prefill, decode
	poolEntry
	// Models are the ids that it lists. They are absent while they are not known, and the backend then
	// counts as one that serves any model.
	Models []string `json:"models,omitempty"`
	// TokensInFlight is the estimated size of the prompts in flight.
	TokensInFlight int64 `json:"tokens_in_flight"`
	// Elsewhere estimates the requests on the engine that this process has not sent.
	Elsewhere float64 `json:"elsewhere"`
	// LocalSeconds is how long a decode engine has computed prompts itself, as far as xpyd sent them.
	LocalSeconds float64 `json:"local_seconds,omitempty"`
	// CacheEstimate is what xpyd expects of the engine's prefix cache, to be compared with what the
	// engine counts. It is absent if nothing is remembered.
	CacheEstimate *cacheEntry `json:"cache_estimate,omitempty"`
	// Engine is what the engine reported of itself. It is null if there was no report, or the last one
	// is too old. EngineUnknown says why it is null, or what it lacks.
	Engine *engineEntry `json:"engine"`
	// Recent is absent if no completion went there in the last minutes.
	Recent        *desk.Recent `json:"recent,omitempty"`
	EngineUnknown string       `json:"engine_unknown,omitempty"`
}

// cacheEntry counts estimated tokens since xpyd has known the backend.
type cacheEntry struct {
	Queries  int64 `json:"queries"`
	Hits     int64 `json:"hits"`
	Capacity int64 `json:"capacity"` // tokens that the cache has room for
}

// pdEntry shows the settings that decide when a request gets a prefill.
type pdEntry struct {
	Mode            string  `json:"mode"`
	ThresholdTokens int     `json:"threshold_tokens"`
	StallWeight     float64 `json:"stall_weight"`
}

// tableEntry shows the memory of the prompts that a pool's backends have had.
type tableEntry struct {
	Used   int64 `json:"used_bytes"`
	Memory int64 `json:"memory_bytes"`
}

// engineEntry has no member for what the engine did not report. Counters run since the engine's start.
type engineEntry struct {
	Age              float64  `json:"age"` // seconds
	Running          *int64   `json:"running,omitempty"`
	Waiting          *int64   `json:"waiting,omitempty"`
	KVUsage          *float64 `json:"kv_usage,omitempty"`  // 0 to 1
	KVTokens         *int64   `json:"kv_tokens,omitempty"` // tokens that its KV cache has room for
	BlockSize        *int64   `json:"block_size,omitempty"`
	PrefixQueries    *int64   `json:"prefix_cache_queries,omitempty"` // tokens
	PrefixHits       *int64   `json:"prefix_cache_hits,omitempty"`    // tokens
	PromptTokens     *int64   `json:"prompt_tokens,omitempty"`
	GenerationTokens *int64   `json:"generation_tokens,omitempty"`
	PulledTokens     *int64   `json:"pulled_tokens,omitempty"`
	ComputedTokens   *int64   `json:"computed_tokens,omitempty"`
	Prefills         *int64   `json:"prefills,omitempty"`
	PrefillTokens    *int64   `json:"prefill_tokens,omitempty"`
	PrefillSeconds   *float64 `json:"prefill_seconds,omitempty"`
	Transfers        *int64   `json:"transfers,omitempty"`
	TransferSeconds  *float64 `json:"transfer_seconds,omitempty"`
	TransferBytes    *int64   `json:"transfer_bytes,omitempty"`
	Started          *float64 `json:"started,omitempty"` // Unix seconds
	Restarts         int64    `json:"restarts"`          // restarts that xpyd noticed
}

func engineEntryOf(e *router.EngineState, age time.Duration) *engineEntry {
	return &engineEntry{
		Age: age.Seconds(), Running: known(e.Running), Waiting: known(e.Waiting), KVUsage: known(e.KVUsage),
		KVTokens: known(e.KVTokens()), BlockSize: known(e.BlockSize),
		PrefixQueries: known(e.PrefixQueries), PrefixHits: known(e.PrefixHits),
		PromptTokens: known(e.PromptTokens), GenerationTokens: known(e.GenerationTokens),
		PulledTokens: known(e.PulledTokens), ComputedTokens: known(e.ComputedTokens),
		Prefills: known(e.Prefills), PrefillTokens: known(e.PrefillTokens), PrefillSeconds: known(e.PrefillSeconds),
		Transfers: known(e.Transfers), TransferSeconds: known(e.TransferSeconds), TransferBytes: known(e.TransferBytes),
		Started: known(e.Started), Restarts: e.Restarts,
	}
}

// known returns nil for what an engine did not report.
func known[T int64 | float64](v T) *T {
	if v < 0 {
		return nil
	}
	return &v
}

func (p *pages) backendEntryOf(snap *router.Snapshot, a aside, m router.Member) backendEntry {
	b := m.Backend
	e := backendEntry{
		Role: b.Role.String(), poolEntry: p.poolEntryOf(snap, a, m), Models: b.Models(), TokensInFlight: b.TokensInFlight(),
		Elsewhere: b.External(), LocalSeconds: b.LocalTime().Seconds(),
	}
	if _, memory := snap.PrefixTable(b.Role); memory > 0 {
		c := b.CacheEstimate()
		e.CacheEstimate = &cacheEntry{c.Queries, c.Hits, c.Capacity}
	}
	if r, ok := a.recent[desk.Engine{Role: e.Role, URL: e.URL}]; ok {
		e.Recent = &r
	}
	engine := b.Engine()
	if e.EngineUnknown = p.cfg.Unknown(b, engine); engine != nil {
		age, _ := b.EngineAge()
		e.Engine = engineEntryOf(engine, age)
	}
	return e
}

// backends answers with one object, which has room for what is not about one backend.
func (p *pages) backends(w http.ResponseWriter, _ *http.Request) {
	snap, a := p.cfg.Router.Snapshot(), p.aside()
	all := struct {
		Backends []backendEntry `json:"backends"`
		// Leaving are those that were removed, or have the other role now, and still serve what they
		// have.
		Leaving []leavingEntry `json:"leaving"`
		// Changes are what operators have changed at run time.
		Changes *changesEntry `json:"changes,omitempty"`
		// Tables are those of the prefixes that each backend had, by role.
		Tables map[string]tableEntry `json:"prefix_tables"`
		// TokenBytes is the mean size of a prompt's token in a body, as measured.
		TokenBytes float64 `json:"token_bytes"`
		// MediaTokens is the mean tokens of an image, sound or video in a prompt, as measured.
		MediaTokens float64 `json:"media_tokens"`
		// Decisions are counted by path and reason.
		Decisions map[string]map[string]int64 `json:"decisions"`
		PD        pdEntry                     `json:"pd"`
	}{
		Backends: []backendEntry{}, Tables: map[string]tableEntry{}, Leaving: p.leaving(), Changes: p.changed(),
		TokenBytes: p.cfg.Router.TokenBytes(), MediaTokens: p.cfg.Router.MediaTokens(),
		Decisions: p.cfg.Metrics.Decisions(), PD: pdEntry(snap.PD()),
	}
	for _, role := range router.Roles() {
		if used, memory := snap.PrefixTable(role); memory > 0 {
			all.Tables[role.String()] = tableEntry{used, memory}
		}
		for _, m := range snap.Members(role) {
			all.Backends = append(all.Backends, p.backendEntryOf(snap, a, m))
		}
	}
	writeIndented(w, all)
}
