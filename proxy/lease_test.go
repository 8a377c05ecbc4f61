package proxy_test

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

// The reserved decode engine goes down while P works, and the other is full. The handle ages while
// its request waits for a slot, and decode would read another prompt's blocks.
func TestHandleThatAgedInTheQueueIsNotSent(t *testing.T) {
	const lease, margin = 4 * time.Second, 2500 * time.Millisecond // a busy machine may take a second to load blocks
	busy, prefill := newBarrier(sim.PhaseStreamEvent, 1), newBarrier(sim.PhasePrefillEnding, 0)
	var second atomic.Bool
	r := newRig(t, rigOptions{
		decode: 2,
		config: func(c *proxy.Config) { c.KV.Lease, c.KV.LeaseMargin = lease, margin },
		router: func(c *router.Config) { c.DecodeMaxInFlight, c.Queue.Wait = 1, 2*patience },
		engine: func(o *sim.Options) {
			o.Lease = lease
			o.Hook = func(e sim.Event) {
				if busy.hook(e); second.Load() {
					prefill.hook(e)
				}
			}
		},
	})
	t.Cleanup(prefill.open)
	t.Cleanup(busy.open)
	r.server.StopChecks()
	full := make(chan answer, 1)
	go func() { full <- r.call(call{stream: true, prompt: prompt, tokens: 4}) }()
	at := (<-busy.reached).Engine
	second.Store(true)
	c, got := forms(prompt, 6)[0], make(chan answer, 1)
	go func() { got <- r.call(c) }()
	<-prefill.reached
	for _, d := range r.decode {
		if d.Name() != at {
			r.server.FailChecks(d.URL())
		}
	}
	prefill.open()
	p := r.prefill[0]
	r.await("freed by the lease", func() bool { return p.Ledger().FreedBy["lease"] == 1 })
	busy.open()
	r.expectWhole(c, r.soon(got))
	<-full
	if n := p.Ledger().StaleReads; n != 0 {
		t.Errorf("%d reads of blocks that were free", n)
	}
}

// Decode queues a request for longer than the lease, which it renews, and then its prefill engine
// freezes. Decode must not wait for it, because once the renewed lease is over it may run again and
// give the blocks to another prompt before decode reads them. In the last round it was down
// earlier, and came back in time.
func TestPrefillFreezesUnderARequestThatDecodeQueues(t *testing.T) {
	alone(t) // health.timeout is a second.
	const lease = 5 * time.Second
	for _, last := range []bool{false, true} {
		t.Run(fmt.Sprintf("last=%v", last), func(t *testing.T) {
			t.Parallel()
			busy := newBarrier(sim.PhaseStreamEvent, 1)
			r := newRig(t, rigOptions{
				config: func(c *proxy.Config) { c.KV.Lease, c.KV.LeaseMargin = lease, 300*time.Millisecond },
				router: func(c *router.Config) {
					quickChecks(c)
					c.Health.Timeout = time.Second // a shorter one takes engines down that work
				},
				engine: func(o *sim.Options) {
					if o.Lease = lease; o.Role == sim.RoleDecode {
						o.Hook, o.MaxSeqs = busy.hook, 2
					}
				},
			})
			p, rounds := r.prefill[0], 1
			up := func() bool { return r.metric(`xpyd_backend_up{backend="`+p.URL()) == 1 }
			down := func() bool { return !up() }
			t.Cleanup(p.Thaw)
			t.Cleanup(busy.open)
			full := make(chan answer, 1)
			go func() { // decode alone
				full <- r.post("/v1/completions", `{"model":"sim","prompt":"x","max_tokens":4,"n":2,"stream":true}`)
			}()
			<-busy.reached
			if last {
				rounds = 2
				if err := r.decode[0].SetFault(sim.Fault{Kind: sim.FaultRST, Leg: "D", Count: 1}); err != nil {
					t.Fatal(err)
				}
			}
			c, got := forms(prompt, 6)[0], make(chan answer, 1)
			go func() { got <- r.call(c) }()
			r.await("pinned", func() bool { return len(legs(r.prefill, "prefill")) == rounds && p.Ledger().Pinned > 0 })
			over := time.Now().Add(lease + 200*time.Millisecond)
			if last {
				r.server.FailChecks(p.URL())
				r.await("up", up)
			}
			time.Sleep(time.Until(over))
			if p.Ledger().Pinned == 0 {
				t.Fatal("decode has not renewed the lease: the test proves nothing")
			}
			p.Freeze()
			r.await("down", down)
			busy.open()
			a := r.soon(got)
			if !last {
				r.expectWhole(c, a)
			} else if a.status != 502 || a.code() != "decode_failed" {
				t.Errorf("%d %s\n%s", a.status, a.body, r.logs)
			}
			<-full
		})
	}
}

