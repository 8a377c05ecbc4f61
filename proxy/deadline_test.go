package proxy_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"xpyd/engines/handoff"
	"xpyd/kvparams"
	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

func TestOneDeadlineForTheWholeRequest(t *testing.T) {
	together(t)
	const limit = 3 * time.Second // a busy machine may take a while to the first token
	tests := map[string]struct {
		fault     string
		committed bool
	}{
		"prefill hangs":           {fault: "[[P:hang]]"},
		"decode hangs":            {fault: "[[D:hang]]"},
		"the stream stalls":       {fault: "[[D:stall@4]]", committed: true},
		"the stream never pauses": {fault: "", committed: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{
				engine: func(o *sim.Options) { o.TokenLatency = 20 * time.Millisecond },
				config: func(c *proxy.Config) { c.Timeouts.Request = limit },
			})
			started := time.Now()
			a := r.call(call{chat: true, stream: true, prompt: prompt + tt.fault, tokens: 1000, more: `,"ignore_eos":true`})
			if took := time.Since(started); took < limit || took > limit+patience {
				t.Errorf("ended after %v, want %v", took, limit)
			}
			if a.code() != "deadline" {
				t.Fatalf("code %s, want deadline\n%s\n%s", a.code(), a.body, r.logs)
			}
			if tt.committed && (a.status != 200 || a.err == nil) || !tt.committed && (a.status != 504 || a.header.Get("X-Should-Retry") != "false") {
				t.Errorf("status %d, error of the transfer %v, header %v", a.status, a.err, a.header)
			}
			if n := r.metric("xpyd_backend_ejections_total"); n != 0 {
				t.Errorf("%v ejections: the request was too long, no backend failed", n)
			}
			if tt.fault != "[[P:hang]]" {
				r.expectNothingHeld()
			}
		})
	}
}

