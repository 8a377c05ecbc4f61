package proxy_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

// only holds a barrier on one engine.
func (b *barrier) only(engine string) func(sim.Event) {
	return func(e sim.Event) {
		if e.Engine == engine {
			b.hook(e)
		}
	}
}

func TestLegsMoveWhenTheirBackendGoesDown(t *testing.T) {
	together(t)
	for _, tc := range []struct {
		name   string
		engine string
		phase  sim.Phase
	}{
		{"prefill", "prefill-0", sim.PhasePrefillStart},
		{"decode", "decode-0", sim.PhaseDecodeReceived},
	} {
		for _, c := range forms(prompt, 6) {
			t.Run(tc.name+"/"+c.name(), func(t *testing.T) {
				b := newBarrier(tc.phase, 0)
				r := newRig(t, rigOptions{prefill: 2, decode: 2, router: inTurn, engine: func(o *sim.Options) { o.Hook = b.only(tc.engine) }})
				t.Cleanup(b.open)
				got := make(chan answer, 2)
				for range 2 { // one of the two meets the engine that hangs
					go func() { got <- r.call(c) }()
				}
				<-b.reached
				url := map[string]string{"prefill": r.prefill[0].URL(), "decode": r.decode[0].URL()}[tc.name]
				r.server.FailChecks(url)
				r.expectWhole(c, r.soon(got))
				r.expectWhole(c, r.soon(got))
				b.open()
				r.expectNothingHeld()
			})
		}
	}
}

// The checks of an engine get no answer in time while it works. If it is the only one, its legs go on, and otherwise they
// move, also if the other one comes up later.
func TestOnlyEngineWhoseChecksHangKeepsItsLegs(t *testing.T) {
	together(t)
	for _, role := range []string{"prefill", "decode"} {
		for _, others := range []string{"none", "up", "up later"} {
			for _, c := range forms(prompt, 6)[:2] {
				t.Run(role+", "+others+", "+c.name(), func(t *testing.T) {
					b := newBarrier(map[string]sim.Phase{"prefill": sim.PhasePrefillStart, "decode": sim.PhaseDecodeReceived}[role], 0)
					r := newRig(t, rigOptions{prefill: 2, decode: 2, router: inTurn, config: noDecodeAlone, engine: func(o *sim.Options) { o.Hook = b.only(role + "-0") }})
					t.Cleanup(b.open)
					r.server.StopChecks()
					engines := map[string][]*sim.Engine{"prefill": r.prefill, "decode": r.decode}[role]
					if others != "up" {
						r.server.FailChecks(engines[1].URL())
					}
					got := make(chan answer, 2)
					requests := 1
					if others == "up" {
						requests = 2 // one of them meets the engine that hangs
					}
					for range requests {
						go func() { got <- r.call(c) }()
					}
					<-b.reached
					r.server.HangChecks(engines[0].URL())
					moves := 0
					switch others {
					case "none":
						b.open()
					case "up later":
						r.server.PassChecks(engines[1].URL())
						moves = 1
					case "up":
						moves = 1
					}
					for range requests {
						a := r.soon(got)
						r.expectWhole(c, a)
						if path := a.header.Get("X-Xpyd-Path"); path != "disaggregated" {
							t.Errorf("path %s", path)
						}
					}
					if n := r.metric(fmt.Sprintf(`xpyd_leg_requests_total{backend="%s",leg="%s"`, engines[1].URL(), role)); n != float64(requests-1+moves) {
						t.Errorf("the other engine had %v legs", n)
					}
					b.open()
					r.expectNothingHeld()
				})
			}
		}
	}
}

// A check that cannot connect takes P down while P answers. Its blocks are given back.
func TestPrefillThatAnswersAsItGoesDown(t *testing.T) {
	together(t)
	for _, c := range forms(prompt, 6) {
		t.Run(c.name(), func(t *testing.T) {
			b := newBarrier(sim.PhasePrefillEnding, 0)
			patient := func(r *rig) { r.server.WaitForLateAnswers() }
			r := newRig(t, rigOptions{prefill: 2, before: patient, engine: func(o *sim.Options) { o.Hook = b.hook }})
			t.Cleanup(b.open)
			got := make(chan answer, 1)
			go func() { got <- r.call(c) }()
			<-b.reached // the blocks are pinned
			r.server.FailChecks(r.prefill[0].URL())
			r.server.FailChecks(r.prefill[1].URL())
			b.open()
			r.expectWhole(c, r.soon(got))
			r.expectNothingHeld()
			r.await("given back once", func() bool { return r.metric(`xpyd_kv_handles_total{end="released"}`) == 1 })
		})
	}
}

