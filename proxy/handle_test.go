package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"xpyd/kvparams"
	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

// released waits for an engine's record of a release of the request with this id.
func (r *rig) released(e *sim.Engine, id string) {
	r.t.Helper()
	r.await("a release of "+id+" on "+e.Name(), func() bool {
		for _, rec := range e.Requests() {
			if strings.HasPrefix(rec.RequestID, id+"-") && strings.HasSuffix(rec.RequestID, "-release") {
				return true
			}
		}
		return false
	})
}

func TestHandleGoesToOneDecodeRequest(t *testing.T) {
	together(t)
	for _, kind := range []string{"rst", "fin", "status=500", "status=503", "kvfail"} {
		t.Run(kind, func(t *testing.T) {
			r := newRig(t, rigOptions{decode: 2, router: inTurn})
			c := forms(prompt, 4)[0]
			for range 2 {
				r.expectWhole(c, r.call(c)) // leaves a connection to each decode engine that the next request reuses
			}
			f, err := sim.ParseFault(kind)
			if err != nil {
				t.Fatal(err)
			}
			f.Leg, f.Count = "D", 1
			if err := r.decode[0].SetFault(f); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				r.expectWhole(c, r.call(c))
			}
			seen := map[string]bool{}
			for _, rec := range legs(r.decode, "decode") {
				if strings.HasSuffix(rec.RequestID, "-release") {
					continue
				}
				if seen[rec.RemoteRequestID] {
					t.Errorf("the handle of %s reached decode twice", rec.RemoteRequestID)
				}
				seen[rec.RemoteRequestID] = true
			}
			if n := r.metric(`xpyd_kv_handles_issued_total`); n != 5 {
				t.Errorf("%v prefills for 4 requests of which one lost its decode, want 5", n)
			}
			r.expectNothingHeld()
		})
	}
}

func TestHandleOlderThanItsLeaseIsNotSent(t *testing.T) {
	r := newRig(t, rigOptions{config: func(c *proxy.Config) { c.KV.LeaseMargin = c.KV.Lease - 1 }})
	c := forms(prompt, 4)[0]
	r.expectWhole(c, r.call(c)) // by decode alone
	for _, rec := range legs(r.decode, "decode") {
		if rec.DoRemotePrefill && !strings.HasSuffix(rec.RequestID, "-release") {
			t.Errorf("decode got an old handle: %+v", rec)
		}
	}
}

// A request that names no model goes to engines of one model. So does the release of its blocks, since an
// engine of another model does not reach them.
func TestReleaseGoesToTheModelOfThePrefill(t *testing.T) {
	r := newRig(t, rigOptions{decode: 3, router: func(c *router.Config) { inTurn(c); c.Health.EjectAfter = 0 },
		engine: func(o *sim.Options) {
			if o.Model = "chat"; o.Name == "decode-2" {
				o.Model = "other"
			}
		}})
	r.await("listed", func() bool { return strings.Contains(r.logs.String(), `"only_decode":["other"]`) })
	if err := r.decode[1].SetFault(sim.Fault{Kind: sim.FaultRST, Leg: "D"}); err != nil {
		t.Fatal(err)
	}
	r.until(func() bool { return r.metric(`xpyd_kv_handles_total{end="released"}`) >= 4 }, func(i int) {
		r.post("/v1/completions", fmt.Sprintf(`{"prompt":%q,"max_tokens":4}`, prompt), "X-Request-Id", fmt.Sprint("broken", i))
	})
	for _, rec := range r.decode[2].Requests() {
		if strings.HasSuffix(rec.RequestID, "-release") {
			t.Errorf("an engine of another model was asked to release: %+v", rec)
		}
	}
	r.expectNothingHeld()
}

