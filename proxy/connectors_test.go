package proxy_test

import (
	"fmt"
	"io"
	"testing"
	"time"

	"xpyd/kvparams"
	"xpyd/router"
	"xpyd/sim"
)

// eachConnector runs a test with engines of each connector that sim has. The legs of NIXL in pull
// mode have the rest of this package to themselves.
func eachConnector(t *testing.T, test func(t *testing.T, d kvparams.Dialect)) {
	t.Helper()
	eachConnectorThat(t, func(kvparams.Dialect) bool { return true }, test)
}

// givesBack reports that xpyd has a way to give back the blocks of a handle. Those of other connectors wait
// for the engine's own time limit.
func givesBack(d kvparams.Dialect) bool { return d.Reclaim() != kvparams.ReclaimLease }

// eachConnectorThat runs a test with engines of each connector that want picks, of which there is one at least.
func eachConnectorThat(t *testing.T, want func(d kvparams.Dialect) bool, test func(t *testing.T, d kvparams.Dialect)) {
	t.Helper()
	together(t)
	ran := 0
	for _, c := range sim.Connectors() {
		d, ok := kvparams.Lookup(string(c))
		if !ok {
			t.Fatalf("sim has engines of %s, which xpyd does not know", c)
		}
		if want(d) {
			ran++
			t.Run(d.Name(), func(t *testing.T) { test(t, d) })
		}
	}
	if ran == 0 {
		t.Error("no connector was tested")
	}
}

// moved is how many prompts' KV has come from the prefill engines.
func (r *rig) moved() (n int) {
	for _, e := range r.prefill {
		n += e.Ledger().FreedBy["read"]
	}
	for _, e := range r.decode {
		n += e.Ledger().Loaded
	}
	return n
}

func TestConnectorsMoveKV(t *testing.T) {
	eachConnector(t, func(t *testing.T, d kvparams.Dialect) {
		r := newRig(t, rigOptions{prefill: 2, decode: 2, dialect: d, router: inTurn})
		for i, c := range forms(prompt, 9) {
			a := r.call(c)
			r.expectWhole(c, a)
			if path := a.header.Get("X-Xpyd-Path"); path != "disaggregated" {
				t.Errorf("%s: path %q", c.name(), path)
			}
			if d.HandleInAnswer() || d.Concurrent() {
				r.await("moved", func() bool { return r.moved() == i+1 })
			}
		}
		if r.moved() == 0 {
			t.Error("decode engines computed every prompt themselves")
		}
		r.expectNothingHeld()
		if n := len(legs(r.prefill, "prefill")); n != 4 {
			t.Errorf("%d prefill legs for 4 requests", n)
		}
	})
}

// The later APIs have both legs too, and their engines find each other.
func TestConnectorsMoveKVOfEachAPI(t *testing.T) {
	eachConnector(t, func(t *testing.T, d kvparams.Dialect) {
		r := newRig(t, rigOptions{dialect: d})
		thinks := apiCall{api: "messages", tokens: 2000, more: `,"thinking":{"type":"enabled","budget_tokens":1024}`}
		for i, c := range append(apiCalls("", 9), thinks) {
			c.prompt = fmt.Sprintf("%d %s", i, prompt) // blocks that decode has are not moved
			a := r.post(c.path(), c.body())
			r.expectAPI(c, a)
			if path := a.header.Get("X-Xpyd-Path"); path != "disaggregated" {
				t.Errorf("%s: path %q, reason %q", c.name(), path, a.header.Get("X-Xpyd-Reason"))
			}
			if d.HandleInAnswer() || d.Concurrent() {
				r.await("moved", func() bool { return r.moved() == i+1 })
			}
		}
		r.expectNothingHeld()
	})
}

// A request that two legs cannot serve goes to decode alone, or is refused by a connector whose
// decode engines would wait for KV.
func TestConnectorsServeWhatCannotBeSplit(t *testing.T) {
	eachConnector(t, func(t *testing.T, d kvparams.Dialect) {
		r := newRig(t, rigOptions{dialect: d})
		a := r.post("/v1/completions", `{"model":"sim","prompt":"a","n":2,"temperature":1,"max_tokens":2}`)
		if !d.DecodeOnlySafe() {
			if a.status != 400 || a.code() != "unsupported_parameter" {
				t.Errorf("%d %s", a.status, a.body)
			}
			return
		}
		if a.status != 200 || a.header.Get("X-Xpyd-Path") != "decode_only" {
			t.Errorf("%d %q %s", a.status, a.header.Get("X-Xpyd-Path"), a.body)
		}
		r.expectNothingHeld()
	})
}

