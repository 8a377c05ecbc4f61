package proxy_test

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

// withoutRoles is a rig of n engines without a role. A simulated engine with a KV connector runs the leg that a request's
// parameters name, whatever its own role is.
func withoutRoles(t *testing.T, n int, o rigOptions) *rig {
	t.Helper()
	o.prefill, o.decode = -1, n
	change := o.router
	o.router = func(c *router.Config) {
		c.Engines, c.Decode = c.Decode, nil
		if change != nil {
			change(c)
		}
	}
	return newRig(t, o)
}

// legsOn is how many legs of clients' requests each engine had, by leg; P and D of one request fail the test if they
// are on one engine.
func (r *rig) legsOn(t *testing.T) (prefills, decodes []int) {
	t.Helper()
	prefills, decodes = make([]int, len(r.decode)), make([]int, len(r.decode))
	for i, e := range r.decode {
		had := map[string]bool{}
		for _, rec := range e.Requests() {
			if isRelease(rec) {
				continue
			}
			if had[rec.RequestID] {
				t.Errorf("%s has both legs of %s", e.Name(), rec.RequestID)
			}
			had[rec.RequestID] = true
			if rec.Leg == "prefill" {
				prefills[i]++
			} else {
				decodes[i]++
			}
		}
	}
	return prefills, decodes
}

func TestEnginesWithoutARole(t *testing.T) {
	together(t)
	for _, mode := range router.PDModes() {
		t.Run(mode, func(t *testing.T) {
			r := withoutRoles(t, 3, rigOptions{router: func(c *router.Config) { c.PD.Mode = mode }})
			const n = 24
			for i := range n {
				c := forms(fmt.Sprint(prompt, i), 4)[i%4]
				r.expectWhole(c, r.call(c))
			}
			r.expectAllFree()
			prefills, decodes := r.legsOn(t)
			p, d := 0, 0
			for i := range prefills {
				p, d = p+prefills[i], d+decodes[i]
				if decodes[i] == 0 && mode != router.PDAuto { // which stays where the beginning of the prompts is
					t.Errorf("decodes %v", decodes)
				}
			}
			want := map[string]int{router.PDAlways: n, router.PDNever: 0, router.PDAuto: p}[mode]
			if p != want || d != n {
				t.Errorf("prefills %v, decodes %v", prefills, decodes)
			}
			if mode == router.PDAlways && strings.Contains(fmt.Sprint(prefills), "0 ") {
				t.Errorf("prefills %v", prefills)
			}
		})
	}
}

// expectAllFree waits until no engine pins blocks, and fails if a lease had to free any.
func (r *rig) expectAllFree() {
	r.t.Helper()
	for _, e := range r.decode {
		r.await(e.Name()+" free of pinned blocks", func() bool { return e.Ledger().Pinned == 0 })
		if l := e.Ledger(); l.FreedBy["lease"] > 0 || l.StaleReads > 0 {
			r.t.Errorf("%s: freed by %v, %d stale reads", e.Name(), l.FreedBy, l.StaleReads)
		}
	}
	r.expectNothingHeld()
}

// One engine serves everything whole, also where no decode engine may go without a prefill. That is no degradation.
func TestOneEngineWithoutARole(t *testing.T) {
	r := withoutRoles(t, 1, rigOptions{config: func(c *proxy.Config) { c.DecodeOnly.Enabled, c.DecodeOnly.MaxShare = false, 0 }})
	for i, c := range forms(prompt, 4) {
		a := r.call(c)
		r.expectWhole(c, a)
		if pathOf(a) != "decode_only no_other_engine" {
			t.Errorf("%d went %s", i, pathOf(a))
		}
	}
	r.expectReady(true, "ok")
	r.expectAllFree()
}

