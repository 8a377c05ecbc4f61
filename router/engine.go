package router

import (
	"math"
	"slices"
	"time"
)

// EngineState is one page of an engine's own metrics. It covers all clients of the engine, and is the
// sum over its data-parallel ranks. A number below 0 is unknown, because the page did not have it or
// had an impossible value. Counters run since the start of the engine. A state never changes. Each
// reading replaces all of it.
type EngineState struct {
	// Running and Waiting are the requests in the engine's batch and in its queue. A prefill that
	// has answered is in neither, although its blocks are held.
	Running, Waiting int64
	// KVUsage is the share of the KV blocks in use, from 0 to 1. Blocks held for a decode engine count,
	// and blocks that are only cached do not. With several ranks it is the mean, because vLLM spreads
	// requests over its ranks itself, so their total room matters.
	KVUsage float64
	// BlockSize is the number of tokens in a block, and Blocks is the number of blocks on all ranks.
	BlockSize, Blocks int64
	// WholeBlocks says that a sequence has one block for every BlockSize tokens that it has begun. It
	// is false with a sliding window, with layers of several kinds, and if the page does not say so.
	WholeBlocks bool
	// PrefixQueries are the prompt tokens that the engine looked up in its own prefix cache. PrefixHits
	// are those that it found.
	PrefixQueries, PrefixHits int64
	PromptTokens              int64
	GenerationTokens          int64
	// PulledTokens are the prompt tokens whose blocks came from another engine. ComputedTokens are
	// those that this engine computed. It had the rest of PromptTokens in its cache.
	PulledTokens, ComputedTokens int64
	// PrefillSeconds is the time from the batch to the first token, summed over Prefills requests.
	// PrefillTokens are the prompt tokens that these computed, without cached ones. They are unknown
	// for a vLLM that pulls blocks, because its queue times are then negative, and its prefill times
	// are too long by the same amount.
	PrefillSeconds          float64
	Prefills, PrefillTokens int64
	// TransferSeconds and TransferBytes are the total time and size of Transfers pulls of KV blocks.
	// The engine that pulls counts them.
	TransferSeconds          float64
	Transfers, TransferBytes int64
	// Started is when the engine's API process began, in Unix seconds.
	Started float64
	// Restarts counts the restarts of the engine that xpyd noticed, by Started or by a counter that
	// fell. A restart empties the engine's cache.
	Restarts int64

	external  int64 // requests of clients other than this process; −1 if not known
	recent    recent
	at, until int64 // when it was read and until when it counts, by the router's clock
}

// UnknownEngine is the state of an engine about which nothing is known.
func UnknownEngine() EngineState {
	return EngineState{
		Running: -1, Waiting: -1, KVUsage: -1, BlockSize: -1, Blocks: -1, PrefixQueries: -1, PrefixHits: -1,
		PromptTokens: -1, GenerationTokens: -1, PulledTokens: -1, ComputedTokens: -1, PrefillSeconds: -1, Prefills: -1, PrefillTokens: -1,
		TransferSeconds: -1, Transfers: -1, TransferBytes: -1, Started: -1, external: -1,
	}
}

// KVTokens is the size of the engine's KV cache in tokens, or −1 if it is not known.
func (e *EngineState) KVTokens() int64 {
	if e.BlockSize < 0 || e.Blocks < 0 {
		return -1
	}
	return e.BlockSize * e.Blocks
}