func TestDecodeThatHangsOnADownPrefillMoves(t *testing.T) {
	together(t)
	for _, c := range forms(prompt, 6) {
		t.Run(c.name(), func(t *testing.T) {
			b := newBarrier(sim.PhaseDecodeReceived, 0)
			r := newRig(t, rigOptions{prefill: 2, engine: func(o *sim.Options) { o.Hook = b.hook }})
			t.Cleanup(b.open)
			got := make(chan answer, 1)
			go func() { got <- r.call(c) }()
			met := <-b.reached
			p := r.prefill[0]
			if recs := p.Requests(); len(recs) == 0 || recs[0].RequestID != met.RequestID {
				p = r.prefill[1]
			}
			p.Freeze()
			t.Cleanup(p.Thaw)
			b.open()
			r.await("the load begun", func() bool { return r.metric(`xpyd_in_flight{backend="`+r.decode[0].URL()) == 1 })
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

// In the last round an answer that is not streamed waits for a prefill engine that is frozen, but
// not until its lease ends, because decode would then read another prompt's blocks.
func TestLastRoundWaitsForItsPrefillWithinTheLease(t *testing.T) {
	alone(t) // what it is about must happen within the lease.
	for _, back := range []bool{true, false} {
		t.Run(fmt.Sprintf("back in time=%v", back), func(t *testing.T) {
			t.Parallel()
			lease, margin, tokens := 4*time.Second, time.Second, 250
			if back { // a busy machine takes a while to see the engine up again
				lease, margin, tokens = 6*time.Second, 2*time.Second, 350
			}
			b := newBarrier(sim.PhaseDecodeReceived, 0)
			r := newRig(t, rigOptions{
				config: func(c *proxy.Config) { c.KV.Lease, c.KV.LeaseMargin = lease, margin },
				router: quickChecks,
				engine: func(o *sim.Options) {
					if o.Lease = lease; o.Role == sim.RoleDecode {
						o.Hook, o.TokenLatency = b.hook, 20*time.Millisecond
					}
				},
			})
			p := r.prefill[0]
			t.Cleanup(p.Thaw)
			t.Cleanup(b.open)
			if err := r.decode[0].SetFault(sim.Fault{Kind: sim.FaultRST, Leg: "D", Count: 1}); err != nil {
				t.Fatal(err)
			}
			c := call{prompt: prompt, tokens: tokens, more: `,"ignore_eos":true`} // takes longer than the lease
			got := make(chan answer, 1)
			go func() { got <- r.call(c) }()
			select {
			case <-b.reached: // of the second round: the first one is reset before
			case a := <-got:
				t.Fatalf("%d %s before decode had the second round\n%s", a.status, a.body, r.logs)
			}
			issued := time.Now()
			p.Freeze()
			b.open()
			r.server.FailChecks(p.URL()) // real checks quick enough for it take engines down that only are slow
			if back {
				p.Thaw()
				r.expectWhole(c, r.soon(got))
				return
			}
			time.Sleep(time.Until(issued.Add(lease + 100*time.Millisecond)))
			p.Thaw()
			if a := r.soon(got); a.status != 502 || a.code() != "decode_failed" {
				t.Errorf("%d %s\n%s", a.status, a.body, r.logs)
			}
		})
	}
}

// The check takes an engine down at the moment when D's first token is read. The leg has produced
// something, so its stream goes on.
func TestFirstTokenAndDownAtOnce(t *testing.T) {
	together(t)
	for _, role := range []router.Role{router.Prefill, router.Decode} {
		t.Run(role.String(), func(t *testing.T) {
			first := make(chan struct{})
			d := newStub(t, func(w http.ResponseWriter, req *http.Request) {
				_, _ = io.Copy(io.Discard, req.Body)
				w.Header().Set("Content-Type", "text/event-stream")
				for i := range 3 {
					_, _ = fmt.Fprintf(w, `data: {"id":"c","object":"text_completion","created":1,"model":"sim","choices":[{"index":0,"text":"t%d","finish_reason":%s}]}`+"\n\n", i, map[bool]string{true: `"stop"`, false: "null"}[i == 2])
					w.(http.Flusher).Flush()
					if i == 0 {
						close(first)
					}
					time.Sleep(100 * time.Millisecond)
				}
				_, _ = io.WriteString(w, "data: [DONE]\n\n")
			})
			var once sync.Once
			r := newRig(t, rigOptions{router: d.asDecode, before: func(r *rig) {
				r.server.OnNewBuffer(func() { // the head is here, and the event comes with it or soon after
					once.Do(func() {
						<-first
						r.server.FailChecks(map[bool]string{true: r.prefill[0].URL(), false: d.server.URL}[role == router.Prefill])
					})
				})
			}})
			a := r.call(call{stream: true, prompt: prompt, tokens: 3})
			if a.text() != "t0t1t2" || !strings.HasSuffix(a.body, "data: [DONE]\n\n") {
				t.Errorf("%d %v %s\n%s", a.status, a.err, a.body, r.logs)
			}
		})
	}
}

// Both prefill engines restart, one after the other, while a long answer that is not streamed is
// made from the blocks of the first. Nothing shows that decode has them.
func TestWholeAnswerOutlivesItsPrefills(t *testing.T) {
	restarted := make(chan struct{}) // decode answers only then, however long a busy machine takes
	r := newRig(t, rigOptions{prefill: 2, router: quickChecks, engine: func(o *sim.Options) {
		o.Hook = func(e sim.Event) {
			if e.Phase == sim.PhaseDecodeLoaded {
				<-restarted
			}
		}
	}})
	answerNow := sync.OnceFunc(func() { close(restarted) })
	t.Cleanup(answerNow)
	c := call{prompt: prompt, tokens: 100, more: `,"ignore_eos":true`}
	got := make(chan answer, 1)
	go func() { got <- r.call(c) }()
	for i := range 2 {
		r.await("blocks pulled", func() bool {
			return len(legs(r.prefill, "prefill")) == i+1 && r.prefill[0].Ledger().Pinned+r.prefill[1].Ledger().Pinned == 0
		})
		for _, p := range r.prefill { // it may be either; what is dead already stays dead
			if recs := p.Requests(); len(recs) == 0 || p.Ledger().FreedBy["read"] == 0 {
				continue
			}
			p.Kill()
			r.await("down", func() bool { return r.metric(`xpyd_backend_up{backend="`+p.URL()) == 0 })
			if err := p.Restart(); err != nil {
				t.Fatal(err)
			}
			r.await("up", func() bool { return r.metric(`xpyd_backend_up{backend="`+p.URL()) == 1 })
		}
	}
	answerNow()
	r.expectWhole(c, r.soon(got))
}

func TestStreamThatHasBegunStaysWhenItsBackendGoesDown(t *testing.T) {
	b := newBarrier(sim.PhaseStreamEvent, 3)
	r := newRig(t, rigOptions{engine: func(o *sim.Options) { o.Hook = b.hook }})
	t.Cleanup(b.open)
	c := forms(prompt, 9)[1]
	got := make(chan answer, 1)
	go func() { got <- r.call(c) }()
	r.reached(b)
	r.server.FailChecks(r.decode[0].URL())
	b.open()
	r.expectWhole(c, <-got)
}

func TestAllDownIsSaidAtOnce(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.server.FailChecks(r.decode[0].URL())
	a := r.call(forms(prompt, 3)[0])
	if a.status != 503 || a.code() != "decode_unavailable" || a.header.Get("Retry-After") == "" {
		t.Fatalf("%d %s %v", a.status, a.body, a.header)
	}
	if n := len(r.prefill[0].Requests()); n != 0 {
		t.Errorf("prefilled %d times what nobody can decode", n)
	}
}

func TestFailingDecodeIsLeftAlone(t *testing.T) {
	r := newRig(t, rigOptions{decode: 2})
	if err := r.decode[0].SetFault(sim.Fault{Kind: sim.FaultStatus, Value: 500, Leg: "D"}); err != nil {
		t.Fatal(err)
	}
	c := forms(prompt, 3)[0]
	for range 20 {
		r.expectWhole(c, r.call(c))
	}
	// Three failed transfers ban the only pair it is in.
	if n := len(legs(r.decode[:1], "decode")); n > 4 {
		t.Errorf("the failing engine was asked %d times in 20 requests", n)
	}
	r.expectNothingHeld()
}

func TestFailingPrefillIsEjected(t *testing.T) {
	r := newRig(t, rigOptions{prefill: 2})
	if err := r.prefill[0].SetFault(sim.Fault{Kind: sim.FaultRST, Leg: "P"}); err != nil {
		t.Fatal(err)
	}
	c := forms(prompt, 3)[0]
	for range 20 {
		r.expectWhole(c, r.call(c))
	}
	if n := r.metric(`xpyd_backend_ejections_total{backend="` + r.prefill[0].URL()); n != 1 {
		t.Errorf("%v ejections, want 1", n)
	}
	if !strings.Contains(r.logs.String(), "backend ejected") {
		t.Error("not in the log")
	}
	if n := r.metric("xpyd_backend_ejected"); n != 1 {
		t.Errorf("%v ejected by the gauge, want 1", n)
	}
	if !strings.Contains(r.logs.String(), `"message":"prefill leg failed`) || strings.Contains(r.logs.String(), `"error":""`) {
		t.Errorf("a leg that failed and was mended is not explained\n%s", r.logs)
	}
	const why = "legs failed in a row; its last error: a leg failed: prefill backend broke off the connection"
	if s := r.status(); !s.noticed("warn", " UTC: "+why) || !strings.Contains(r.adminText("/events"), `"reason": "`+why) {
		t.Errorf("operators do not see why: %+v", s.Notices)
	}
	var pools map[string][]struct {
		URL        string
		EjectedFor float64 `json:"ejected_for"`
		Reason     string  `json:"eject_reason"`
	}
	if err := json.Unmarshal([]byte(r.adminText("/pools")), &pools); err != nil {
		t.Fatal(err)
	}
	if p := pools["prefill"]; len(p) != 2 || p[0].EjectedFor <= 0 || p[0].EjectedFor > 30 || p[0].Reason != "failures" || p[1].EjectedFor != 0 {
		t.Errorf("pools: %+v", pools)
	}
}

func TestRestartedPrefillIsForgiven(t *testing.T) {
	r := newRig(t, rigOptions{})
	c := forms(prompt, 3)[0]
	r.expectWhole(c, r.call(c))
	if err := r.prefill[0].Restart(); err != nil {
		t.Fatal(err)
	}
	r.expectWhole(c, r.call(c))
	r.await("noticed", func() bool { return strings.Contains(r.logs.String(), "prefill engine has restarted") })
}

func TestRefusedKeyEjects(t *testing.T) {
	r := newRig(t, rigOptions{
		prefill: 2,
		engine: func(o *sim.Options) {
			if o.Name == "prefill-0" {
				o.APIKey = "another-key"
			} else {
				o.APIKey = "engine-key"
			}
		},
		config: func(c *proxy.Config) { c.BackendAPIKey = "engine-key" },
	})
	c := forms(prompt, 3)[0]
	for range 4 {
		r.expectWhole(c, r.call(c))
	}
	if n := r.metric(`xpyd_backend_ejections_total{backend="` + r.prefill[0].URL() + `",reason="auth"`); n != 1 {
		t.Errorf("%v ejections for a refused key, want 1", n)
	}
}

func TestManyLegsMoveAtOnce(t *testing.T) {
	together(t)
	for _, how := range []string{"frozen", "killed"} {
		t.Run(how, func(t *testing.T) {
			r := newRig(t, rigOptions{prefill: 2})
			if err := r.prefill[0].SetFault(sim.Fault{Kind: sim.FaultHang, Leg: "P"}); err != nil {
				t.Fatal(err)
			}
			c := forms(prompt, 4)[0]
			const n = 24 // half of them wait on the engine that fails: more than may retry at once
			got := make(chan answer, n)
			for range n {
				go func() { got <- r.call(c) }()
			}
			r.await("waiting", func() bool { return r.metric(`xpyd_in_flight{backend="`+r.prefill[0].URL()) == n/2 })
			if how == "killed" {
				r.prefill[0].Kill()
			} else {
				r.server.FailChecks(r.prefill[0].URL())
			}
			for range n {
				r.expectWhole(c, <-got)
			}
			r.expectNothingHeld()
		})
	}
}

func TestFullBackends(t *testing.T) {
	together(t)
	for _, tc := range []struct {
		name string
		line router.Line
		code string // of a second request while the first holds the only slot; "" if it waits for the slot
	}{
		{"no queue", router.Line{}, "overloaded"},
		{"waited too long", router.Line{Length: 1, Wait: 30 * time.Millisecond}, "overloaded"},
		{"its turn comes", router.Line{Length: 1, Wait: time.Minute}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBarrier(sim.PhaseDecodeReceived, 0)
			r := newRig(t, rigOptions{
				engine: func(o *sim.Options) { o.Hook = b.hook },
				router: func(c *router.Config) { c.DecodeMaxInFlight, c.Queue = 1, tc.line },
			})
			t.Cleanup(b.open)
			c := forms(prompt, 4)[0]
			got := make(chan answer, 2)
			go func() { got <- r.call(c) }()
			<-b.reached
			if tc.code == "" {
				go func() { got <- r.call(c) }()
				r.await("counted", func() bool { return r.metric(`xpyd_queued{role="decode"}`) == 1 })
				b.open()
				r.expectWhole(c, r.soon(got))
				r.expectWhole(c, r.soon(got))
				if n := r.metric(`xpyd_queue_seconds_count{role="decode"}`); n != 1 {
					t.Errorf("%v waits observed, want that of the second request", n)
				}
				if n := r.metric("xpyd_queued"); n != 0 {
					t.Errorf("%v queued at the end", n)
				}
				return
			}
			a := r.call(c)
			if a.status != 503 || a.code() != tc.code || !strings.Contains(a.body, "decode_max_in_flight") || a.header.Get("Retry-After") == "" {
				t.Errorf("%d %s", a.status, a.body)
			}
			b.open()
			r.expectWhole(c, <-got)
		})
	}
}

func TestClientLeavesTheQueue(t *testing.T) {
	b := newBarrier(sim.PhaseDecodeReceived, 0)
	r := newRig(t, rigOptions{
		engine: func(o *sim.Options) { o.Hook = b.hook },
		router: func(c *router.Config) { c.DecodeMaxInFlight, c.Queue = 1, router.Line{Length: 9, Wait: time.Minute} },
	})
	t.Cleanup(b.open)
	c := forms(prompt, 4)[0]
	got := make(chan answer, 1)
	go func() { got <- r.call(c) }()
	<-b.reached
	conn := r.dialRaw()
	_, _ = io.WriteString(conn, raw(c, "queued"))
	r.await("read", func() bool { return r.server.Live() == 2 })
	_ = conn.Close()
	r.await("counted", func() bool { return r.metric(`xpyd_client_gone_total{phase="admitted"}`) == 1 })
	b.open()
	r.expectWhole(c, <-got)
}

// Legs fail by the hundred while an engine's port is closed for a moment. The checks that they start are not so many that
// the engine goes down.
func TestClosedPortForAMomentTakesNoEngineDown(t *testing.T) {
	together(t)
	for _, role := range []string{"prefill", "decode"} {
		t.Run(role, func(t *testing.T) {
			r := newRig(t, rigOptions{config: noDecodeAlone, router: func(c *router.Config) {
				c.Health.EjectAfter, c.Health.Interval, c.Health.SuspectInterval = 0, time.Hour, time.Hour
			}})
			e := map[string]*sim.Engine{"prefill": r.prefill[0], "decode": r.decode[0]}[role]
			if err := e.SetFault(sim.Fault{Kind: sim.FaultRefuse}); err != nil {
				t.Fatal(err)
			}
			c := forms(prompt, 3)[1]
			for range 300 {
				if a := r.call(c); a.status == 200 {
					t.Fatal("no leg failed: the test proves nothing")
				}
				if state := r.pooled(e).State; state != "up" {
					t.Fatalf("it is %s", state)
				}
			}
			if err := e.SetFault(sim.Fault{}); err != nil {
				t.Fatal(err)
			}
			r.expectWhole(c, r.call(c))
		})
	}
}

// An engine that stays away goes down, although no check was due.
func TestFailedLegsStartChecks(t *testing.T) {
	r := newRig(t, rigOptions{router: func(c *router.Config) {
		c.Health.Interval, c.Health.SuspectInterval = time.Hour, 10*time.Millisecond
	}})
	if err := r.decode[0].SetFault(sim.Fault{Kind: sim.FaultRefuse}); err != nil {
		t.Fatal(err)
	}
	r.await("down", func() bool {
		r.call(forms(prompt, 3)[1], "X-Request-Timeout", "0.5")
		return r.pooled(r.decode[0]).State == "down"
	})
}