// The other engine is down. Requests go whole from the first one on, and split again when it is back.
func TestAnEngineWithoutARoleIsLeftAlone(t *testing.T) {
	r := withoutRoles(t, 2, rigOptions{
		config: func(c *proxy.Config) { c.DecodeOnly.MaxShare = 0 },
		router: func(c *router.Config) { c.PD.Mode = router.PDAlways; c.Health.Fall, c.Health.SlowStart = 1, 0 },
	})
	c := forms(prompt, 4)[0]
	r.decode[1].Kill()
	r.server.ProbeNow()
	for range 4 {
		a := r.call(c)
		r.expectWhole(c, a)
		if pathOf(a) != "decode_only no_other_engine" {
			t.Errorf("went %s", pathOf(a))
		}
	}
	if err := r.decode[1].Restart(); err != nil {
		t.Fatal(err)
	}
	r.await("split again", func() bool {
		r.server.ProbeNow()
		a := r.call(c)
		r.expectWhole(c, a)
		return pathOf(a) == "disaggregated none"
	})
	r.expectAllFree()
}

// An engine dies while it is the P of one request and the D of another. Both are answered, and nothing stays pinned.
func TestAnEngineDiesInBothRoles(t *testing.T) {
	const doomed = "decode-0"
	var mu sync.Mutex
	held := map[sim.Phase]int{} // requests that the doomed engine has in hand
	var r *rig
	r = withoutRoles(t, 3, rigOptions{
		router: func(c *router.Config) { inTurn(c); c.PD.Mode = router.PDAlways },
		engine: func(o *sim.Options) {
			if o.Name != doomed {
				return
			}
			o.Hook = func(e sim.Event) {
				if e.Phase != sim.PhasePrefillStart && e.Phase != sim.PhaseDecodeReceived {
					return
				}
				mu.Lock()
				held[e.Phase]++
				mu.Unlock()
				<-r.decode[0].Died()
			}
		},
	})
	both := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return held[sim.PhasePrefillStart] > 0 && held[sim.PhaseDecodeReceived] > 0
	}
	c := forms(prompt, 4)[1]
	var asked []<-chan answer
	for i := 0; !both() && i < 30; i++ {
		asked = append(asked, r.start(c))
		if i > 2 {
			r.await("under way", func() bool { return both() || r.metric("xpyd_in_flight") > 0 })
		}
	}
	r.await("in hand as P and as D", both)
	r.decode[0].Kill()
	for _, got := range asked {
		r.expectWhole(c, r.soon(got))
	}
	r.decode = r.decode[1:] // what it had pinned is gone with it
	r.expectAllFree()
}

// A client leaves engines without a role in each phase. Nothing stays pinned or held, and the next requests are served.
func TestClientLeavesEnginesWithoutARole(t *testing.T) {
	together(t)
	for phase, modes := range map[sim.Phase][]string{
		sim.PhasePrefillStart:   {router.PDAlways},
		sim.PhaseDecodeReceived: {router.PDAlways, router.PDAuto},
		sim.PhaseStreamEvent:    {router.PDAlways, router.PDAuto},
	} {
		for _, mode := range modes {
			t.Run(string(phase)+" "+mode, func(t *testing.T) {
				b := newBarrier(phase, 3)
				r := withoutRoles(t, 2, rigOptions{
					router: func(c *router.Config) { c.PD.Mode = mode },
					engine: func(o *sim.Options) { o.Hook = b.hook },
				})
				t.Cleanup(b.open)
				conn := r.dialRaw()
				_, _ = io.WriteString(conn, raw(forms(prompt, 9)[1], "leaver"))
				r.await("in that phase", func() bool { return len(b.reached) > 0 })
				if phase == sim.PhaseStreamEvent {
					_, _ = conn.Read(make([]byte, 1)) // the answer has begun
				}
				_ = conn.Close()
				r.await("aware that the client left", func() bool { return r.server.Departed()+int64(r.metric("xpyd_client_gone_total")) > 0 })
				b.open()
				r.expectAllFree()
				for i := range 4 {
					c := forms(fmt.Sprint(prompt, i), 4)[i%4]
					r.expectWhole(c, r.call(c))
				}
				r.expectAllFree()
			})
		}
	}
}