// busyOnce answers its first completion with 503 and the Retry-After, and notes when
// the second came.
func busyOnce(t *testing.T, after string) (d *stub, second *atomic.Int64) {
	t.Helper()
	var calls atomic.Int64
	second = &atomic.Int64{}
	started := time.Now()
	d = newStub(t, func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		if calls.Add(1) == 1 {
			w.Header().Set("Retry-After", after)
			http.Error(w, `{"error":{"message":"loading","code":503}}`, http.StatusServiceUnavailable)
			return
		}
		second.Store(int64(time.Since(started)))
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"cmpl-1","object":"text_completion","created":1,"model":"sim","choices":[{"index":0,"text":"abc","logprobs":null,"finish_reason":"stop"}],"usage":null}`)
	})
	return d, second
}

func TestRetryWaitsForRetryAfter(t *testing.T) {
	d, second := busyOnce(t, "1")
	r := newRig(t, rigOptions{router: d.asDecode})
	started := time.Now()
	if a := r.call(forms(prompt, 3)[0]); a.status != 200 || a.text() != "abc" {
		t.Fatalf("%d %s\n%s", a.status, a.body, r.logs)
	}
	if took := time.Since(started); took < time.Second || second.Load() == 0 {
		t.Errorf("the engine asked for 1 s and got %v", took)
	}
}

func TestRetryAfterBeyondTheQueueIsTheClients(t *testing.T) {
	const wait = 2 * patience
	d, second := busyOnce(t, "100")
	r := newRig(t, rigOptions{router: func(c *router.Config) { d.asDecode(c); c.Queue.Wait = wait }})
	started := time.Now()
	a := r.call(forms(prompt, 3)[0])
	if a.status != 503 || a.header.Get("Retry-After") != "100" || second.Load() != 0 {
		t.Fatalf("%d %v, second attempt after %v", a.status, a.header, time.Duration(second.Load()))
	}
	if took := time.Since(started); took >= wait {
		t.Errorf("told after %v", took)
	}
}

func TestAnotherBackendNeedNotWaitForRetryAfter(t *testing.T) {
	d, second := busyOnce(t, "60")
	r := newRig(t, rigOptions{decode: 2, router: func(c *router.Config) { c.Decode[1].URL = d.server.URL }})
	c := forms(prompt, 3)[0]
	started := time.Now()
	for range 6 { // the rotation would ask the busy one three times
		r.expectWhole(c, r.call(c))
	}
	if took := time.Since(started); took > 2*patience || second.Load() != 0 {
		t.Errorf("took %v; the busy engine was asked again after %v of the 60 s it wanted", took, time.Duration(second.Load()))
	}
}

func TestBackendIsEjectedWhenAllOfItsStreamsStall(t *testing.T) {
	r := newRig(t, rigOptions{
		decode: 2,
		engine: func(o *sim.Options) { o.TokenLatency = 20 * time.Millisecond },
		config: func(c *proxy.Config) { c.Timeouts.StreamIdle = 3 * time.Second },
	})
	stalls := call{chat: true, stream: true, prompt: prompt + "[[D:stall@4]]", tokens: 8}
	goesOn := call{chat: true, stream: true, prompt: prompt, tokens: 300} // longer than the silence that is allowed
	run := func(calls ...call) (answers []answer) {
		got := make([]chan answer, len(calls))
		before := r.metric("xpyd_leg_requests_total")
		for i, c := range calls { // in turn: one for each engine
			got[i] = make(chan answer, 1)
			go func() { got[i] <- r.call(c) }()
			r.await("started", func() bool {
				return r.metric(`xpyd_in_flight{`)+r.metric("xpyd_leg_requests_total")-before >= float64(2*(i+1))
			})
		}
		for _, g := range got {
			answers = append(answers, <-g)
		}
		return answers
	}
	got := run(goesOn, goesOn, stalls, stalls)
	for i, a := range got {
		if i >= 2 && a.code() != "decode_stalled" {
			t.Errorf("stalled stream %d: %s %.300s", i, a.code(), a.body)
		}
		if i < 2 {
			r.expectWhole(goesOn, a)
		}
	}
	if n := r.metric("xpyd_backend_ejections_total"); n != 0 {
		t.Fatalf("%v ejections although another stream of each engine went on\n%s", n, r.logs)
	}
	run(stalls)
	if n := r.metric("xpyd_backend_ejections_total"); n != 1 || !strings.Contains(r.metricsText(), `reason="stall"`) {
		t.Fatalf("%v ejections after a stall of all streams, want 1\n%s", n, r.logs)
	}
}

// One stream that stands still is no reason to eject an engine that completes other answers meanwhile, whole ones too.
func TestCompleteAnswersAreProgress(t *testing.T) {
	together(t)
	for name, ask := range map[string]func(*rig) answer{
		"whole":   func(r *rig) answer { return r.call(call{prompt: prompt, tokens: 3}) },
		"relayed": func(r *rig) answer { return r.post("/v1/embeddings", `{"model":"sim","input":"a"}`) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{
				decode: 2, router: inTurn,
				config: func(c *proxy.Config) { c.Timeouts.StreamIdle = time.Second },
			})
			got := make(chan answer, 1)
			go func() { got <- r.call(call{chat: true, stream: true, prompt: prompt + "[[D:stall@4]]", tokens: 8}) }()
			for answered := 0; ; answered++ {
				select {
				case a := <-got:
					if n := r.metric("xpyd_backend_ejections_total"); a.code() != "decode_stalled" || answered < 10 || n != 0 {
						t.Errorf("%s, %d complete answers meanwhile, %v ejections\n%s", a.code(), answered, n, r.logs)
					}
					return
				default:
				}
				if a := ask(r); a.status != 200 {
					t.Fatalf("%d %s", a.status, a.body)
				}
			}
		})
	}
}

func TestClientLimit(t *testing.T) {
	together(t)
	tests := map[string]struct {
		keys        []string
		first, same string
		other       string // another client; empty: none can be had from one address
	}{
		"of an address": {},
		"of a key":      {keys: []string{"key-a", "key-b"}, first: "Bearer key-a", same: "bearer key-a", other: "Bearer key-b"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBarrier(sim.PhaseDecodeReceived, 0)
			r := newRig(t, rigOptions{
				config: func(c *proxy.Config) { c.Limits.ClientInFlight, c.APIKeys = 1, tt.keys },
				engine: func(o *sim.Options) { o.Hook = b.hook },
			})
			t.Cleanup(b.open)
			auth := func(v string) []string {
				if v == "" {
					return nil
				}
				return []string{"Authorization", v}
			}
			held := make(chan answer, 1)
			c := forms(prompt, 3)[0]
			go func() { held <- r.call(c, auth(tt.first)...) }()
			r.reached(b)
			a := r.call(c, auth(tt.same)...)
			if a.status != 429 || a.code() != "client_limit" || a.header.Get("Retry-After") != "1" {
				t.Fatalf("%d %v %s", a.status, a.header, a.body)
			}
			if tt.other != "" {
				r.expectWhole(c, r.call(c, auth(tt.other)...))
			}
			b.open()
			r.expectWhole(c, r.soon(held))
			r.await("the place given back", func() bool { return r.call(c, auth(tt.same)...).status == 200 })
			if strings.Contains(r.logs.String(), "key-a") {
				t.Error("a key in the log")
			}
		})
	}
}

// The deadline of a request, or of its first event, comes while decode loads its blocks. Like a client that leaves, it gives
// them to nobody else before decode has ended.
func TestDeadlineLeavesTheBlocksToDecode(t *testing.T) {
	together(t)
	for name, tt := range map[string]struct {
		config func(c *proxy.Config)
		header []string
		code   string
	}{
		"the client's":         {header: []string{"X-Request-Timeout", "1"}, code: "deadline"},
		"timeouts.request":     {config: func(c *proxy.Config) { c.Timeouts.Request = time.Second }, code: "deadline"},
		"timeouts.first_event": {config: func(c *proxy.Config) { c.Timeouts.FirstEvent = time.Second }, code: "decode_timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{decode: 2, config: tt.config, engine: func(o *sim.Options) { o.TransferPerBlock = 2 * time.Second }})
			for _, c := range forms(prompt, 6) {
				if a := r.call(c, tt.header...); a.code() != tt.code || a.status != 504 {
					t.Errorf("%d %s, want 504 %s", a.status, a.body, tt.code)
				}
			}
			r.expectNothingHeld()
			r.expectNoneUsed()
			if l := r.prefill[0].Ledger(); l.StaleReads != 0 || l.FreedBy["reject"] != 0 {
				t.Errorf("%d reads of blocks that were free, freed by %v", l.StaleReads, l.FreedBy)
			}
			if n := r.metric(`xpyd_kv_handles_total{end="burnt"`); n != 4 {
				t.Errorf("%v handles burnt, want 4\n%s", n, r.metricsText())
			}
		})
	}
}

// Engines that die if a request is cut while they load its blocks are not cut at a deadline either, nor are those that lose
// blocks of their own.
func TestDeadlineCutsNoEngineThatMustNotBeCut(t *testing.T) {
	uncut := func(d kvparams.Dialect) bool {
		return kvparams.Dies(d) || handoff.GraceOf(d, 0, 0, 0).Finishes
	}
	eachConnectorThat(t, uncut, func(t *testing.T, d kvparams.Dialect) {
		b := newBarrier(sim.PhasePrefillStart, 0)
		together := d.Concurrent()
		r := newRig(t, rigOptions{dialect: d, engine: func(o *sim.Options) {
			if o.TransferPerBlock = time.Second; together {
				o.Hook = b.hook
			}
		}})
		t.Cleanup(b.open)
		c := forms(prompt, 5)[0]
		started := time.Now()
		if a := r.call(c, "X-Request-Timeout", "0.5"); a.status != 504 || a.code() != "deadline" { // a transfer takes longer
			t.Fatalf("%d %s", a.status, a.body)
		}
		if took := time.Since(started); took > 6*time.Second {
			t.Errorf("told after %v, and the deadline is half a second", took)
		}
		b.open()
		r.expectNothingHeld()
		r.expectNoneUsed()
		r.expectWhole(c, r.call(c))
	})
}

// Prefills that go on after a deadline, because they must not be cut, count for their client like those that it has left.
func TestPrefillsBehindADeadlineAreFew(t *testing.T) {
	uncut := func(d kvparams.Dialect) bool {
		return kvparams.Dies(d) || handoff.GraceOf(d, 0, 0, 0).Finishes
	}
	eachConnectorThat(t, uncut, func(t *testing.T, d kvparams.Dialect) {
		open := make(chan struct{})
		var begun atomic.Int32
		r := newRig(t, rigOptions{dialect: d, engine: func(o *sim.Options) {
			o.Hook = func(e sim.Event) {
				if e.Phase == sim.PhasePrefillStart {
					begun.Add(1)
					<-open
				}
			}
		}})
		for _, c := range forms(prompt, 5)[:4] {
			if a := r.call(c, "X-Request-Timeout", "0.3"); a.status != 504 {
				t.Errorf("%d %s", a.status, a.body)
			}
		}
		if n := begun.Load(); n > 2 {
			t.Errorf("%d prefills run for nobody, want 2", n)
		}
		close(open)
		r.expectNothingHeld()
		c := forms(prompt, 5)[0]
		r.expectWhole(c, r.call(c))
	})
}
