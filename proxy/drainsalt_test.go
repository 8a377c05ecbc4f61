package proxy_test

import (
	"encoding/json"
	"strings"
	"testing"

	"xpyd/sim"
)

// salts are the cache_salts of the drains that the decode engines have answered.
func (r *rig) salts() []string {
	var all []string
	for _, e := range r.decode {
		for _, rec := range e.Requests() {
			if !strings.HasSuffix(rec.RequestID, "-release") {
				continue
			}
			var body struct {
				Salt string `json:"cache_salt"`
			}
			if err := json.Unmarshal(rec.Body, &body); err != nil {
				r.t.Fatal(err)
			}
			all = append(all, body.Salt)
		}
	}
	return all
}

// A drain may read blocks that are another prompt's by then, and D keeps what it read. No client
// can name the salt under which it is kept, neither by guessing nor by having seen one.
func TestDrainCannotBeFoundByASalt(t *testing.T) {
	r := newRig(t, rigOptions{decode: 3, router: inTurn, engine: func(o *sim.Options) { o.Version = "0.31.9" }})
	c := forms(prompt, 6)[0]
	drained := 0.0
	for range 2 {
		if err := r.decode[0].SetFault(sim.Fault{Kind: "badjson", Leg: "D", Count: 1}); err != nil {
			t.Fatal(err)
		}
		drained++
		for range 3 {
			before := r.metric(`xpyd_kv_handles_issued_total`)
			if r.expectWhole(c, r.call(c)); r.metric(`xpyd_kv_handles_issued_total`) > before+1 {
				break // a second round
			}
		}
		r.await("drained", func() bool { return r.metric(`xpyd_kv_handles_total{end="drained"}`) == drained })
	}
	if r.prefill[0].Ledger().StaleReads == 0 {
		t.Fatal("the drain has read nothing: the test proves nothing")
	}
	salts := r.salts()
	if len(salts) != 2 || salts[0] == salts[1] || len(salts[0]) < 26 || len(salts[1]) < 26 {
		t.Errorf("salts of two drains: %q, want 128 random bits each", salts)
	}
	thief := c
	thief.more = `,"cache_salt":"xpyd-drain"`
	for range 2 * len(r.decode) {
		if a := r.call(thief); a.text() != c.want() {
			t.Fatalf("a client that sends a salt reads what a drain has left: status %d, %q", a.status, a.text())
		}
	}
}
