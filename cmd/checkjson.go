package cmd

import (
	"context"
	"encoding/json"
	"io"

	"xpyd/cmd/config"
	"xpyd/router"
)

// checked is what xpyd check --json prints. Lists are never null.
type checked struct {
	OK       bool                `json:"ok"`
	Pools    map[string][]string `json:"pools"`    // the entries by role
	Policies map[string]string   `json:"policies"` // by role
	Warnings []string            `json:"warnings"` // about the configuration
	// The rest is there after a probe alone.
	Engines   []checkedEngine   `json:"engines,omitempty"`
	Rounds    []checkedRound    `json:"rounds,omitempty"`
	Transfers []checkedTransfer `json:"transfers,omitempty"`
	Notes     []string          `json:"notes,omitempty"`  // what works but costs something
	Faults    []string          `json:"faults,omitempty"` // what does not fit
}

type checkedEngine struct {
	Role    string   `json:"role"`
	URL     string   `json:"url"`
	Health  string   `json:"health"`
	Version string   `json:"version"`
	Models  []string `json:"models"`
}

type checkedRound struct {
	Prefill   string `json:"prefill"`
	Decode    string `json:"decode"`
	Result    string `json:"result"`
	PrefillMS int64  `json:"prefill_ms"`
	DecodeMS  int64  `json:"decode_ms"`
}

type checkedTransfer struct {
	Prefill string  `json:"prefill"`
	Decode  string  `json:"decode"`
	Tokens  int     `json:"tokens"`
	Bytes   float64 `json:"bytes"`
	Seconds float64 `json:"seconds"`
	GBps    float64 `json:"gbps,omitempty"` // 10⁹ bytes a second; missing: not known
}

// checkJSON prints all that check finds, and fails as it does.
func checkJSON(ctx context.Context, w io.Writer, c config.Config, warnings []string, probe, bandwidth bool) error {
	found, r := checked{OK: true, Pools: map[string][]string{}, Warnings: append([]string{}, warnings...)}, &report{}
	found.Policies = map[string]string{"prefill": c.Router.PrefillPolicy, "decode": c.Router.ChosenDecodePolicy()}
	for _, e := range c.Router.Entries() {
		role := e.Role.String()
		found.Pools[role] = append(found.Pools[role], router.Texts([]router.Entry{e})...)
	}
	if probe {
		var err error
		if r, err = runProbe(ctx, c, bandwidth); err != nil {
			return err
		}
		found.add(r)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if err := enc.Encode(found); err != nil {
		return err
	}
	return r.verdict()
}

func (f *checked) add(r *report) {
	f.OK, f.Notes, f.Faults = len(r.faults) == 0, r.notes, r.faults
	for _, e := range r.engines {
		f.Engines = append(f.Engines, checkedEngine{e.role, e.url, e.health, e.version, append([]string{}, e.models...)})
	}
	for _, x := range r.rounds {
		f.Rounds = append(f.Rounds, checkedRound{x.prefill, x.decode, x.result, x.prefillTime.Milliseconds(), x.decodeTime.Milliseconds()})
	}
	for _, t := range r.transfers {
		f.Transfers = append(f.Transfers, checkedTransfer{t.prefill, t.decode, t.tokens, t.bytes, t.seconds, t.gbps()})
	}
}
