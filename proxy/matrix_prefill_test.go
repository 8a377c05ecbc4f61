package proxy_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"xpyd/engines/handoff"
	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

// The rows T1 to T9 of the fault matrix, in which the prefill leg fails. tools/faults names the
// tests of each row.

// wholeAnswer is what a stub decode engine says to any completion that is not streamed.
const wholeAnswer = `{"id":"cmpl-1","object":"text_completion","created":1,"model":"sim","choices":[{"index":0,"text":"abc","logprobs":null,"finish_reason":"stop"}],"usage":null}`

func TestDialThatNobodyAnswers(t *testing.T) {
	alone(t)
	best := time.Hour // of some, because a busy machine can only delay
	for i := 0; i < 8 && best > 1900*time.Millisecond; i++ {
		best = min(best, slowestBesideAHole(t))
	}
	if best < time.Second || best > 1900*time.Millisecond {
		t.Errorf("the slowest took %v, want timeouts.dial (1 s) and what one prefill takes", best)
	}
	r, hole := besideAHole(t)
	r.server.StopChecks() // they would take it down on a busy machine
	c := forms(prompt, 4)[0]
	for range 2 { // one of them meets it, however long that takes
		r.expectWhole(c, r.call(c))
	}
	if n := r.legOutcome(hole, "prefill", "refused"); n != 1 {
		t.Errorf("%v dials to it by two requests in turn, want 1", n)
	}
}

// besideAHole has two prefill engines, to one of which nobody answers the dials.
func besideAHole(t *testing.T) (r *rig, hole string) {
	t.Helper()
	hole = "http://" + blackhole(t)
	return newRig(t, rigOptions{router: func(c *router.Config) {
		inTurn(c)
		c.Prefill = append(router.MustEntries(hole), c.Prefill...)
	}, config: func(c *proxy.Config) { c.Timeouts.Dial = proxy.DefaultConfig().Timeouts.Dial }}), hole
}

// slowestBesideAHole is the longest that one of some requests takes if nobody answers the dials to one of two
// prefill engines.
func slowestBesideAHole(t *testing.T) (longest time.Duration) {
	t.Helper()
	r, hole := besideAHole(t)
	const n = 12 // half of them meet it
	type timed struct {
		answer
		took time.Duration
	}
	c := forms(prompt, 4)[0]
	got := make(chan timed, n)
	for range n {
		go func() {
			start := time.Now()
			a := r.call(c)
			got <- timed{a, time.Since(start)}
		}()
	}
	for range n {
		a := <-got
		r.expectWhole(c, a.answer)
		longest = max(longest, a.took)
	}
	if n := r.legOutcome(hole, "prefill", "refused"); n < 5 {
		t.Errorf("%v dials failed: the test proves nothing", n)
	}
	if n := r.metric(`xpyd_backend_ejections_total{backend="` + hole); n != 1 {
		t.Errorf("%v ejections after five dials that failed, want 1", n)
	}
	r.expectNothingHeld()
	return longest
}

// The engines close an idle connection after some milliseconds, and the proxy would keep it, so
// requests meet closing connections all the time.
func TestEnginesThatCloseIdleConnectionsSooner(t *testing.T) {
	const clients, keep = 64, 20 * time.Millisecond
	var issued atomic.Int64
	var seen sync.Map // handles that reached D
	p := newStub(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		handle := strings.Replace(stubHandle, `"r"`, fmt.Sprintf(`"r%d"`, issued.Add(1)), 1)
		_, _ = io.WriteString(w, `{"choices":[],"kv_transfer_params":`+handle+`}`)
	})
	d := newStub(t, func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		_, rest, _ := strings.Cut(string(body), `"remote_request_id":"`)
		handle, _, _ := strings.Cut(rest, `"`)
		if _, twice := seen.LoadOrStore(handle, true); twice || handle == "" {
			t.Errorf("handle %q reached decode twice, or never was one: %s %s", handle, q.Header.Get("X-Request-Id"), body)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, wholeAnswer)
	})
	go func() {
		for range d.releases { // of handles whose connection had been closed
		}
	}()
	t.Cleanup(func() { close(d.releases) })
	r := newRig(t, rigOptions{router: func(c *router.Config) {
		c.Prefill, c.Decode = router.MustEntries(p.impatient(t, keep)), router.MustEntries(d.impatient(t, keep))
		c.Health.EjectAfter = 0
	}})
	r.server.StopChecks() // a busy machine fails them
	r.client.Transport.(*http.Transport).MaxIdleConnsPerHost = clients
	c := forms(prompt, 1)[0]
	var left atomic.Int64
	left.Store(idleRequests)
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if a := r.call(c); a.err != nil || a.status != 200 || a.body != wholeAnswer {
					t.Errorf("%d %s %v", a.status, a.body, a.err)
				}
				time.Sleep(keep/2 + rand.N(keep)) // around the time after which the engines close
			}
		})
	}
	wg.Wait()
	t.Logf("%d prefills for %d requests", issued.Load(), idleRequests)
	for line := range strings.Lines(r.logs.String()) {
		if t.Failed() && strings.Contains(line, `"level":"warn"`) {
			t.Log(line)
		}
	}
}

