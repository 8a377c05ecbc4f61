package proxy_test

import (
	"testing"
	"time"

	"xpyd/kvparams"
	"xpyd/router"
	"xpyd/sim"
)

var failing = sim.Fault{Kind: sim.FaultStatus, Value: 500, Leg: "D"}

func (r *rig) setFault(e *sim.Engine, f sim.Fault) {
	r.t.Helper()
	if err := e.SetFault(f); err != nil {
		r.t.Fatal(err)
	}
}

// One decode engine is still ejected, but serves again, and the other one fails. The retry goes to the
// ejected one, and never to the engine that has just failed.
func TestRetryTakesAnEjectedEngine(t *testing.T) {
	eachConnector(t, func(t *testing.T, d kvparams.Dialect) {
		r := newRig(t, rigOptions{dialect: d, prefill: 2, decode: 2, router: func(c *router.Config) {
			inTurn(c)
			c.Health.EjectAfter, c.Health.EjectFor = 1, time.Hour
		}})
		c := forms(prompt, 3)[0]
		r.setFault(r.decode[1], failing)
		ejected := func() bool { return r.metric(`xpyd_backend_ejections_total{backend="`+r.decode[1].URL()) == 1 }
		r.until(ejected, func(int) { r.expectWhole(c, r.call(c)) })
		r.setFault(r.decode[1], sim.Fault{})
		r.setFault(r.decode[0], failing)
		for range 4 {
			r.expectWhole(c, r.call(c))
		}
	})
}

// A decode engine that was started again has none of the failures that ejected it.
func TestRestartEndsTheEjectionOfDecode(t *testing.T) {
	r := newRig(t, rigOptions{prefill: 2, decode: 2, router: func(c *router.Config) {
		inTurn(c)
		c.Health.EjectAfter, c.Health.EjectFor = 1, time.Hour
		c.Health.Interval, c.Health.SuspectInterval = 20*time.Millisecond, 20*time.Millisecond
		c.Routing.Poll = 20 * time.Millisecond
	}})
	b := r.decode[1].URL()
	r.await("read", func() bool { return r.backend(b).Engine != nil })
	r.setFault(r.decode[1], failing)
	c := forms(prompt, 3)[0]
	r.until(func() bool { return r.metric(`xpyd_backend_ejected{backend="`+b) == 1 }, func(int) { r.expectWhole(c, r.call(c)) })
	r.decode[1].Kill()
	if err := r.decode[1].Restart(); err != nil {
		t.Fatal(err)
	}
	r.await("no longer ejected", func() bool { return r.metric(`xpyd_backend_ejected{backend="`+b) == 0 })
	if n := r.metric(`xpyd_backend_ejections_total{backend="` + b); n != 1 {
		t.Errorf("%v ejections", n)
	}
}
