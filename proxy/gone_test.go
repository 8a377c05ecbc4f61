package proxy_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"xpyd/kvparams"
	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

// A decode engine of a patient connector does not notice that a prefill engine which it knew is gone. In these
// tests a request is just before that wait when its prefill engine restarts, and no health check sees it.
type bereaved struct {
	*rig
	b   *barrier
	c   call
	got chan answer
}

func bereave(t *testing.T, d kvparams.Dialect, o rigOptions, c call) *bereaved {
	t.Helper()
	p := &bereaved{b: newBarrier(sim.PhaseDecodeReceived, 0), c: c, got: make(chan answer, 1)}
	var armed atomic.Bool
	ask := o.router
	o.dialect = d
	o.router = func(c *router.Config) {
		if c.Health.Interval = time.Hour; ask != nil {
			ask(c)
		}
	}
	o.engine = func(o *sim.Options) {
		if o.Role == sim.RoleDecode {
			o.Hook = func(e sim.Event) {
				if armed.Load() {
					p.b.hook(e)
				}
			}
		}
	}
	p.rig = newRig(t, o)
	t.Cleanup(p.b.open)
	first := forms("first "+prompt, 3)[0]
	p.expectWhole(first, p.call(first))
	armed.Store(true)
	go func() { p.got <- p.call(c) }()
	p.reached(p.b)
	return p
}

func (p *bereaved) restart() {
	p.t.Helper()
	if err := p.prefill[0].Restart(); err != nil {
		p.t.Fatal(err)
	}
}

func eachPatient(t *testing.T, test func(t *testing.T, d kvparams.Dialect, c call)) {
	t.Helper()
	eachForm(t, kvparams.Waits, test)
}

func eachForm(t *testing.T, want func(kvparams.Dialect) bool, test func(t *testing.T, d kvparams.Dialect, c call)) {
	t.Helper()
	eachConnectorThat(t, want, func(t *testing.T, d kvparams.Dialect) {
		for _, c := range forms(prompt, 5) {
			t.Run(c.name(), func(t *testing.T) { test(t, d, c) })
		}
	})
}

// The engine's metrics tell of the restart, before or after decode begins to wait.
func TestDecodeDoesNotWaitForARestartedPrefill(t *testing.T) {
	eachPatient(t, func(t *testing.T, d kvparams.Dialect, c call) {
		p := bereave(t, d, rigOptions{router: polled}, c)
		p.await("a reading", func() bool { return p.backend(p.prefill[0].URL()).Engine["prefix_cache_queries"] > 0 })
		p.restart()
		p.b.open()
		p.expectWhole(c, p.soon(p.got))
		if !strings.Contains(p.logs.String(), "until it is restarted") {
			t.Error("the log does not say that decode keeps blocks")
		}
	})
}

// The next handle of the engine tells of the restart. With MoRIIO it does not: the id of an engine is its address.
func TestTheNextHandleTellsOfARestart(t *testing.T) {
	renamed := func(d kvparams.Dialect) bool { return kvparams.Waits(d) && d.Name() != string(sim.ConnectorWrite) }
	eachForm(t, renamed, func(t *testing.T, d kvparams.Dialect, c call) {
		p := bereave(t, d, rigOptions{}, c)
		p.restart()
		p.b.open()
		next := forms("next "+prompt, 3)[0]
		p.expectWhole(next, p.call(next))
		p.expectWhole(c, p.soon(p.got))
	})
}

// Nothing tells of the restart. timeouts.first_event is what ends the wait.
func TestFirstEventBoundsTheWaitForARestartedPrefill(t *testing.T) {
	eachPatient(t, func(t *testing.T, d kvparams.Dialect, c call) {
		p := bereave(t, d, rigOptions{config: func(c *proxy.Config) {
			c.Timeouts.FirstEvent = time.Second
			c.KV.Lease, c.KV.LeaseMargin = 3*time.Second, 100*time.Millisecond // no drain comes after it
		}}, c)
		p.restart()
		p.b.open()
		if a := p.soon(p.got); a.status != 504 || a.code() != "decode_timeout" {
			t.Errorf("%d %s, want 504 decode_timeout", a.status, a.body)
		}
		if n := p.decode[0].Used(); n == 0 {
			t.Error("the simulated engine has freed blocks that a real one keeps")
		}
	})
}

// A handle has not been sent when its prefill engine restarts: the decode engine that it was meant for is
// gone, and the other one is full. It goes to no engine, neither to be used nor to be drained.
func TestAHandleOfARestartedPrefillIsNotSent(t *testing.T) {
	d, _ := kvparams.Lookup(string(sim.ConnectorPush))
	streaming, ending := newBarrier(sim.PhaseStreamEvent, 1), newBarrier(sim.PhasePrefillEnding, 0)
	var armed atomic.Bool
	r := newRig(t, rigOptions{
		decode: 2, dialect: d,
		router: func(c *router.Config) {
			inTurn(c)
			polled(c)
			c.Health.Interval, c.DecodeMaxInFlight, c.Queue.Wait = time.Hour, 1, patience
		},
		engine: func(o *sim.Options) {
			if o.Role == sim.RoleDecode {
				o.Hook = streaming.hook
				return
			}
			o.Hook = func(e sim.Event) {
				if armed.Load() {
					ending.hook(e)
				}
			}
		},
	})
	t.Cleanup(streaming.open)
	t.Cleanup(ending.open)
	long, next := forms("long "+prompt, 5)[1], forms("next "+prompt, 5)[0]
	first, second := make(chan answer, 1), make(chan answer, 1)
	go func() { first <- r.call(long) }()
	r.reached(streaming)
	full, doomed := r.decode[0], r.decode[1]
	if full.Used() == 0 {
		full, doomed = doomed, full
	}
	armed.Store(true)
	go func() { second <- r.call(next) }()
	r.reached(ending)
	doomed.Kill()
	ending.open()
	r.await("in the line", func() bool { return r.metric("xpyd_queued") > 0 })
	r.await("a reading", func() bool { return r.backend(r.prefill[0].URL()).Engine["prefix_cache_queries"] > 0 })
	if err := r.prefill[0].Restart(); err != nil {
		t.Fatal(err)
	}
	r.await("noticed", func() bool { return strings.Contains(r.logs.String(), "engine has restarted") })
	streaming.open()
	r.expectWhole(long, r.soon(first))
	r.expectWhole(next, r.soon(second))
	r.await("end of the handle", func() bool { return r.metric(`xpyd_kv_handles_total{end="lost"}`) == 1 })
	r.await("no blocks kept for an engine that is gone", func() bool { return full.Used() == 0 })
}

// A leg that panics leaves no watch on its prefill engine, whose death would otherwise end the process, or cut the
// request that the completion serves next.
func TestPanicLeavesNoWatch(t *testing.T) {
	r := newRig(t, rigOptions{
		router: func(c *router.Config) { c.Health.Interval = 50 * time.Millisecond },
		before: func(r *rig) { r.server.PanicOnBuffer(1) },
	})
	whole := forms(prompt, 3)[0]
	if a := r.call(whole); a.status != 500 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	r.await("counted", func() bool { return r.metric("xpyd_panics_total") == 1 })
	r.expectNothingHeld()
	r.prefill[0].Kill()
	r.await("down", func() bool { return r.metric(`xpyd_backend_up{backend="`+r.prefill[0].URL()) == 0 })
	r.expectWhole(whole, r.call(whole))
	if n := r.metric("xpyd_panics_total"); n != 1 {
		t.Errorf("%v panics", n)
	}
}