// impatient serves the stub at another address, where idle connections are closed after keep. As
// with uvicorn, a connection is idle only after an answer.
func (s *stub) impatient(t *testing.T, keep time.Duration) (url string) {
	t.Helper()
	server := httptest.NewUnstartedServer(s.server.Config.Handler)
	server.Config.IdleTimeout = keep
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

func TestPrefillThatHangsUpIsTriedOnceElsewhere(t *testing.T) {
	together(t)
	for _, kind := range []string{sim.FaultFIN, sim.FaultRST} {
		for _, faulty := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/%d of 3", kind, faulty), func(t *testing.T) {
				r := newRig(t, rigOptions{prefill: 3, config: func(c *proxy.Config) {
					c.Timeouts.UpstreamIdle = time.Nanosecond // every connection is a fresh one
					c.DecodeOnly.Enabled = false
				}})
				for _, e := range r.prefill[:faulty] {
					if err := e.SetFault(sim.Fault{Kind: kind, Leg: "P"}); err != nil {
						t.Fatal(err)
					}
				}
				c := forms(prompt, 4)[0]
				for i := range 3 {
					id := fmt.Sprint("try", i)
					a := r.call(c, "X-Request-Id", id)
					if faulty == 3 {
						if a.status != 502 || a.code() != "prefill_failed" {
							t.Fatalf("%d %s", a.status, a.body)
						}
					} else {
						r.expectWhole(c, a)
					}
					asked := func() (total int) {
						for _, e := range r.prefill {
							n := len(legsOf(e, id))
							total += n
							if n > 1 {
								t.Errorf("%s was asked %d times", e.Name(), n)
							}
						}
						return total
					}
					if faulty == 3 { // an engine notes a request that it hung up on a moment later
						r.await("tried on a second engine", func() bool { return asked() >= 2 })
					}
					if n := asked(); n > 2 {
						t.Errorf("%d prefill engines were asked, want one try more at most\n%s", n, r.logs)
					}
				}
				r.expectNothingHeld()
			})
		}
	}
}

