package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"xpyd/proxy"
	"xpyd/router"
)

// busyDecode is a decode engine that holds each completion until it is opened, and counts
// how many it has at once.
type busyDecode struct {
	*stub
	now, most atomic.Int32
	hold      chan struct{}
	open      func()
}

func newBusyDecode(t *testing.T) *busyDecode {
	t.Helper()
	d := &busyDecode{hold: make(chan struct{})}
	d.open = sync.OnceFunc(func() { close(d.hold) })
	d.stub = newStub(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		n := d.now.Add(1)
		defer d.now.Add(-1)
		for m := d.most.Load(); n > m && !d.most.CompareAndSwap(m, n); m = d.most.Load() {
		}
		<-d.hold
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, wholeAnswer)
	})
	return d
}

// outageRig is a rig whose only prefill engine is known to be down.
func outageRig(t *testing.T, d *busyDecode, share float64, pools func(c *router.Config)) *rig {
	t.Helper()
	r := newRig(t, rigOptions{
		config: func(c *proxy.Config) {
			if share >= 0 {
				c.DecodeOnly.MaxShare = share
			}
		},
		router: func(c *router.Config) {
			d.asDecode(c)
			if pools != nil {
				pools(c)
			}
		},
	})
	t.Cleanup(d.open)
	r.prefill[0].Kill()
	r.server.FailChecks(r.prefill[0].URL())
	return r
}

// burst sends n completions at once.
func (r *rig) burst(n int, prompt string) <-chan answer {
	got := make(chan answer, n)
	for i := range n {
		go func() { got <- r.call(forms(prompt, 3)[0], "X-Request-Id", fmt.Sprint("burst", i)) }()
	}
	return got
}

// While no prefill engine is up, the decode engines serve everything.
func TestDecodeServesEverythingWithoutPrefillEngines(t *testing.T) {
	const n = 40
	d := newBusyDecode(t)
	r := outageRig(t, d, -1, nil)
	got := r.burst(n, prompt)
	r.await("settled", func() bool { return int(d.now.Load())+len(got) == n })
	d.open()
	statuses := map[int]int{}
	for range n {
		a := r.soon(got)
		statuses[a.status]++
		if a.status == 200 && pathOf(a) != "decode_only prefill_unavailable" {
			t.Errorf("went %s", pathOf(a))
		}
	}
	if statuses[200] != n {
		t.Errorf("statuses %v of %d requests at once, want 200 for all", statuses, n)
	}
}

