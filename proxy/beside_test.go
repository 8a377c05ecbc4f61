package proxy_test

import (
	"bufio"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"xpyd/kvparams"
	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

// Where both legs start at once, the head of the answer may go out while P still works. It says nothing
// of P's time then, and the race detector sees that it does not look at it.
func TestServerTimingBesideARunningPrefill(t *testing.T) {
	end := make(chan struct{})
	p := newStub(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		<-end
		_, _ = io.WriteString(w, `{"choices":[]}`)
	})
	d := newStub(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"text":"a","finish_reason":null}]}`+"\n\n")
		_ = http.NewResponseController(w).Flush()
		<-end
		<-q.Context().Done()
	})
	r := newRig(t, rigOptions{dialect: newPushDialect(), router: func(c *router.Config) {
		p.asPrefill(c)
		d.asDecode(c)
	}})
	resp, err := r.client.Post(r.url+"/v1/completions", "application/json", strings.NewReader(forms(prompt, 2)[1].body()))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = bufio.NewReader(resp.Body).ReadString('\n')
	if timing := resp.Header.Get("Server-Timing"); !strings.HasPrefix(timing, "queue;") || strings.Contains(timing, "prefill") {
		t.Errorf("Server-Timing %q", timing)
	}
	close(end)
	r.await("prefill ended", func() bool { return r.metric(`xpyd_in_flight{backend="`+p.server.URL) == 0 })
	_ = resp.Body.Close()
	r.await("logged", func() bool { return strings.Contains(r.logs.String(), `"message":"completion"`) })
	if strings.Contains(r.logs.String(), "handoff_ms") {
		t.Errorf("a handoff, though decode had the request before prefill answered\n%s", r.logs)
	}
}

// answeredPrefill waits until a prefill engine has answered its only leg, and returns it.
func (r *rig) answeredPrefill() (p *sim.Engine) {
	r.t.Helper()
	r.await("prefill has answered", func() bool {
		for _, e := range r.prefill {
			if r.metric(`xpyd_leg_requests_total{backend="`+e.URL()+`",leg="prefill",outcome="ok"`) == 1 {
				p = e
			}
		}
		return p != nil
	})
	return p
}

// A prefill engine may freeze after it has answered and before decode has the blocks. Decode waits for it
// then, and the request moves to other engines, as it does where the legs follow one another.
func TestDecodeThatWaitsForADownPrefillBesideItMoves(t *testing.T) {
	together(t)
	dialect, _ := kvparams.Lookup("mooncake")
	for _, c := range forms(prompt, 6) {
		t.Run(c.name(), func(t *testing.T) {
			b := newBarrier(sim.PhaseDecodeReceived, 0)
			r := newRig(t, rigOptions{prefill: 2, dialect: dialect, engine: func(o *sim.Options) { o.Hook = b.hook }})
			t.Cleanup(b.open)
			got := r.start(c)
			r.reached(b)
			p := r.answeredPrefill()
			p.Freeze()
			t.Cleanup(p.Thaw)
			b.open()
			r.server.FailChecks(p.URL())
			r.expectWhole(c, r.soon(got))
			if n := r.metric("xpyd_backend_ejections_total"); n != 0 {
				t.Errorf("%v ejections: decode waited for a prefill that is down", n)
			}
			p.Thaw()
			r.await("no blocks pinned", func() bool { return p.Ledger().Pinned == 0 })
		})
	}
}

// The prefill engine has left its pool by then, as one does that is taken out before it ends. It is checked as long as decode
// depends on it.
func TestDecodeThatWaitsForAPrefillThatHasLeftMoves(t *testing.T) {
	together(t)
	dialect, _ := kvparams.Lookup("mooncake")
	for _, c := range forms(prompt, 6)[:2] {
		t.Run(c.name(), func(t *testing.T) {
			b := newBarrier(sim.PhaseDecodeReceived, 0)
			var pools router.Config
			r := newRig(t, rigOptions{prefill: 2, dialect: dialect, engine: func(o *sim.Options) { o.Hook = b.hook },
				router: func(c *router.Config) {
					quickChecks(c)
					c.Health.Timeout = time.Second // a shorter one takes engines down that work
					pools = *c
				}})
			t.Cleanup(b.open)
			got := r.start(c)
			r.reached(b)
			p := r.answeredPrefill()
			pools.Prefill = slices.DeleteFunc(slices.Clone(pools.Prefill), func(e router.Entry) bool { return e.URL == p.URL() })
			if err := r.server.Reload(pools); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * pools.Health.SuspectInterval) // in which it would be forgotten
			p.Freeze()
			t.Cleanup(p.Thaw)
			b.open()
			r.expectWhole(c, r.soon(got))
			r.await("forgotten", func() bool { return strings.Contains(r.logs.String(), "backend has left") })
		})
	}
}