func TestConnectorsOutliveAPrefillEngine(t *testing.T) {
	eachConnector(t, func(t *testing.T, d kvparams.Dialect) {
		r := newRig(t, rigOptions{prefill: 2, decode: 2, dialect: d, router: inTurn})
		for _, c := range forms(prompt+"[[prefill-0:kill]]", 5) {
			r.expectWhole(c, r.call(c))
		}
		r.await("its death noticed", func() bool {
			select {
			case <-r.prefill[0].Died():
				return true
			default:
				return false
			}
		})
		r.expectNothingHeld()
	})
}

func TestConnectorsOutliveADecodeEngine(t *testing.T) {
	eachConnector(t, func(t *testing.T, d kvparams.Dialect) {
		r := newRig(t, rigOptions{prefill: 2, decode: 2, dialect: d, router: func(c *router.Config) {
			inTurn(c)
			c.PrefillPolicy = "prefix" // which would choose the same engine again
		}})
		for i := range 4 {
			c := forms(prompt+"[[decode-0:kill]]", 5+i)[i]
			r.expectWhole(c, r.call(c))
			if i == 0 && d.Concurrent() { // what killed decode may be killing prefill
				for _, p := range r.prefill {
					r.await("one leg on "+p.Name(), func() bool { return len(p.Requests()) == 1 })
				}
			}
		}
		r.await("its death noticed", func() bool {
			select {
			case <-r.decode[0].Died():
				return true
			default:
				return false
			}
		})
		if d.Reclaim() == kvparams.ReclaimDrain {
			// The engine may have begun with the handle, so no other one may drain it.
			r.await("orphan counted", func() bool { return r.metric(`xpyd_kv_orphans_total{reason="connector"`) == 1 })
			return
		}
		r.expectNothingHeld()
	})
}

func TestConnectorsOfAClientThatLeaves(t *testing.T) {
	eachConnector(t, func(t *testing.T, d kvparams.Dialect) {
		for _, phase := range []sim.Phase{sim.PhasePrefillStart, sim.PhasePrefillEnding, sim.PhaseDecodeReceived, sim.PhaseStreamEvent} {
			t.Run(string(phase), func(t *testing.T) {
				b := newBarrier(phase, 2)
				r := newRig(t, rigOptions{dialect: d, engine: func(o *sim.Options) {
					o.Hook, o.TokenLatency = b.hook, 20*time.Millisecond // decode may stream before prefill has answered
				}})
				t.Cleanup(b.open)
				conn := r.dialRaw()
				_, _ = io.WriteString(conn, raw(forms(prompt, 200)[1], "leaver"))
				select {
				case <-b.reached:
				case <-time.After(patience):
					t.Fatalf("no engine came to %s\n%s", phase, r.logs)
				}
				_ = conn.Close()
				r.await("aware that the client left", func() bool { return r.server.Departed() == 1 || r.metric("xpyd_client_gone_total") == 1 })
				b.open()
				r.await("counted", func() bool { return r.metric("xpyd_client_gone_total") == 1 })
				r.expectNothingHeld()
				r.expectNoneUsed()
			})
		}
	})
}

// Where a decode engine asks the prefill engine once more when its client leaves, it may lose its blocks. So its leg goes on
// until they have come.
func TestConnectorsLoadForAClientThatLeaves(t *testing.T) {
	finishes := func(d kvparams.Dialect) bool {
		p, ok := d.(kvparams.Pairing)
		return ok && p.Finishes()
	}
	eachConnectorThat(t, finishes, func(t *testing.T, d kvparams.Dialect) {
		for i, phase := range []sim.Phase{sim.PhasePrefillStart, sim.PhaseDecodeReceived} {
			for _, c := range forms(prompt, 5+i) {
				t.Run(string(phase)+" "+c.name(), func(t *testing.T) {
					b := newBarrier(phase, 1)
					r := newRig(t, rigOptions{dialect: d, engine: func(o *sim.Options) {
						o.Hook, o.TransferPerBlock = b.hook, 150*time.Millisecond // the blocks come after the prefill's answer
					}})
					t.Cleanup(b.open)
					conn := r.dialRaw()
					_, _ = io.WriteString(conn, raw(c, "leaver"))
					select {
					case <-b.reached:
					case <-time.After(patience):
						t.Fatalf("no engine came to %s\n%s", phase, r.logs)
					}
					if phase == sim.PhasePrefillStart {
						r.await("waiting for blocks", func() bool { return r.decode[0].Used() > 0 })
					}
					_ = conn.Close()
					r.await("aware that the client left", func() bool { return r.server.Departed() == 1 || r.metric("xpyd_client_gone_total") == 1 })
					time.Sleep(20 * time.Millisecond) // in which a cut that must not come would reach decode
					b.open()
					r.await("done with its legs", func() bool { return r.metric("xpyd_in_flight") == 0 })
					// An answer that came whole meanwhile has reached nobody.
					r.await("counted", func() bool { return r.metric(`xpyd_requests_total`) == 1 })
					if gone := r.metric(`xpyd_requests_total{api="completions",outcome="client_gone"`) + r.metric(`xpyd_requests_total{api="chat",outcome="client_gone"`); gone != 1 || r.metric("xpyd_client_gone_total") != 1 {
						t.Errorf("%v requests whose client has left, want 1\n%s", gone, r.logs)
					}
					r.expectNothingHeld()
					r.expectNoneUsed()
				})
			}
		}
	})
}