// SetEngine records a reading, which is valid for the given time or until the next one. own is the
// highest number of requests that this process had on the engine since the last reading, in both roles.
// restarted says that the engine has restarted since the last reading, as far as both readings show.
// Calls for one engine must not overlap. One of its decode backend does for both of its roles.
func (b *Backend) SetEngine(e EngineState, own int64, counts time.Duration) (restarted bool) {
	e.at = b.router.now()
	e.until = e.at + int64(counts)
	e.external = -1
	if e.Running >= 0 && e.Waiting >= 0 {
		e.external = min(max(0, e.Running+e.Waiting-own), math.MaxInt32)
	}
	was := b.engine.Load()
	e.recent = e.recentAfter(was)
	if was != nil {
		restarted = e.follows(was)
		e.Restarts = was.Restarts
	}
	if restarted {
		e.Restarts++
		b.Restarted(time.Now().Add(time.Duration(was.at - e.at)))
	}
	eachRole(b, func(x *Backend) { takeState(x, &e, counts, restarted) })
	if b.Role == Decode && was != nil && !restarted {
		b.noteReuse(was, &e)
	}
	return restarted
}

// takeState puts a reading in force.
func takeState(b *Backend, e *EngineState, counts time.Duration, restarted bool) {
	if restarted {
		b.cache.Clear()
	}
	b.engine.Store(e)
	if b.cache.Seated() {
		b.resize() // choices before its first prompt count on the capacity, too
	}
	b.freshUntil.Store(e.at + int64(counts)/3)
	b.setExternal(int32(max(0, e.external)))
	if b.Role == Decode && e.KVUsage >= 0 {
		b.router.traffic.polled(e.at, e.KVUsage, e.Waiting > 0)
	}
}

// follows reports whether the engine has restarted since was.
func (e *EngineState) follows(was *EngineState) bool {
	if e.Started >= 0 && was.Started >= 0 {
		return e.Started != was.Started
	}
	fell := func(is, was int64) bool { return is >= 0 && is < was }
	return fell(e.PromptTokens, was.PromptTokens) ||
		fell(e.GenerationTokens, was.GenerationTokens) ||
		fell(e.PrefixQueries, was.PrefixQueries)
}

// Engine is the last reading, or nil if there was none or it is no longer valid.
func (b *Backend) Engine() *EngineState { return b.engineAt(b.router.now()) }

// engineAt is Engine at a time of the router's clock, for picks, which have read the clock.
func (b *Backend) engineAt(now int64) *EngineState {
	if e := b.engine.Load(); e != nil && now < e.until {
		return e
	}
	return nil
}

// blocksHold is how long a reading of the size of an engine's blocks counts. It changes only with a
// restart, and no engine restarts within this time.
const blocksHold = 10 * time.Second

// BlockTokens is how many tokens of a sequence a KV block of the engine holds, or 0 if its metrics have
// not said this recently.
func (b *Backend) BlockTokens() int {
	e := b.engine.Load()
	if e == nil || !e.WholeBlocks || b.router.now() >= max(e.until, e.at+int64(blocksHold)) {
		return 0
	}
	return int(e.BlockSize)
}

// EngineAge is how long ago xpyd last read the engine's metrics. ok is false if it never did.
func (b *Backend) EngineAge() (age time.Duration, ok bool) {
	e := b.engine.Load()
	if e == nil {
		return 0, false
	}
	return time.Duration(b.router.now() - e.at), true
}

// External estimates the requests on the engine that this process has not sent: those from other
// replicas of xpyd, and from clients that use the engine directly.
func (b *Backend) External() float64 { return b.externalAt(b.router.now()) }

// externalAt is External at a time of the router's clock. It and what b has in flight are b's whole
// load. It is the engine's running and waiting requests minus what was in flight from here at that
// reading, and at least 0. It is too low rather than too high, because the slot of a decode engine is
// taken before its request is sent. It holds for a third of the time for which the reading counts,
// which is one poll. After that it falls to 0 by the end of that time, so that a router that learns
// nothing more uses its own requests.
func (b *Backend) externalAt(now int64) float64 {
	n := b.external.Load()
	if n == 0 || now <= b.freshUntil.Load() {
		return float64(n)
	}
	e := b.engineAt(now)
	if e == nil || e.external <= 0 {
		return 0
	}
	left := float64(e.until-now) / float64(e.until-e.at)
	return float64(e.external) * min(1, left*3/2)
}