// An answer that is not streamed takes longer than the lease, and its prefill engine is killed
// after that. Decode has the blocks.
func TestLongWholeAnswerOutlivesItsPrefill(t *testing.T) {
	const lease = 2500 * time.Millisecond
	r := newRig(t, rigOptions{
		config: func(c *proxy.Config) { c.KV.Lease, c.KV.LeaseMargin = lease, 1500*time.Millisecond },
		router: quickChecks,
		engine: func(o *sim.Options) {
			if o.Lease = lease; o.Role == sim.RoleDecode {
				o.TokenLatency = 20 * time.Millisecond
			}
		},
	})
	p := r.prefill[0]
	c, got := call{prompt: prompt, tokens: 200, more: `,"ignore_eos":true`}, make(chan answer, 1)
	go func() { got <- r.call(c) }()
	r.await("loaded", func() bool { return p.Ledger().FreedBy["read"] == 1 })
	time.Sleep(lease + 50*time.Millisecond)
	p.Kill()
	r.await("down", func() bool { return r.metric(`xpyd_backend_up{backend="`+p.URL()) == 0 })
	a := r.soon(got)
	r.expectWhole(c, a)
	if path := a.header.Get("X-Xpyd-Path"); path != "disaggregated" {
		t.Errorf("path %s: decoded again", path)
	}
}

// A reload removes a prefill engine while decode is about to load its blocks. The engine is checked
// until decode has them.
func TestRemovedPrefillThatFreezesIsNoticed(t *testing.T) {
	b := newBarrier(sim.PhaseDecodeReceived, 0)
	var pools router.Config
	r := newRig(t, rigOptions{
		prefill: 2,
		router: func(c *router.Config) {
			quickChecks(c)
			c.Health.Timeout = time.Second // a shorter one takes engines down that work
			pools = *c
		},
		engine: func(o *sim.Options) { o.Hook = b.hook },
	})
	t.Cleanup(b.open)
	c, got := forms(prompt, 6)[0], make(chan answer, 1)
	go func() { got <- r.call(c) }()
	met := <-b.reached
	p, stays := r.prefill[0], r.prefill[1]
	if recs := p.Requests(); len(recs) == 0 || recs[0].RequestID != met.RequestID {
		p, stays = stays, p
	}
	t.Cleanup(p.Thaw)
	pools.Prefill = router.MustEntries(stays.URL())
	if err := r.server.Reload(pools); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * pools.Health.SuspectInterval) // in which it would be forgotten
	p.Freeze()
	b.open()
	r.expectWhole(c, r.soon(got))
	p.Thaw()
	r.await("forgotten", func() bool { return strings.Contains(r.logs.String(), "backend has left") })
}

