package proxy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"xpyd/kvparams"
	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

// mixedRig has engines of several connectors: the n-th of each role has the n-th of them. The first is the
// usual one, and the entries of the others name theirs.
func mixedRig(t *testing.T, o rigOptions, connectors ...sim.Connector) *rig {
	t.Helper()
	of := func(i int) sim.Connector { return connectors[i%len(connectors)] }
	o.dialect, _ = kvparams.Lookup(string(connectors[0]))
	engine, change := o.engine, o.router
	o.engine = func(opts *sim.Options) {
		var i int
		if _, err := fmt.Sscanf(opts.Name[strings.LastIndexByte(opts.Name, '-')+1:], "%d", &i); err != nil {
			t.Fatal(err)
		}
		opts.Connector = of(i)
		if engine != nil {
			engine(opts)
		}
	}
	o.router = func(c *router.Config) {
		inTurn(c)
		for _, pool := range [][]router.Entry{c.Prefill, c.Decode} {
			for i := range pool {
				if of(i) != connectors[0] {
					pool[i].Connector = string(of(i))
				}
			}
		}
		if change != nil {
			change(c)
		}
	}
	o.prefill, o.decode = max(o.prefill, len(connectors)), max(o.decode, len(connectors))
	return newRig(t, o)
}

// expectPairs fails if any request, also one that gives blocks back, went to a decode engine of another
// connector than the prefill engine that had it. It returns how many requests each connector had two legs of.
func (r *rig) expectPairs(connectors int) []int {
	r.t.Helper()
	by := map[string]int{}
	for i, e := range r.prefill {
		for _, rec := range e.Requests() {
			if id := strings.TrimSuffix(rec.RequestID, "-release"); rec.Leg == "prefill" {
				by[id] = i % connectors
			}
		}
	}
	pairs := make([]int, connectors)
	for i, e := range r.decode {
		for _, rec := range e.Requests() {
			of, split := by[strings.TrimSuffix(rec.RequestID, "-release")]
			if split && of != i%connectors {
				r.t.Errorf("%s had %s, whose prefill was on an engine of another connector", e.Name(), rec.RequestID)
			}
			if split && !isRelease(rec) {
				pairs[i%connectors]++
			}
		}
	}
	return pairs
}

// eachMix runs a test with engines of NIXL beside those of each other connector.
func eachMix(t *testing.T, test func(t *testing.T, other sim.Connector)) {
	t.Helper()
	eachConnectorThat(t, func(d kvparams.Dialect) bool { return d.Name() != "nixl" }, func(t *testing.T, d kvparams.Dialect) {
		test(t, sim.Connector(d.Name()))
	})
}

// askFresh makes n requests with prompts that no engine has seen.
func (r *rig) askFresh(n int) {
	r.t.Helper()
	for i := range n {
		c := forms(fmt.Sprintf("%d %s", i, prompt), 5)[i%4]
		r.expectWhole(c, r.call(c))
	}
}

func TestTwoConnectorsOfOneModel(t *testing.T) {
	eachMix(t, func(t *testing.T, other sim.Connector) {
		r := mixedRig(t, rigOptions{prefill: 4, decode: 4}, sim.ConnectorNixl, other)
		r.askFresh(16)
		if pairs := r.expectPairs(2); pairs[0] != 8 || pairs[1] != 8 {
			t.Errorf("%d requests by nixl and %d by %s, of 16", pairs[0], pairs[1], other)
		}
		r.await("moved", func() bool { return r.moved() >= 8 })
		r.expectNothingHeld()
		r.expectNoneUsed()
	})
}