// A share that is set is a share of the decode engines' slots. Requests beyond it wait.
func TestShareOfDecodeIsOfItsSlots(t *testing.T) {
	const n = 7
	d := newBusyDecode(t)
	r := outageRig(t, d, 0.5, func(c *router.Config) {
		c.DecodeMaxInFlight, c.Queue = 6, router.Line{Length: 100, Wait: time.Minute}
	})
	got := r.burst(n, prompt)
	r.await("three at work, four waiting", func() bool {
		return d.now.Load() == 3 && r.metric(`xpyd_queued{role="decode"}`) == 4
	})
	// Requests that need no prefill have the rest of the slots, and do not have to queue.
	other := make(chan answer, 3)
	for range 3 {
		go func() {
			other <- r.post("/v1/completions", `{"model":"sim","prompt":"x","prompt_logprobs":1,"max_tokens":3}`)
		}()
	}
	r.await("the rest of the slots in use", func() bool { return d.now.Load() == 6 })
	if len(got)+len(other) != 0 {
		t.Errorf("%d and %d answered while nothing was", len(got), len(other))
	}
	d.open()
	for range n {
		if a := r.soon(got); a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	for range 3 {
		if a := r.soon(other); a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	if n := r.metric("xpyd_queued"); n != 0 {
		t.Errorf("%v queued at the end", n)
	}
}

func TestWaitForTheShareEnds(t *testing.T) {
	together(t)
	for _, tc := range []struct {
		name  string
		share float64
		line  router.Line
	}{
		{"after queue.wait", 0.5, router.Line{Length: 9, Wait: 30 * time.Millisecond}},
		{"no queue", 0.5, router.Line{}},
		{"no share to wait for", 0, router.Line{Length: 9, Wait: time.Minute}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newBusyDecode(t)
			r := outageRig(t, d, tc.share, func(c *router.Config) { c.DecodeMaxInFlight, c.Queue = 2, tc.line })
			if tc.share > 0 {
				got := r.burst(1, prompt)
				r.await("the share in use", func() bool { return d.now.Load() == 1 })
				defer func() {
					d.open()
					if a := r.soon(got); a.status != 200 {
						t.Errorf("%d %s", a.status, a.body)
					}
				}()
			}
			a := r.call(forms(prompt, 3)[0])
			if a.status != 503 || a.code() != "prefill_unavailable" || a.header.Get("Retry-After") == "" || !strings.Contains(a.body, "decode_only.max_share") {
				t.Errorf("%d %s %v", a.status, a.body, a.header)
			}
			if a.header.Get("X-Xpyd-Path") != "" {
				t.Errorf("says that it went %s, and reached no engine", pathOf(a))
			}
		})
	}
}

func TestWhoeverEndsLeavesTheWaitForTheShare(t *testing.T) {
	together(t)
	for _, tc := range []string{"the client leaves", "the process stops"} {
		t.Run(tc, func(t *testing.T) {
			d := newBusyDecode(t)
			r := newRig(t, rigOptions{
				config: func(c *proxy.Config) {
					c.DecodeOnly.MaxShare, c.Timeouts.Drain = 0.5, 50*time.Millisecond
				},
				router: func(c *router.Config) {
					d.asDecode(c)
					c.DecodeMaxInFlight, c.Queue = 2, router.Line{Length: 9, Wait: time.Minute}
				},
			})
			t.Cleanup(d.open)
			r.prefill[0].Kill()
			r.server.FailChecks(r.prefill[0].URL())
			got := r.burst(1, prompt)
			r.await("the share in use", func() bool { return d.now.Load() == 1 })
			conn := r.dialRaw()
			_, _ = io.WriteString(conn, raw(forms(prompt, 3)[0], "waits"))
			r.await("one waiting", func() bool { return r.metric(`xpyd_queued{role="decode"}`) == 1 })
			if tc == "the client leaves" {
				_ = conn.Close()
			} else {
				go func() { _ = r.server.Shutdown() }()
			}
			r.await("nobody waiting", func() bool { return r.metric("xpyd_queued") == 0 })
			d.open()
			if a := r.soon(got); a.status != 200 && tc == "the client leaves" {
				t.Errorf("%d %s", a.status, a.body)
			}
			r.await("nothing held", func() bool { return r.server.Live() == 0 && r.metric("xpyd_in_flight") == 0 })
			if most := d.most.Load(); most != 1 {
				t.Errorf("%d at once, the share is one", most)
			}
		})
	}
}

// The outage is logged once when it begins and once when it ends, whatever the traffic is, and
// shows in the metrics and on /readyz.
func TestOutageOfThePrefillPoolIsLoud(t *testing.T) {
	const begins, ends = "no prefill engine is up: decode engines compute the prompts", "the outage of the prefill pool is over"
	r := newRig(t, rigOptions{router: func(c *router.Config) {
		c.Health.Interval, c.Health.SuspectInterval = 20*time.Millisecond, 20*time.Millisecond
	}})
	expect := func(gauge float64, body string) {
		t.Helper()
		if n := r.metric("xpyd_degraded"); n != gauge {
			t.Errorf("xpyd_degraded %v, want %v", n, gauge)
		}
		a := r.send(http.MethodGet, "/readyz", "")
		if admin := r.adminText("/readyz"); a.status != 200 || a.body != body || admin != body {
			t.Errorf("readyz %d %q, on the admin port %q, want %q", a.status, a.body, admin, body)
		}
	}
	expect(0, "ok\n")
	r.prefill[0].Kill()
	r.await("said", func() bool { return strings.Contains(r.logs.String(), begins) })
	expect(1, "ok, but no prefill engine is up: decode engines compute the prompts\n")
	began := time.Now()
	for range 60 {
		r.call(forms(prompt, 3)[0])
	}
	if n, bound := strings.Count(r.logs.String(), "decoding without a prefill"), 10*(2+int(time.Since(began)/time.Second)); n < 1 || n > bound {
		t.Errorf("%d lines about single requests, want 10 a second at most", n)
	}
	if err := r.prefill[0].Restart(); err != nil {
		t.Fatal(err)
	}
	r.await("said to be over", func() bool { return strings.Contains(r.logs.String(), ends) })
	expect(0, "ok\n")
	if b, e := strings.Count(r.logs.String(), begins), strings.Count(r.logs.String(), ends); b != 1 || e != 1 {
		t.Errorf("its begin was said %d times, its end %d times\n%s", b, e, r.logs)
	}
}

// Who waits for /readyz at the start gets both legs: while no check has said whether a prefill engine is
// up, the process is not ready. What joins later changes nothing.
func TestReadyAwaitsTheFirstChecksOfPrefill(t *testing.T) {
	together(t)
	for _, ranks := range []string{"", "@auto"} {
		t.Run("ranks"+ranks, func(t *testing.T) { readyAwaitsTheFirstChecks(t, ranks) })
	}
}

func readyAwaitsTheFirstChecks(t *testing.T, ranks string) {
	ended := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-ended
		w.WriteHeader(http.StatusInternalServerError)
	}))
	defer slow.Close()
	pools := make(chan router.Config, 1)
	r := newRig(t, rigOptions{prefill: -1, router: func(c *router.Config) {
		if c.Prefill = router.MustEntries(slow.URL + ranks); ranks != "" {
			c.Found = []string{slow.URL}
		}
		c.Health.Timeout, c.Health.SuspectInterval = time.Minute, 10*time.Millisecond
		pools <- *c
	}})
	expect := func(status int, body string) {
		t.Helper()
		if a := r.send(http.MethodGet, "/readyz", ""); a.status != status || a.body != body {
			t.Errorf("readyz %d %q, want %d %q", a.status, a.body, status, body)
		}
	}
	expect(503, "not ready: the first checks of the prefill engines are still running\n")
	if n := r.metric("xpyd_ready"); n != 0 {
		t.Errorf("xpyd_ready %v", n)
	}
	close(ended)
	r.await("an outage", func() bool { return r.metric("xpyd_degraded") == 1 })
	expect(200, "ok, but no prefill engine is up: decode engines compute the prompts\n")

	hung := make(chan struct{})
	late := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hung }))
	defer late.Close()
	defer close(hung)
	next := <-pools
	next.Prefill = append(next.Prefill, router.MustEntries(late.URL)...)
	if err := r.server.Reload(next); err != nil {
		t.Fatal(err)
	}
	if a := r.send(http.MethodGet, "/readyz", ""); a.status != 200 {
		t.Errorf("readyz %d %q after a prefill engine has joined", a.status, a.body)
	}
}