// A prefill engine has answered and left its pool, and the request waits for a slot of a decode engine because another one refused
// the connection. The prefill engine is checked all that time, so that decode does not wait for one that has died.
func TestPrefillThatHasLeftIsCheckedWhileDecodeQueues(t *testing.T) {
	dialect, _ := kvparams.Lookup("mooncake")
	b := newBarrier(sim.PhaseStreamEvent, 2)
	var pools router.Config
	r := newRig(t, rigOptions{decode: 2, dialect: dialect, engine: func(o *sim.Options) { o.Hook = b.hook }, router: func(c *router.Config) {
		quickChecks(c)
		c.Health.Timeout, c.Health.Fall = 10*time.Second, 1_000_000 // the one that refuses stays up
		c.DecodeMaxInFlight, c.Queue.Wait = 1, 2*patience
		pools = *c
	}})
	t.Cleanup(b.open)
	busy := r.start(forms("another prompt", 9)[1])
	<-b.reached
	idle := r.decode[0]
	if idle.Used() > 0 {
		idle = r.decode[1]
	}
	if err := idle.SetFault(sim.Fault{Kind: sim.FaultRefuse}); err != nil {
		t.Fatal(err)
	}
	c := forms(prompt, 6)[1]
	got := r.start(c)
	p := `backend="` + r.prefill[0].URL() + `"`
	r.await("queued, with its prefill done", func() bool {
		return r.metric(`xpyd_queued{role="decode"`) == 1 && r.metric(`xpyd_leg_requests_total{`+p+`,leg="prefill",outcome="ok"`) == 2
	})
	pools.Prefill = nil
	if err := r.server.Reload(pools); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * pools.Health.Interval) // in which it would be forgotten
	if strings.Contains(r.logs.String(), "backend has left") {
		t.Error("the prefill engine of a request that waits for decode has been forgotten")
	}
	b.open()
	r.expectWhole(forms("another prompt", 9)[1], r.soon(busy))
	r.expectWhole(c, r.soon(got))
	r.await("forgotten", func() bool { return strings.Contains(r.logs.String(), "backend has left") })
}

// An answer that is not a stream gives no sign that decode has the blocks. Once the prefill's answer is kv.lease old, decode
// has them, and a prefill engine that goes down then costs nothing. With the other connectors whose legs start together, decode
// ends such a wait itself.
func TestWholeAnswerBesideAPrefillThatGoesDownIsLeftAlone(t *testing.T) {
	together(t)
	for name, lease := range map[string]time.Duration{"mooncake": time.Millisecond, "offloading-p2p": time.Hour} {
		t.Run(name, func(t *testing.T) {
			dialect, _ := kvparams.Lookup(name)
			b := newBarrier(sim.PhaseDecodeReceived, 0)
			r := newRig(t, rigOptions{prefill: 2, dialect: dialect, engine: func(o *sim.Options) { o.Hook = b.hook },
				config: func(c *proxy.Config) { c.KV.Lease, c.KV.LeaseMargin = lease, 0 }})
			t.Cleanup(b.open)
			c := forms(prompt, 6)[0]
			got := r.start(c)
			r.reached(b)
			p := r.answeredPrefill()
			time.Sleep(10 * time.Millisecond) // the lease of mooncake's is over
			r.server.FailChecks(p.URL())
			b.open()
			r.expectWhole(c, r.soon(got))
			if n := r.metric(`xpyd_leg_requests_total{backend="` + r.decode[0].URL() + `",leg="decode"`); n != 1 {
				t.Errorf("%v decode legs", n)
			}
		})
	}
}

// A client that has closed its sending side gets 499 although decode has answered. The prefill leg may end at that
// moment, and then gives the request's bytes back. The race detector sees that nothing looks at these any more.
func TestRefusalBesideAPrefillThatEnds(t *testing.T) {
	prefilled, decoded := make(chan struct{}), make(chan time.Duration)
	begun := make(chan struct{}, 2)
	p := newStub(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		begun <- struct{}{}
		<-prefilled
		_, _ = io.WriteString(w, `{"choices":[]}`)
	})
	d := newStub(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		begun <- struct{}{}
		wait := <-decoded
		_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"text":"a","finish_reason":null}]}`+"\n\n")
		_ = http.NewResponseController(w).Flush()
		for from := time.Now(); time.Since(from) < wait; {
			runtime.Gosched()
		}
		prefilled <- struct{}{}
		<-q.Context().Done()
	})
	r := newRig(t, rigOptions{dialect: newPushDialect(), before: func(r *rig) { r.server.WatchClosely() }, config: func(c *proxy.Config) {
		c.Timeouts.PrefillAbortGrace, c.Timeouts.DecodeAbortGrace = time.Minute, time.Minute
	}, router: func(c *router.Config) {
		p.asPrefill(c)
		d.asDecode(c)
	}})
	for i := range 200 {
		conn := r.dialRaw()
		_, _ = io.WriteString(conn, raw(forms(prompt, 2)[1], "half"))
		<-begun
		<-begun
		_ = conn.CloseWrite()
		r.await("aware", func() bool { return r.server.Departed() == 1 })
		decoded <- time.Duration(i%40) * 10 * time.Microsecond // the two may meet at any of these
		got, err := io.ReadAll(conn)
		if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 499 ") || !strings.Contains(string(got), "Connection: close\r\n") {
			t.Fatalf("%v %q", err, got)
		}
	}
	r.expectNothingHeld()
}