// recent is the external requests at the last readings, the newest first.
type recent [5]int32

// recentAfter is those of was and of e. A reading that does not tell begins anew.
func (e *EngineState) recentAfter(was *EngineState) (r recent) {
	now := int32(max(0, e.external))
	if was == nil || was.external < 0 {
		return recent{now, now, now, now, now}
	}
	copy(r[1:], was.recent[:])
	r[0] = now
	return r
}

// lasting is the part of the external requests that was there at each of the last readings. A
// prefill takes a fraction of the time between two readings, so what one of them saw has ended by
// the time of a choice. Replicas that went by it would all avoid the engine that one of them has
// just used, and take its conversations from it.
func (e *EngineState) lasting() float64 {
	if e == nil {
		return 0
	}
	return float64(slices.Min(e.recent[:]))
}

// externalTokens estimates the prompt tokens of those requests. Each counts as the mean length of
// those from here to the same pool.
func (b *Backend) externalTokens(now int64) float64 {
	return b.externalAt(now) * b.router.prompts[b.Role].Mean()
}

// own is what this process has in flight on b: requests, or prompt tokens.
func (b *Backend) own(tokens bool) int64 {
	if tokens {
		return b.tokens.Load()
	}
	return b.inflight.Load()
}

// load is own with the external load, and with what the engine has in its other role.
func (b *Backend) load(now int64, tokens bool) float64 {
	n := float64(b.own(tokens) + besides(b, tokens))
	switch {
	case b.external.Load() == 0:
		return n
	case tokens:
		return n + b.externalTokens(now)
	}
	return n + b.externalAt(now)
}

// TokensInFlight is the estimated size of the prompts that hold leases.
func (b *Backend) TokensInFlight() int64 { return b.tokens.Load() }

// Reuse is how many prompt tokens of the last adviceWindow the decode engines did not have to compute,
// because they pulled the blocks from a prefill engine. The figures come from the engines' own
// counters.
type Reuse struct {
	PromptTokens int64 `json:"prompt_tokens"`
	PulledTokens int64 `json:"pulled_tokens"`
	// Ratio is PulledTokens divided by PromptTokens; −1 if there were none.
	Ratio float64 `json:"ratio"`
	// NothingPulled are the decode engines that answer two-leg requests and pull nothing.
	NothingPulled []string `json:"nothing_pulled,omitempty"`
}

// reuse is what the window and the decode pool say.
func (s *Snapshot) reuse(window bucket) Reuse {
	r := Reuse{PromptTokens: window.prompt, PulledTokens: window.pulled, Ratio: -1}
	if window.prompt > 0 {
		r.Ratio = float64(window.pulled) / float64(window.prompt)
	}
	for _, b := range s.decode.backends {
		if b.NothingPulled() {
			r.NothingPulled = append(r.NothingPulled, b.URL)
		}
	}
	return r
}

// noteReuse counts what a decode engine had between two readings. Readings that do not tell, or
// that fall, count nothing.
func (b *Backend) noteReuse(was, is *EngineState) {
	prompt, pulled := is.PromptTokens-was.PromptTokens, is.PulledTokens-was.PulledTokens
	if was.PulledTokens >= 0 && was.PromptTokens >= 0 && prompt >= 0 && pulled >= 0 {
		b.router.traffic.reused(is.at, prompt, pulled)
	}
}

func (t *traffic) reused(now, prompt, pulled int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.at(now)
	b.prompt += prompt
	b.pulled += pulled
}

// Handed counts the answers that a decode backend has given with a handle.
func (b *Backend) Handed() int64 { return b.handed.Load() }

// SetNothingPulled notes that a decode backend answers two-leg requests and pulls nothing.
func (b *Backend) SetNothingPulled(nothing bool) { b.unread.Store(nothing) }

// NothingPulled is the last value of SetNothingPulled.
func (b *Backend) NothingPulled() bool { return b.unread.Load() }