func TestPrefillRetriesShareTheBudget(t *testing.T) {
	const requests, budget = 6, 3
	hold := make(chan struct{})
	open := sync.OnceFunc(func() { close(hold) })
	var failed sync.Map // ids that have had their first try
	var running, most, hungUp atomic.Int32
	complete := func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		id, _, _ := strings.Cut(q.Header.Get("X-Request-Id"), "-")
		if !strings.HasPrefix(id, "retry") {
			return
		}
		if _, again := failed.LoadOrStore(id, true); !again {
			hungUp.Add(1)
			panic(http.ErrAbortHandler)
		}
		n := running.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-hold
		running.Add(-1)
		_, _ = io.WriteString(w, `{"choices":[],"kv_transfer_params":`+stubHandle+`}`)
	}
	p, q := newStub(t, complete), newStub(t, complete)
	d := newStub(t, func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, wholeAnswer)
	})
	r := newRig(t, rigOptions{router: func(c *router.Config) {
		c.Prefill, c.Decode = router.MustEntries(p.server.URL, q.server.URL), router.MustEntries(d.server.URL)
	}, prefill: 2})
	t.Cleanup(open)
	got := make(chan answer, requests)
	for i := range requests {
		go func() { got <- r.call(forms(prompt, 3)[0], "X-Request-Id", fmt.Sprint("retry", i)) }()
	}
	r.await("all first tries failed", func() bool { return hungUp.Load() == requests })
	r.await("the budget in use", func() bool { return running.Load() >= budget })
	// Each back-off is shorter than 250 ms, so by then every request has asked for its share.
	over := time.Now().Add(600 * time.Millisecond)
	r.await("past the back-offs", func() bool { return time.Now().After(over) })
	if n := running.Load(); n != budget {
		t.Errorf("%d second tries at once while none ends, the budget has %d", n, budget)
	}
	open()
	for range requests { // a request that found the budget spent has waited for a share
		if a := <-got; a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	if n := most.Load(); n > budget {
		t.Errorf("%d second tries at once, the budget has %d", n, budget)
	}
}

func TestFrozenPrefill(t *testing.T) {
	together(t)
	const limit = 400 * time.Millisecond
	for _, when := range []string{"before it reads", "while it computes"} {
		t.Run(when, func(t *testing.T) {
			var freeze atomic.Bool
			var r *rig
			r = newRig(t, rigOptions{prefill: 2,
				config: func(c *proxy.Config) { c.Timeouts.Prefill = limit },
				engine: func(o *sim.Options) {
					o.PrefillTokensPerSecond = 200 // 0.1 s, in which an engine that thaws can abort
					o.Hook = func(e sim.Event) {
						if e.Phase == sim.PhasePrefillStart && freeze.Load() {
							r.prefill[0].Freeze()
							r.prefill[1].Freeze()
						}
					}
				}})
			freeze.Store(when == "while it computes")
			best := time.Hour // of some, because a busy machine can only delay
			for i := 0; i < 20 && best > limit+100*time.Millisecond; i++ {
				id := fmt.Sprint("frozen", i)
				if !freeze.Load() {
					r.prefill[0].Freeze()
					r.prefill[1].Freeze()
				}
				start := time.Now()
				a := r.call(forms(prompt, 4)[0], "X-Request-Id", id)
				took := time.Since(start)
				if a.status != 504 || a.code() != "prefill_timeout" || took < limit {
					t.Fatalf("%d %s after %v", a.status, a.body, took)
				}
				best = min(best, took)
				r.prefill[0].Thaw()
				r.prefill[1].Thaw()
				var legs []sim.Record
				r.await("told that nobody waits", func() bool {
					legs = append(legsOf(r.prefill[0], id), legsOf(r.prefill[1], id)...)
					return len(legs) > 0
				})
				if len(legs) != 1 || legs[0].Outcome != "aborted" {
					t.Fatalf("prefill legs %+v, want one, aborted", legs)
				}
			}
			if best > limit+100*time.Millisecond {
				t.Errorf("the fastest took %v, timeouts.prefill is %v", best, limit)
			}
			r.expectNothingHeld()
		})
	}
}

func TestPrefillThatStallsInItsAnswer(t *testing.T) {
	together(t)
	const limit = 1500 * time.Millisecond // in which the engine is reached on a busy machine too
	for _, framing := range []string{"length", "chunks"} {
		t.Run(framing, func(t *testing.T) {
			left := make(chan struct{}, 4)
			var asked atomic.Int32
			complete := func(w http.ResponseWriter, q *http.Request) {
				_, _ = io.Copy(io.Discard, q.Body)
				if !strings.HasPrefix(q.Header.Get("X-Request-Id"), "stalled-") {
					return
				}
				asked.Add(1)
				if framing == "length" {
					w.Header().Set("Content-Length", "500")
				}
				_, _ = io.WriteString(w, `{"id":"cmpl`)
				_ = http.NewResponseController(w).Flush()
				<-q.Context().Done()
				left <- struct{}{}
			}
			p, q := newStub(t, complete), newStub(t, complete)
			r := newRig(t, rigOptions{prefill: 2,
				router: func(c *router.Config) { c.Prefill = router.MustEntries(p.server.URL, q.server.URL) },
				config: func(c *proxy.Config) { c.Timeouts.Prefill = limit }})
			start := time.Now()
			a := r.call(forms(prompt, 4)[0], "X-Request-Id", "stalled")
			if took := time.Since(start); a.status != 504 || a.code() != "prefill_timeout" || took < limit || took > limit+patience {
				t.Fatalf("%d %s after %v", a.status, a.body, took)
			}
			select {
			case <-left: // its connection was closed
			case <-time.After(patience):
				t.Fatal("the engine's connection was not closed")
			}
			if n := asked.Load(); n != 1 {
				t.Errorf("%d prefill engines were asked: another one would take as long", n)
			}
			if n := len(legsOf(r.decode[0], "stalled")); n != 0 {
				t.Errorf("decode was asked %d times", n)
			}
		})
	}
}