// The engines of a model have one connector, and those of another model another one.
func TestTwoModelsOfTwoConnectors(t *testing.T) {
	eachMix(t, func(t *testing.T, other sim.Connector) {
		r := mixedRig(t, rigOptions{engine: func(o *sim.Options) { o.Model = "model-of-" + string(o.Connector) }}, sim.ConnectorNixl, other)
		r.await("both models listed", func() bool {
			a := r.send("GET", "/v1/models", "")
			return strings.Contains(a.body, "model-of-nixl") && strings.Contains(a.body, "model-of-"+string(other))
		})
		for i := range 6 {
			model := []string{"model-of-nixl", "model-of-" + string(other)}[i/3]
			a := r.post("/v1/completions", fmt.Sprintf(`{"model":%q,"prompt":"%d %s","max_tokens":3}`, model, i, prompt))
			if a.status != 200 || a.header.Get("X-Xpyd-Path") != "disaggregated" {
				t.Fatalf("%s: %d %s %s", model, a.status, a.header.Get("X-Xpyd-Path"), a.body)
			}
		}
		if pairs := r.expectPairs(2); pairs[0] != 3 || pairs[1] != 3 {
			t.Errorf("%v requests by connector, want 3 each", pairs)
		}
		r.expectNothingHeld()
	})
}

// What cannot be split goes to a decode engine that serves it alone.
func TestMixedPoolsServeWhatCannotBeSplit(t *testing.T) {
	eachMix(t, func(t *testing.T, other sim.Connector) {
		r := mixedRig(t, rigOptions{}, sim.ConnectorNixl, other)
		for i := range 6 {
			a := r.post("/v1/completions", fmt.Sprintf(`{"model":"sim","prompt":"%d","n":2,"temperature":1,"max_tokens":2}`, i))
			if a.status != 200 || a.header.Get("X-Xpyd-Path") != "decode_only" {
				t.Fatalf("%d %s %s", a.status, a.header.Get("X-Xpyd-Path"), a.body)
			}
		}
		d, _ := kvparams.Lookup(string(other))
		if n := len(r.decode[1].Requests()); (n > 0) != d.DecodeOnlySafe() {
			t.Errorf("the decode engine of %s had %d requests", other, n)
		}
		r.expectNothingHeld()
	})
}

// An engine of either role that is gone takes nothing of the other connector with it: the requests that it
// would have had go to a pair of the other one. No pair is made across.
func TestMixedPoolsOutliveAnEngine(t *testing.T) {
	together(t)
	for _, role := range []sim.Role{sim.RolePrefill, sim.RoleDecode} {
		for _, gone := range []int{0, 1} {
			t.Run(fmt.Sprintf("%s %d", role, gone), func(t *testing.T) {
				eachMix(t, func(t *testing.T, other sim.Connector) {
					r := mixedRig(t, rigOptions{config: func(c *proxy.Config) {
						noDecodeAlone(c)
						c.KV.Release = "off" // nobody is left to give the blocks back to
					}, router: func(c *router.Config) {
						c.Health.EjectAfter = 0 // what the request itself meets is what this is about
						c.Health.Interval, c.Health.SuspectInterval = time.Hour, time.Hour
					}}, sim.ConnectorNixl, other)
					engines := r.prefill
					if role == sim.RoleDecode {
						engines = r.decode
					}
					if err := engines[gone].Close(); err != nil {
						t.Fatal(err)
					}
					r.askFresh(8)
					pairs := r.expectPairs(2)
					if d, ok := kvparams.Lookup(string(other)); ok && d.Concurrent() && d.DecodeOnlySafe() && gone == 1 {
						// Decode may have computed the prompt and answered before its prefill leg failed.
						pairs[0] += outcomes(r.decode[1], "ok")
					}
					if role == sim.RolePrefill && pairs[1-gone] != 8 || role == sim.RoleDecode && pairs[1-gone] < 8 || pairs[gone] != 0 {
						t.Errorf("%v requests by connector", pairs)
					}
				})
			})
		}
	}
}

// outcomes is how many requests to the engine ended so.
func outcomes(e *sim.Engine, as string) (n int) {
	for _, rec := range e.Requests() {
		if rec.Outcome == as {
			n++
		}
	}
	return n
}

// Blocks that no decode reads are given back by an engine of their own connector.
func TestMixedPoolsGiveBack(t *testing.T) {
	eachConnectorThat(t, func(d kvparams.Dialect) bool { return d.Name() != "nixl" && givesBack(d) }, func(t *testing.T, d kvparams.Dialect) {
		r := mixedRig(t, rigOptions{prefill: 2, decode: 4}, sim.ConnectorNixl, sim.Connector(d.Name()))
		f, err := sim.ParseFault(noWork(d))
		if err != nil {
			t.Fatal(err)
		}
		f.Count = 1
		for i := range r.decode {
			if err := r.decode[i].SetFault(f); err != nil {
				t.Fatal(err)
			}
			r.call(forms(fmt.Sprintf("%d %s", i, prompt), 5)[0]) // another engine answers it, or the client gets an error
			r.expectNothingHeld()
		}
		r.expectPairs(2)
	})
}