func TestReleaseAvoidsTheDecodeThatFailed(t *testing.T) {
	r := newRig(t, rigOptions{decode: 2, router: inTurn})
	// It takes every request, also the release, and answers none.
	if err := r.decode[0].SetFault(sim.Fault{Kind: sim.FaultRST, Leg: "D"}); err != nil {
		t.Fatal(err)
	}
	c := forms(prompt, 4)[0]
	r.expectWhole(c, r.call(c, "X-Request-Id", "broken"))
	r.released(r.decode[1], "broken")
	r.expectNothingHeld()
	r.await("counted once", func() bool { return r.metric(`xpyd_kv_handles_total{end="released"}`) == 1 })
	for _, rec := range r.decode[0].Requests() {
		if strings.HasSuffix(rec.RequestID, "-release") {
			t.Errorf("the engine that failed was asked to release: %+v", rec)
		}
	}
}

func TestDrainCutShortIsTriedElsewhere(t *testing.T) {
	b := newBarrier(sim.PhasePrefillEnding, 0)
	r := newRig(t, rigOptions{decode: 2, engine: func(o *sim.Options) { o.Hook, o.Version = b.hook, "0.31.9" }})
	t.Cleanup(b.open)
	// A status line alone does not show that the blocks were read.
	if err := r.decode[0].SetFault(sim.Fault{Kind: sim.FaultTruncate, At: 40, Leg: "D"}); err != nil {
		t.Fatal(err)
	}
	conn := r.dialRaw()
	_, _ = io.WriteString(conn, raw(forms(prompt, 9)[0], "leaver"))
	<-b.reached
	_ = conn.Close()
	r.await("aware", func() bool { return r.server.Departed() == 1 })
	b.open()
	r.released(r.decode[1], "leaver")
	r.await("drained", func() bool { return r.metric(`xpyd_kv_handles_total{end="drained"}`) == 1 })
	r.expectNothingHeld()
}

func TestShortPrefillMayFinishForAClientThatLeft(t *testing.T) {
	b := newBarrier(sim.PhasePrefillStart, 0)
	r := newRig(t, rigOptions{
		engine: func(o *sim.Options) {
			o.Hook = b.hook
			o.PrefillTokensPerSecond = 50 // 0.4 s, all of it after the client has left
		},
		config: func(c *proxy.Config) { c.Timeouts.PrefillAbortGrace = 5 * time.Second },
	})
	t.Cleanup(b.open)
	conn := r.dialRaw()
	_, _ = io.WriteString(conn, raw(forms(prompt, 9)[0], "leaver"))
	<-b.reached
	_ = conn.Close()
	r.await("aware", func() bool { return r.server.Departed() == 1 })
	b.open()
	if rec := r.record(r.prefill[0], "leaver"); rec.Outcome != "ok" {
		t.Errorf("prefill leg ended %q, want ok: it had the time to finish", rec.Outcome)
	}
	r.released(r.decode[0], "leaver")
	r.expectNothingHeld()
}

// A prefill that should end soon is not cut just then: nobody would get its handle.
func TestPrefillThatShouldEndSoonMayFinish(t *testing.T) {
	r := newRig(t, rigOptions{
		engine: func(o *sim.Options) { o.PrefillTokensPerSecond = 50 }, // 0.4 s
		config: func(c *proxy.Config) { c.Timeouts.PrefillAbortGrace = 300 * time.Millisecond },
	})
	of := func(i int) string { return fmt.Sprintf("%d %s", i, prompt) } // none is in a cache
	for i := range 2 {
		c := call{prompt: of(i), tokens: 2}
		r.expectWhole(c, r.call(c)) // shows how long it takes
	}
	conn := r.dialRaw()
	_, _ = io.WriteString(conn, raw(call{prompt: of(2), tokens: 9}, "leaver"))
	r.await("begun", func() bool { return r.prefill[0].Used() > 0 })
	_ = conn.Close()
	if rec := r.record(r.prefill[0], "leaver"); rec.Outcome != "ok" {
		t.Errorf("prefill leg ended %q, want ok: it should have ended 0.1 s after the grace", rec.Outcome)
	}
	r.released(r.decode[0], "leaver")
	r.expectNothingHeld()
}