// prefillStatus is what must follow from one status of P.
type prefillStatus struct {
	status  int
	outcome string // of the leg: what counts against P
	client  int    // status for the client, with no other P and decode_only off
	code    string // of the answer; "" for P's own body, byte for byte
	asks    bool   // another P is asked, and does better
	alone   string // reason to decode without a prefill, if that is on; "" if it is not done
}

func prefillStatuses() []prefillStatus {
	return []prefillStatus{
		{status: 429, outcome: "client_fault", client: 429, asks: true, alone: "prefill_busy"},
		{status: 503, outcome: "engine", client: 503, code: "prefill_unavailable", asks: true, alone: "prefill_busy"},
		{status: 500, outcome: "engine", client: 500, code: "prefill_failed", asks: true, alone: "prefill_failed"},
		{status: 501, outcome: "engine", client: 501, code: "prefill_failed", asks: true, alone: "prefill_failed"},
		{status: 400, outcome: "client_fault", client: 400},
		{status: 401, outcome: "client_fault", client: 401}, // the client's own key
		{status: 404, outcome: "client_fault", client: 404},
		{status: 413, outcome: "client_fault", client: 413},
		{status: 422, outcome: "client_fault", client: 422},
		{status: 302, outcome: "gateway", client: 502, code: "prefill_failed", asks: true, alone: "prefill_failed"},
		{status: 204, outcome: "gateway", client: 502, code: "prefill_failed", asks: true, alone: "prefill_failed"},
	}
}

func TestStatusOfPrefill(t *testing.T) {
	together(t)
	for _, tc := range prefillStatuses() {
		const own = `{"error":{"message":"P's own words","code":1}}`
		for _, setting := range []string{"alone", "alone, decode_only", "with another"} {
			t.Run(fmt.Sprintf("%d/%s", tc.status, setting), func(t *testing.T) {
				r, p := rigWithFront(t, rigOptions{config: func(c *proxy.Config) { c.DecodeOnly.Enabled = setting == "alone, decode_only" }},
					setting == "with another", func(_ *front, w http.ResponseWriter, q *http.Request, _ []byte) bool {
						w.Header().Set("Content-Type", "application/json")
						w.Header().Set("Location", "/v1/completions") // it is not followed
						w.Header().Set("Retry-After", "7")
						w.WriteHeader(tc.status)
						if tc.status != 204 {
							_, _ = io.WriteString(w, own)
						}
						return true
					})
				c := forms(prompt, 4)[0]
				a := r.callVia(p, c, "st")
				switch {
				case setting == "with another" && tc.asks:
					r.expectWhole(c, a)
					if got := a.header.Get("X-Xpyd-Path"); got != "disaggregated" {
						t.Errorf("path %q", got)
					}
				case setting == "alone, decode_only" && tc.alone != "":
					r.expectWhole(c, a)
					if got := a.header.Get("X-Xpyd-Reason"); got != tc.alone {
						t.Errorf("reason %q, want %q", got, tc.alone)
					}
				default:
					tc.expect(t, a, own)
					if n := len(r.decode[0].Requests()); setting != "with another" && n != 0 {
						t.Errorf("decode was asked %d times", n)
					}
				}
				if n := r.legOutcome(p.server.URL, "prefill", tc.outcome); n != 1 {
					t.Errorf("%v legs of P counted as %s, want 1\n%s", n, tc.outcome, r.metricsText())
				}
			})
		}
	}
}