// Health checks take a prefill engine down. Then the decode engines with its connector get requests only if
// the others cannot have them.
func TestMixedPoolsWithoutThePrefillEngineOfOne(t *testing.T) {
	eachMix(t, func(t *testing.T, other sim.Connector) {
		r := mixedRig(t, rigOptions{router: func(c *router.Config) {
			c.Health.Interval, c.Health.SuspectInterval, c.Health.Fall = 20*time.Millisecond, 20*time.Millisecond, 1
		}}, sim.ConnectorNixl, other)
		if err := r.prefill[1].Close(); err != nil {
			t.Fatal(err)
		}
		r.await("its end noticed", func() bool {
			return r.metric(fmt.Sprintf(`xpyd_backend_up{backend=%q`, r.prefill[1].URL())) == 0
		})
		r.askFresh(6)
		if pairs := r.expectPairs(2); pairs[0] != 6 || len(r.decode[1].Requests()) != 0 {
			t.Errorf("%v requests by connector; the other decode engine had %d", pairs, len(r.decode[1].Requests()))
		}
		if err := r.decode[0].Close(); err != nil {
			t.Fatal(err)
		}
		r.await("its end noticed too", func() bool {
			return r.metric(fmt.Sprintf(`xpyd_backend_up{backend=%q`, r.decode[0].URL())) == 0
		})
		c := forms("last "+prompt, 3)[0]
		a := r.call(c)
		if d, _ := kvparams.Lookup(string(other)); d.DecodeOnlySafe() {
			r.expectWhole(c, a)
		} else if a.status != 503 {
			t.Errorf("%d %s: its decode engine serves nothing alone", a.status, a.body)
		}
	})
}

// A warm-up pairs engines of one connector only.
func TestMixedPoolsWarmUp(t *testing.T) {
	r := mixedRig(t, rigOptions{config: func(c *proxy.Config) { c.Warmup = true }}, sim.ConnectorNixl, sim.ConnectorMoriio)
	warm := func(e *sim.Engine) (n int) {
		for _, rec := range e.Requests() {
			if strings.HasPrefix(rec.RequestID, "xpyd-warmup-") && !isRelease(rec) {
				n++
			}
		}
		return n
	}
	for _, e := range append(r.prefill[:2:2], r.decode...) {
		r.await(e.Name()+" warmed", func() bool { return warm(e) == 1 })
	}
	r.expectPairs(2)
	r.expectNothingHeld()
}

// Legs that begin together teach no price of a transfer: decode's time has the prefill in it.
func TestLegsThatBeginTogetherTeachNoTransferPrice(t *testing.T) {
	r := mixedRig(t, rigOptions{
		engine: func(o *sim.Options) { o.Model = "model-of-" + string(o.Connector) },
		router: func(c *router.Config) { c.PD = router.PD{Mode: router.PDAuto, StallWeight: 1} },
	}, sim.ConnectorNixl, sim.ConnectorMooncake)
	priced := func() bool { return strings.Contains(r.adminText("/advice"), `"transfer"`) }
	for _, tc := range []struct {
		connector sim.Connector
		decode    int
		priced    bool
	}{{sim.ConnectorMooncake, 1, false}, {sim.ConnectorNixl, 0, true}} {
		r.until(func() bool { return len(r.decode[tc.decode].Requests()) > 8 }, func(i int) {
			body := fmt.Sprintf(`{"model":"model-of-%s","stream":true,"prompt":"%d %s","max_tokens":3}`, tc.connector, i, prompt)
			if a := r.post("/v1/completions", body); a.status != 200 {
				t.Errorf("%d %s", a.status, a.body)
			}
		})
		if priced() != tc.priced {
			t.Errorf("after requests of %s a transfer has a price: %v\n%s", tc.connector, !tc.priced, r.adminText("/advice"))
		}
	}
}
