package proxy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"xpyd/router"
	"xpyd/sim"
)

// watched makes engines wedged after a moment.
func watched(c *router.Config) {
	inTurn(c)
	c.Health.ProgressFloor, c.Health.ProgressCeiling, c.Health.WedgedDownAfter = 400*time.Millisecond, 400*time.Millisecond, 400*time.Millisecond
}

func (r *rig) wedged(e *sim.Engine) bool {
	return r.metric(`xpyd_backend_wedged{backend="`+e.URL()) == 1
}

// An engine accepts requests, its /health is 200, and it answers none of them. Those that wait for it go to another engine, and
// it comes back once it answers.
func TestWedgedEngineLosesItsLegs(t *testing.T) {
	together(t)
	for _, role := range []string{"prefill", "decode"} {
		for _, c := range forms(prompt, 6)[1:3] {
			t.Run(role+"/"+c.name(), func(t *testing.T) {
				r := newRig(t, rigOptions{prefill: 2, decode: 2, router: watched, config: noDecodeAlone})
				engine := map[string]*sim.Engine{"prefill": r.prefill[0], "decode": r.decode[0]}[role]
				r.setFault(engine, sim.Fault{Kind: sim.FaultHang})
				got := make(chan answer, 4)
				for i := range cap(got) {
					go func() { got <- r.call(c, "X-Request-Id", fmt.Sprint("wedged", i)) }()
				}
				for range cap(got) {
					r.expectWhole(c, r.soon(got))
				}
				r.await("wedged", func() bool { return r.wedged(engine) })
				r.await("down", func() bool { return r.backend(engine.URL()).State == "down" })
				if !strings.Contains(r.logs.String(), `"reason":"wedged"`) || !strings.Contains(r.adminText("/backends"), `"wedged"`) {
					t.Error("neither the log nor /backends says why")
				}
				r.setFault(engine, sim.Fault{})
				r.await("up again", func() bool { return r.backend(engine.URL()).State == "up" && !r.wedged(engine) })
				r.until(func() bool { return len(legsOf(engine, "again")) > 0 }, func(int) { r.expectWhole(c, r.call(c, "X-Request-Id", "again")) })
				r.expectEachHandleOnce()
				r.expectNothingHeld()
			})
		}
	}
}

// The streams of an engine that hangs end as those of a dead one do, and not before it is down.
func TestStreamsOfAWedgedEngineEnd(t *testing.T) {
	together(t)
	r := newRig(t, rigOptions{decode: 2, router: watched})
	r.setFault(r.decode[0], sim.Fault{Kind: sim.FaultStall, At: 2})
	c := forms(prompt, 6)[3]
	got := make(chan answer, 2)
	for range cap(got) {
		go func() { got <- r.call(c) }()
	}
	var broken int
	for range cap(got) {
		if a := r.soon(got); a.err != nil {
			r.expectBroken(c, a, "decode_failed")
			broken++
		} else {
			r.expectWhole(c, a)
		}
	}
	if broken != 1 || r.backend(r.decode[0].URL()).State != "down" {
		t.Errorf("%d streams broke off, and the engine is %s", broken, r.backend(r.decode[0].URL()).State)
	}
	r.setFault(r.decode[0], sim.Fault{})
	r.await("up again", func() bool { return r.backend(r.decode[0].URL()).State == "up" })
	r.expectNothingHeld()
}

// A client's deadline is a doubt and no failure: canaries come back, and the engine stays.
func TestExpiredDeadlinesOnlyRaiseADoubt(t *testing.T) {
	together(t)
	r := newRig(t, rigOptions{router: watched})
	for range 3 {
		if a := r.call(forms("[[D:hang]]"+prompt, 6)[0], "X-Request-Timeout", "0.3"); a.code() != "deadline" {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	canary := func() bool {
		for _, rec := range r.decode[0].Requests() {
			if strings.HasPrefix(rec.RequestID, "xpyd-canary") && rec.Outcome == "ok" {
				return true
			}
		}
		return false
	}
	r.await("asked by a canary", canary)
	if b := r.backend(r.decode[0].URL()); b.State != "up" || r.wedged(r.decode[0]) {
		t.Errorf("the engine is %s", b.State)
	}
}