func TestLateAnswerOfPrefillIsReleased(t *testing.T) {
	arrived := make(chan struct{}, 1)
	p := newStub(t, func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		select {
		case arrived <- struct{}{}:
		default: // a canary, where the test fails
		}
		<-req.Context().Done() // xpyd has shut its sending side, but the answer is still on its way
		_, _ = io.WriteString(w, `{"choices":[],"kv_transfer_params":`+stubHandle+`}`)
	})
	r := newRig(t, rigOptions{
		router: p.asPrefill,
		config: func(c *proxy.Config) { c.Timeouts.PrefillAbortGrace = 20 * time.Millisecond },
	})
	conn := r.dialRaw()
	_, _ = io.WriteString(conn, raw(forms(prompt, 9)[0], "leaver"))
	<-arrived
	_ = conn.Close()
	r.released(r.decode[0], "leaver")
	r.await("counted", func() bool { return r.metric(`xpyd_kv_handles_total{end="released"}`) == 1 })
	r.await("counted as gone", func() bool { return r.metric(`xpyd_client_gone_total{phase="prefill"}`) == 1 })
}

// P was about to answer when its time ran out. The answer is not decoded, but its blocks are given
// back.
func TestAnswerOfPrefillBehindItsDeadline(t *testing.T) {
	together(t)
	for _, tc := range []struct {
		code string
		set  func(*proxy.Timeouts)
	}{
		{"deadline", func(o *proxy.Timeouts) { o.Request = 200 * time.Millisecond }},
		{"prefill_timeout", func(o *proxy.Timeouts) { o.Prefill = 200 * time.Millisecond }},
	} {
		for _, cut := range []string{"before the head", "in the body"} {
			t.Run(tc.code+"/"+cut, func(t *testing.T) {
				const whole = `{"choices":[],"kv_transfer_params":` + stubHandle + `}`
				p := newStub(t, func(w http.ResponseWriter, req *http.Request) {
					_, _ = io.Copy(io.Discard, req.Body)
					sent := 0
					if cut == "in the body" {
						sent, _ = io.WriteString(w, whole[:20])
						_ = http.NewResponseController(w).Flush()
					}
					<-req.Context().Done() // xpyd has shut its sending side
					_, _ = io.WriteString(w, whole[sent:])
				})
				r := newRig(t, rigOptions{router: p.asPrefill, config: func(c *proxy.Config) { tc.set(&c.Timeouts) }})
				// It is read on for a twentieth of a second, in which a busy machine may not write it.
				issued := func() float64 { return r.metric(`xpyd_kv_handles_issued_total`) }
				calls := 0.0
				for ; calls < 40 && issued() == 0; calls++ {
					a := r.call(forms(prompt, 9)[0], "X-Request-Id", "overdue")
					if a.status != 504 || a.code() != tc.code {
						t.Errorf("%d %s, want 504 %s", a.status, a.body, tc.code)
					}
				}
				r.released(r.decode[0], "overdue")
				r.await("counted", func() bool { return r.metric(`xpyd_kv_handles_total{end="released"}`) == issued() })
				if n := r.metric("xpyd_kv_orphans_total"); n > calls-issued() {
					t.Errorf("%v orphans of %v calls, of which %v gave a handle", n, calls, issued())
				}
			})
		}
	}
}

func TestDecodeIsReservedWhilePrefillWorks(t *testing.T) {
	b := newBarrier(sim.PhasePrefillStart, 0)
	r := newRig(t, rigOptions{engine: func(o *sim.Options) { o.Hook = b.hook }})
	t.Cleanup(b.open)
	c := forms(prompt, 4)[0]
	got := make(chan answer, 1)
	go func() { got <- r.call(c) }()
	<-b.reached
	if n := r.metric(`xpyd_in_flight{backend="` + r.decode[0].URL() + `",role="decode"}`); n != 1 {
		t.Errorf("%v requests in flight on decode during the prefill, want the reservation", n)
	}
	b.open()
	r.expectWhole(c, <-got)
	r.expectNothingHeld()
}