// The reserved decode engine is frozen when the client leaves. Another one gives the handle back.
func TestReleaseDoesNotWaitForAFrozenDecode(t *testing.T) {
	b := newBarrier(sim.PhasePrefillEnding, 0)
	r := newRig(t, rigOptions{decode: 2, engine: func(o *sim.Options) { o.Hook = b.hook }})
	t.Cleanup(b.open)
	r.server.StopChecks()
	conn := r.dialRaw()
	_, _ = io.WriteString(conn, raw(forms(prompt, 6)[0], "left"))
	<-b.reached
	for _, d := range r.decode {
		if r.metric(`xpyd_in_flight{backend="`+d.URL()) == 1 {
			d.Freeze()
			t.Cleanup(d.Thaw)
		}
	}
	_ = conn.Close()
	r.await("departed", func() bool { return r.server.Departed() == 1 })
	b.open()
	r.await("given back", func() bool { return r.metric(`xpyd_kv_handles_total{end="released"}`) == 1 })
	// D tells P after it has answered.
	r.await("freed", func() bool { return r.prefill[0].Ledger().Pinned == 0 })
	if l := r.prefill[0].Ledger(); l.Pinned != 0 || l.FreedBy["reject"] != 1 {
		t.Errorf("%d blocks pinned, freed by %v", l.Pinned, l.FreedBy)
	}
}

// A decode engine has read the blocks and then fails. The drain that gives the handle back may read
// another prompt's blocks. No later request of the prompt may find those in a cache.
func TestDrainLeavesNothingToFind(t *testing.T) {
	together(t)
	for _, kind := range []string{"badjson", "error-first"} {
		t.Run(kind, func(t *testing.T) {
			r := newRig(t, rigOptions{decode: 3, router: inTurn, engine: func(o *sim.Options) { o.Version = "0.31.9" }})
			c := forms(prompt, 6)[map[string]int{"error-first": 1}[kind]]
			if err := r.decode[0].SetFault(sim.Fault{Kind: kind, Leg: "D", Count: 1}); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if r.expectWhole(c, r.call(c)); r.metric(`xpyd_kv_handles_issued_total`) > r.metric("xpyd_requests_total") {
					break // a second round
				}
			}
			r.await("drained", func() bool { return r.metric(`xpyd_kv_handles_total{end="drained"}`) == 1 })
			if r.prefill[0].Ledger().StaleReads == 0 {
				t.Fatal("the drain has read nothing: the test proves nothing")
			}
			for range 2 * len(r.decode) {
				r.expectWhole(c, r.call(c))
			}
		})
	}
}

// P's lease begins when P has computed, before it writes a byte. Here the answer of a P takes longer than the lease.
func TestLeaseBeginsWithTheFirstByteOfAnAnswer(t *testing.T) {
	together(t)
	const lease, margin = 3 * time.Second, time.Second // a busy machine may take a second to load blocks
	for name, tt := range map[string]struct {
		prefill int
		path    string
	}{
		"another P": {2, "disaggregated"},
		"no other":  {1, "decode_only"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{
				prefill: tt.prefill, router: inTurn,
				config: func(c *proxy.Config) { c.KV.Lease, c.KV.LeaseMargin = lease, margin },
				engine: func(o *sim.Options) { o.Lease = lease },
			})
			p := r.prefill[0]
			if err := p.SetFault(sim.Fault{Kind: sim.FaultDrip, At: 30, Delay: 150 * time.Millisecond, Count: 1}); err != nil {
				t.Fatal(err)
			}
			c := forms(prompt, 6)[0]
			a := r.call(c)
			if l := p.Ledger(); l.FreedBy["lease"] != 1 || l.StaleReads != 0 {
				t.Errorf("freed by %v, %d reads of blocks that were free; want one end of a lease", l.FreedBy, l.StaleReads)
			}
			r.expectWhole(c, a)
			if path := a.header.Get("X-Xpyd-Path"); path != tt.path {
				t.Errorf("path %s, want %s", path, tt.path)
			}
			if n := r.metric(`xpyd_kv_handles_total{end="expired"}`); n != 1 {
				t.Errorf("%v handles expired, want 1\n%s", n, r.logs)
			}
		})
	}
}