// Some engines die if a request is cut while they load its blocks. Such a leg goes on without its client.
func TestConnectorsWhoseEnginesDieOfACut(t *testing.T) {
	eachConnectorThat(t, kvparams.Dies, func(t *testing.T, d kvparams.Dialect) {
		for _, c := range forms(prompt, 5) {
			t.Run(c.name(), func(t *testing.T) {
				r := newRig(t, rigOptions{dialect: d, engine: func(o *sim.Options) { o.TransferPerBlock = 500 * time.Millisecond }})
				conn := r.dialRaw()
				_, _ = io.WriteString(conn, raw(c, "leaver"))
				r.await("loading", func() bool { return r.decode[0].Ledger().Loaded == 1 })
				_ = conn.Close()
				r.await("aware that the client left", func() bool { return r.server.Departed() == 1 || r.metric("xpyd_client_gone_total") == 1 })
				r.await("done with its legs", func() bool { return r.metric("xpyd_in_flight") == 0 })
				r.await("ended at decode", func() bool { return len(r.decode[0].Requests()) == 1 })
				r.expectWhole(c, r.call(c))
				if n := r.metric("xpyd_client_gone_total"); n != 1 {
					t.Errorf("%v clients left", n)
				}
			})
		}
	})
}

// expectNoneUsed waits until no engine's KV cache is in use.
func (r *rig) expectNoneUsed() {
	r.t.Helper()
	for _, e := range append(r.prefill[:len(r.prefill):len(r.prefill)], r.decode...) {
		r.await(e.Name()+" free of blocks in use", func() bool { return e.Used() == 0 })
	}
}

// noWork is the fault of a decode engine whose blocks another one may still have. Where prefill writes them, that is so
// only if the engine has refused the request.
func noWork(d kvparams.Dialect) string {
	if d.Reclaim() == kvparams.ReclaimDrain {
		return "status=503"
	}
	return "status=500"
}

// A prefill that has answered holds blocks for a decode that never comes.
func TestConnectorsGiveBackWhatNoDecodeReads(t *testing.T) {
	eachConnectorThat(t, givesBack, func(t *testing.T, d kvparams.Dialect) {
		r := newRig(t, rigOptions{prefill: 1, decode: 2, dialect: d, router: inTurn})
		f, err := sim.ParseFault(noWork(d))
		if err != nil {
			t.Fatal(err)
		}
		f.Count = 1
		for _, e := range r.decode {
			if err := e.SetFault(f); err != nil {
				t.Fatal(err)
			}
			c := forms(prompt, 5)[0]
			r.call(c) // the second engine answers it, or the client gets an error; the blocks of each round end
		}
		r.expectNothingHeld()
	})
}

func TestConnectorsGiveBackOfEachAPI(t *testing.T) {
	eachConnectorThat(t, givesBack, func(t *testing.T, d kvparams.Dialect) {
		r := newRig(t, rigOptions{decode: 2, dialect: d, router: inTurn})
		f, err := sim.ParseFault(noWork(d))
		if err != nil {
			t.Fatal(err)
		}
		f.Count = 1
		thinks := apiCall{api: "messages", tokens: 2000, more: `,"thinking":{"type":"enabled","budget_tokens":1024}`}
		for i, c := range append(apiCalls("", 5), thinks) {
			c.prompt = fmt.Sprintf("%d %s", i, prompt)
			for _, e := range r.decode {
				if err := e.SetFault(f); err != nil {
					t.Fatal(err)
				}
			}
			r.post(c.path(), c.body())
			r.expectNothingHeld()
		}
	})
}

// A prefill engine that was restarted has another id, which decode has to name.
func TestConnectorsFindARestartedPrefillEngine(t *testing.T) {
	eachConnector(t, func(t *testing.T, d kvparams.Dialect) {
		r := newRig(t, rigOptions{dialect: d, router: func(c *router.Config) { c.Health.SuspectInterval = c.Health.Interval }})
		n := 0
		next := func() {
			n++
			c := forms(fmt.Sprintf("%d %s", n, prompt), 5)[0] // blocks that decode has are not moved
			r.expectWhole(c, r.call(c))
		}
		next()
		loaded := r.moved()
		if err := r.prefill[0].Restart(); err != nil {
			t.Fatal(err)
		}
		r.await("KV moved again", func() bool {
			next()
			return r.prefill[0].Ledger().FreedBy["read"] > 0 || d.Reclaim() == kvparams.ReclaimNone && r.moved() > loaded
		})
		r.expectNothingHeld()
	})
}