// expect checks the answer to a client whose request could go to no other engine.
func (tc prefillStatus) expect(t *testing.T, a answer, own string) {
	t.Helper()
	if a.status != tc.client || a.header.Get("Location") != "" {
		t.Errorf("status %d %s, want %d", a.status, a.body, tc.client)
	}
	if tc.code == "" && a.body != own || tc.code != "" && (a.code() != tc.code || strings.Contains(a.body, "own words")) {
		t.Errorf("body %s, want code %q, or without one P's own", a.body, tc.code)
	}
	if relayed := tc.client == tc.status; relayed != (a.header.Get("Retry-After") == "7") {
		t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
	}
	if final := tc.client < 500 && tc.client != 429; final != (a.header.Get("X-Should-Retry") == "false") {
		t.Errorf("X-Should-Retry %q", a.header.Get("X-Should-Retry"))
	}
}

// rigWithFront is a rig with a front before its first prefill engine. With another, there is a
// second engine without a front.
func rigWithFront(t *testing.T, o rigOptions, another bool, instead func(f *front, w http.ResponseWriter, q *http.Request, body []byte) bool) (*rig, *front) {
	t.Helper()
	var p *front
	if another {
		o.prefill = 2
	}
	more := o.router
	o.router = func(c *router.Config) {
		p = newFront(t, c.Prefill[0].URL, instead)
		c.Prefill[0].URL = p.server.URL
		if more != nil {
			more(c)
		}
	}
	return newRig(t, o), p
}

// callVia calls until the request meets the front, and returns that answer.
func (r *rig) callVia(p *front, c call, id string) answer {
	r.t.Helper()
	for i := range 40 { // a policy that draws lots takes its time
		id := fmt.Sprint(id, i)
		a := r.call(c, "X-Request-Id", id)
		if p.times(id) > 0 {
			return a
		}
		r.expectWhole(c, a)
	}
	r.t.Fatal("no request met the faulty prefill backend")
	return answer{}
}

// An interim answer is skipped, and what follows it counts.
func TestInterimAnswerOfPrefillIsSkipped(t *testing.T) {
	r, p := rigWithFront(t, rigOptions{}, false, func(_ *front, w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		w.Header().Set("Link", "</x>")
		w.WriteHeader(http.StatusEarlyHints)
		return false
	})
	c := forms(prompt, 4)[0]
	a := r.callVia(p, c, "hint")
	r.expectWhole(c, a)
	if got := a.header.Get("X-Xpyd-Path"); got != "disaggregated" {
		t.Errorf("path %q", got)
	}
}