// panicky is a dialect that panics the first time it builds the body of one leg.
type panicky struct {
	kvparams.Dialect
	leg  string
	done atomic.Bool
}

func (d *panicky) once(leg string) {
	if d.leg == leg && d.done.CompareAndSwap(false, true) {
		panic("BUG: planted by a test")
	}
}

func (d *panicky) AppendPrefill(dst kvparams.Segments, r *kvparams.Request, leg *kvparams.Leg) kvparams.Segments {
	d.once("prefill")
	return d.Dialect.AppendPrefill(dst, r, leg)
}

func (d *panicky) AppendDecode(dst kvparams.Segments, r *kvparams.Request, h kvparams.Handle, leg *kvparams.Leg) kvparams.Segments {
	d.once("decode")
	return d.Dialect.AppendDecode(dst, r, h, leg)
}

// panickyPairing panics once in place of the first prefill body, when both legs are about to begin.
type panickyPairing struct {
	kvparams.Pairing
	panicked atomic.Bool
}

func (d *panickyPairing) AppendPrefill(dst kvparams.Segments, r *kvparams.Request, leg *kvparams.Leg) kvparams.Segments {
	if !d.panicked.Swap(true) {
		panic("BUG: planted by a test")
	}
	return d.Pairing.AppendPrefill(dst, r, leg)
}

func TestPanicGivesEverythingBack(t *testing.T) {
	together(t)
	nixl, _ := kvparams.Lookup("nixl")
	mooncake, _ := kvparams.Lookup("mooncake")
	for name, dialect := range map[string]kvparams.Dialect{
		"prefill": &panicky{Dialect: nixl, leg: "prefill"}, "decode": &panicky{Dialect: nixl, leg: "decode"},
		"prefill beside decode": &panickyPairing{Pairing: mooncake.(kvparams.Pairing)},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{dialect: dialect})
			c := forms(prompt, 4)[0]
			if a := r.call(c, "X-Request-Id", "panics"); a.status != 500 || a.code() != "internal_error" {
				t.Fatalf("%d %s %v", a.status, a.body, a.err)
			}
			r.await("counted", func() bool { return r.metric("xpyd_panics_total") == 1 })
			r.expectNothingHeld()
			if got := r.metric("xpyd_request_bytes_buffered"); got != 0 {
				t.Errorf("%v bytes still charged", got)
			}
			r.expectWhole(c, r.call(c))
		})
	}
}

// A whole decode pool that is away for a moment, because of a restart or a broken link, is back
// long before the lease ends. A release waits for it.
func TestReleaseWaitsForADecodeThatComesBack(t *testing.T) {
	b := newBarrier(sim.PhasePrefillEnding, 0)
	r := newRig(t, rigOptions{
		engine: func(o *sim.Options) { o.Hook = b.hook },
		router: func(c *router.Config) {
			c.Health.Interval, c.Health.SuspectInterval = 20*time.Millisecond, 20*time.Millisecond
		},
	})
	t.Cleanup(b.open)
	conn := r.dialRaw()
	_, _ = io.WriteString(conn, raw(forms(prompt, 9)[0], "leaver"))
	<-b.reached
	r.decode[0].Kill()
	_ = conn.Close()
	r.await("aware", func() bool { return r.server.Departed() == 1 })
	b.open()
	r.await("the only decode down", func() bool { return r.metric(`xpyd_backend_up`) == 1 })
	if err := r.decode[0].Restart(); err != nil {
		t.Fatal(err)
	}
	r.released(r.decode[0], "leaver")
	r.expectNothingHeld()
	if n := r.metric("xpyd_kv_orphans_total"); n != 0 {
		t.Errorf("%v handles left to their lease", n)
	}
}
