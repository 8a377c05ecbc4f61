package proxy_test

import (
	"sync"
	"testing"

	"xpyd/kvparams"
	"xpyd/sim"
)

// A prefill that writes into the decode engine's memory is for the engine that its leg has named. If that one
// takes no connection, the other one gets a prefill of its own, and the first is given back.
func TestAHandleForAnotherEngineIsNotSent(t *testing.T) {
	d, _ := kvparams.Lookup("moriio-write")
	refuse, err := sim.ParseFault("refuse")
	if err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	var r *rig
	r = newRig(t, rigOptions{prefill: 1, decode: 2, dialect: d, router: inTurn, engine: func(o *sim.Options) {
		o.Hook = func(e sim.Event) {
			if e.Phase == sim.PhasePrefillEnding {
				once.Do(func() { _ = r.decode[0].SetFault(refuse) })
			}
		}
	}})
	c := forms(prompt, 5)[0]
	r.expectWhole(c, r.call(c))
	if n := len(legs(r.prefill, "prefill")); n != 2 {
		t.Errorf("%d prefills, want one for each decode engine", n)
	}
	r.expectNothingHeld()
	if n := r.prefill[0].Ledger().StaleReads; n != 0 {
		t.Errorf("%d prompts' KV went into an engine that did not wait for it", n)
	}
}