func TestHandlesOfAnotherShape(t *testing.T) {
	together(t)
	var raw atomic.Value
	raw.Store("")
	p := newStub(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		_, _ = io.WriteString(w, `{"id":"c","choices":[]`+raw.Load().(string)+`}`)
	})
	for _, tc := range []struct {
		name, member string
		status       int // 200: decoded without a prefill; otherwise only if that is on
		code         string
	}{
		{"no member", ``, 200, ""},
		{"null", `,"kv_transfer_params":null`, 200, ""},
		{"empty", `,"kv_transfer_params":{}`, 200, ""},
		{"array", `,"kv_transfer_params":[]`, 502, "invalid_prefill_handoff"},
		{"array of one", `,"kv_transfer_params":[` + stubHandle + `]`, 502, "invalid_prefill_handoff"},
		{"string", `,"kv_transfer_params":"x"`, 502, "invalid_prefill_handoff"},
		{"number", `,"kv_transfer_params":1`, 502, "invalid_prefill_handoff"},
		{"true", `,"kv_transfer_params":true`, 502, "invalid_prefill_handoff"},
		{"twice", `,"kv_transfer_params":` + stubHandle + `,"kv_transfer_params":` + stubHandle, 502, "invalid_prefill_handoff"},
		{"blocks too deep", `,"kv_transfer_params":` + strings.Replace(stubHandle, "[[7]]", "[[[7]]]", 1), 502, "invalid_prefill_handoff"},
		{"blocks of two depths", `,"kv_transfer_params":` + strings.Replace(stubHandle, "[[7]]", "[[7],8]", 1), 502, "invalid_prefill_handoff"},
		{"blocks that are no numbers", `,"kv_transfer_params":` + strings.Replace(stubHandle, "[[7]]", `[["7"]]`, 1), 502, "invalid_prefill_handoff"},
		{"a block below zero", `,"kv_transfer_params":` + strings.Replace(stubHandle, "[[7]]", `[[-7]]`, 1), 502, "invalid_prefill_handoff"},
		{"a member twice", `,"kv_transfer_params":{"remote_port":2,` + stubHandle[1:], 502, "invalid_prefill_handoff"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			raw.Store(tc.member)
			alone := newRig(t, rigOptions{router: p.asPrefill})
			c := forms(prompt, 4)[0]
			a := alone.call(c, "X-Request-Id", "shape")
			alone.expectWhole(c, a)
			want := map[bool]string{true: "no_handle", false: "bad_handle"}[tc.status == 200]
			if got := a.header.Get("X-Xpyd-Reason"); got != want {
				t.Errorf("reason %q, want %q", got, want)
			}
			if body := string(alone.record(alone.decode[0], "shape").Body); strings.Contains(body, "kv_transfer_params") {
				t.Errorf("decode got %s", body)
			}
			if tc.status == 200 {
				return
			}
			r := newRig(t, rigOptions{router: p.asPrefill, config: noDecodeAlone})
			a = r.call(c, "X-Request-Id", "shape")
			if a.status != tc.status || a.code() != tc.code {
				t.Fatalf("%d %s", a.status, a.body)
			}
			if n := len(legsOf(r.decode[0], "shape")); n != 0 {
				t.Errorf("decode was asked %d times", n)
			}
			if n := r.metric(`xpyd_kv_orphans_total{reason="unusable_handle"}`); n < 1 {
				t.Errorf("%v orphans counted: P holds blocks that nobody can give back", n)
			}
		})
	}
}

// rigWithHost is a rig of stubs whose prefill engine names that host in its handles. seen are the
// bodies that decode gets for the request called host. alone is decode_only.enabled.
func rigWithHost(t *testing.T, host string, alone bool, kv func(kv *handoff.KV)) (r *rig, seen <-chan string) {
	t.Helper()
	p := newStub(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		_, _ = io.WriteString(w, `{"choices":[],"kv_transfer_params":`+strings.Replace(stubHandle, "127.0.0.1", host, 1)+`}`)
	})
	bodies := make(chan string, 8)
	d := newStub(t, func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		if strings.HasPrefix(q.Header.Get("X-Request-Id"), "host-") {
			bodies <- string(body)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, wholeAnswer)
	})
	return newRig(t, rigOptions{
		config: func(c *proxy.Config) {
			if kv != nil {
				kv(&c.KV)
			}
			c.DecodeOnly.Enabled = alone
		},
		router: func(c *router.Config) {
			c.Prefill = router.MustEntries(p.server.URL)
			c.Decode = router.MustEntries(strings.Replace(d.server.URL, "127.0.0.1", "localhost", 1)) // another host, as far as names tell
		}}), bodies
}

func TestHostOfAHandle(t *testing.T) {
	together(t)
	for _, tc := range []struct {
		name, host string
		kv         func(kv *handoff.KV)
		decode     string // remote_host that D gets; "" if D is not asked
		loopback   float64
	}{
		{name: "foreign, any is allowed", host: "10.9.8.7", decode: "10.9.8.7"},
		{name: "foreign", host: "10.9.8.7", kv: func(kv *handoff.KV) { kv.AllowHosts = []string{"10.0.0.1", "p1"} }},
		{name: "listed", host: "P1", kv: func(kv *handoff.KV) { kv.AllowHosts = []string{"10.0.0.1", "p1"} }, decode: "P1"},
		{name: "loopback not listed", host: "localhost", kv: func(kv *handoff.KV) { kv.AllowHosts = []string{"p1"} }},
		{name: "loopback, D on another host", host: "localhost", decode: "localhost", loopback: 1},
		{name: "loopback rewritten", host: "localhost", kv: func(kv *handoff.KV) { kv.RewriteLoopback = true }, decode: "127.0.0.1", loopback: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, seen := rigWithHost(t, tc.host, false, tc.kv)
			a := r.call(forms(prompt, 4)[0], "X-Request-Id", "host")
			if tc.decode == "" {
				alone, bodies := rigWithHost(t, tc.host, true, tc.kv)
				b := alone.call(forms(prompt, 4)[0], "X-Request-Id", "host")
				if body := <-bodies; b.status != 200 || pathOf(b) != "decode_only bad_handle" || strings.Contains(body, "remote_host") {
					t.Errorf("%d, went %s, decode got %s", b.status, pathOf(b), body)
				}
				if n := alone.metric(`xpyd_kv_orphans_total{reason="host_not_allowed"}`); n != 1 {
					t.Errorf("%v orphans counted", n)
				}
				if a.status != 502 || a.code() != "invalid_prefill_handoff" || len(seen) != 0 {
					t.Fatalf("%d %s, decode asked %d times", a.status, a.body, len(seen))
				}
				if n := r.metric(`xpyd_kv_orphans_total{reason="host_not_allowed"}`); n != 1 {
					t.Errorf("%v orphans counted", n)
				}
				return
			}
			if a.status != 200 {
				t.Fatalf("%d %s", a.status, a.body)
			}
			if body := <-seen; !strings.Contains(body, `"remote_host":"`+tc.decode+`"`) {
				t.Errorf("decode got %s, want host %s", body, tc.decode)
			}
			if n := r.metric("xpyd_loopback_handles_total"); n != tc.loopback {
				t.Errorf("%v loopback hosts counted, want %v\n", n, tc.loopback)
			}
			if said := strings.Count(r.logs.String(), "loopback side channel"); said != int(tc.loopback) {
				t.Errorf("said %d times in the log", said)
			}
		})
	}
}

func TestCutPrefillAnswerIsNone(t *testing.T) {
	together(t)
	const head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	for _, framing := range []string{"length", "chunks"} {
		t.Run(framing, func(t *testing.T) {
			var once sync.Once
			var whole string // P's response to the first request
			r, _ := rigWithFront(t, rigOptions{
				router: func(c *router.Config) { c.Health.EjectAfter = 0 },
				config: func(c *proxy.Config) { c.DecodeOnly.Enabled = false }, // because a busy machine may refuse a connection
			}, false,
				func(p *front, w http.ResponseWriter, q *http.Request, body []byte) bool {
					var at int
					if n, _ := fmt.Sscanf(q.Header.Get("X-Request-Id"), "cut-%d-", &at); n == 1 {
						breakOff(w, whole[:at])
						return true
					}
					once.Do(func() {
						_, own := ask(p.engine, q.Method, q.URL.Path, body, q.Header)
						whole = fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", head, len(own), own)
						if n := len(own) / 2; framing == "chunks" {
							whole = fmt.Sprintf("%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n", head, n, own[:n], len(own)-n, own[n:])
						}
						breakOff(w, whole)
					})
					return true
				})
			c := forms("abc", 2)[0]
			r.expectWhole(c, r.call(c, "X-Request-Id", "first"))
			cuts := make(chan int, len(whole))
			for at := range len(whole) {
				cuts <- at
			}
			close(cuts)
			var wg sync.WaitGroup
			for range 128 { // a failed try is followed by a pause
				wg.Go(func() {
					for at := range cuts {
						a := r.call(c, "X-Request-Id", fmt.Sprint("cut-", at))
						if a.status != 502 || a.code() != "prefill_failed" {
							t.Errorf("cut at %d of %d: %d %s %v", at, len(whole), a.status, a.body, a.err)
						}
					}
				})
			}
			wg.Wait()
			for _, rec := range r.decode[0].Requests() {
				if strings.HasPrefix(rec.RequestID, "cut-") {
					t.Errorf("decode was asked for %s", rec.RequestID)
				}
			}
		})
	}
}
