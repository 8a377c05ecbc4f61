package proxy_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

// releaseRig has engines whose n-th of each role runs the n-th of its releases. They compute again what they cannot load.
func releaseRig(t *testing.T, o rigOptions, prefill, decode []string) *rig {
	t.Helper()
	o.prefill, o.decode = len(prefill), len(decode)
	o.engine = func(e *sim.Options) {
		var i int
		role, n, _ := strings.Cut(e.Name, "-")
		if _, err := fmt.Sscanf(n, "%d", &i); err != nil {
			t.Fatal(err)
		}
		e.Version, e.LoadFailure = map[string][]string{"prefill": prefill, "decode": decode}[role][i], "recompute"
	}
	change := o.router
	o.router = func(c *router.Config) {
		inTurn(c)
		c.Routing.Poll = 10 * time.Millisecond
		if change != nil {
			change(c)
		}
	}
	return newRig(t, o)
}

// computedTwice counts the prompts that decode engines have computed since their starts because they could not load the
// blocks.
func (r *rig) computedTwice() (n int) {
	r.t.Helper()
	for _, e := range r.decode {
		resp, err := http.Get(e.URL() + "/metrics")
		if err != nil {
			r.t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		_, line, _ := strings.Cut(string(text), "\nvllm:nixl_num_failed_transfers_total{")
		_, value, found := strings.Cut(line, "} ")
		var v float64
		if _, bad := fmt.Sscan(value, &v); err != nil || bad != nil || !found {
			r.t.Fatalf("%s has no count of failed transfers: %v, %v", e.Name(), err, bad)
		}
		n += int(v)
	}
	return n
}

// awaitPolls waits until the metrics of each engine have been read.
func (r *rig) awaitPolls() {
	r.t.Helper()
	r.await("polled", func() bool {
		return strings.Count(r.adminText("/backends"), `"started"`) == len(r.prefill)+len(r.decode)
	})
}

// pooled is what /pools shows of the engine.
func (r *rig) pooled(e *sim.Engine) (b struct {
	URL, State, Version string
	Drained             bool
}) {
	r.t.Helper()
	var page struct {
		Prefill, Decode []json.RawMessage
	}
	if err := json.Unmarshal([]byte(r.adminText("/pools")), &page); err != nil {
		r.t.Fatal(err)
	}
	for _, raw := range append(page.Prefill, page.Decode...) {
		if err := json.Unmarshal(raw, &b); err == nil && b.URL == e.URL() {
			return b
		}
		b.Drained = false
	}
	r.t.Fatalf("/pools has no %s", e.Name())
	return b
}

func TestEnginesOfOneReleaseArePaired(t *testing.T) {
	r := releaseRig(t, rigOptions{config: func(c *proxy.Config) { c.Warmup = true }}, []string{"0.32.0", "0.32.1"}, []string{"0.32.1", "0.32.0"})
	r.askFresh(12)
	if n := r.computedTwice(); n > 0 {
		t.Errorf("%d prompts were computed twice", n)
	}
	if p, d := len(legs(r.prefill, "prefill")), len(legs(r.decode, "decode")); p < 12 || d < 12 {
		t.Errorf("%d prefills and %d decodes of 12 requests", p, d)
	}
	if strings.Contains(r.logs.String(), "different releases are paired") || strings.Contains(r.adminText("/status"), "different releases are paired") {
		t.Errorf("engines of one release are up, and xpyd says that there are none\n%s", r.logs)
	}
	r.expectNothingHeld()
}

func TestNoTwoEnginesOfOneRelease(t *testing.T) {
	r := releaseRig(t, rigOptions{}, []string{"0.33.0"}, []string{"0.32.0", "0.32.0+cu129"})
	r.askFresh(4)
	if n := r.computedTwice(); n != 4 {
		t.Errorf("%d of 4 prompts were computed twice; without a pair of one release, others are paired", n)
	}
	says := "no prefill and decode engine of one release are up (prefill: 0.33.0; decode: 0.32.0, 0.32.0+cu129)"
	for _, page := range []string{"/status", "/advice"} {
		if text := r.adminText(page); !strings.Contains(text, says) {
			t.Errorf("%s does not tell: %s", page, text)
		}
	}
	if n := strings.Count(r.logs.String(), says); n != 1 {
		t.Errorf("the log says it %d times\n%s", n, r.logs)
	}
	r.awaitPolls()
	if err := r.prefill[0].Upgrade("0.32.0"); err != nil {
		t.Fatal(err)
	}
	r.await("over", func() bool { return strings.Contains(r.logs.String(), "only engines of one release are paired") })
	before := r.computedTwice()
	r.askFresh(4)
	if n := r.computedTwice() - before; n > 0 {
		t.Errorf("%d prompts were computed twice after the upgrade", n)
	}
	if text := r.adminText("/advice"); strings.Contains(text, "mismatch") {
		t.Errorf("/advice tells what is over: %s", text)
	}
}

// An engine that runs another release after a restart that no check has seen is known by its metrics or its handles.
func TestUpgradeThatNoCheckHasSeen(t *testing.T) {
	together(t)
	for _, role := range []string{"prefill", "decode"} {
		t.Run(role, func(t *testing.T) {
			r := releaseRig(t, rigOptions{router: func(c *router.Config) {
				c.Health.Interval, c.Health.SuspectInterval = time.Hour, time.Hour
			}}, []string{"0.32.0"}, []string{"0.32.0"})
			e := r.prefill[0]
			if role == "decode" {
				e = r.decode[0]
			}
			r.awaitPolls()
			if err := e.Upgrade("0.33.0"); err != nil {
				t.Fatal(err)
			}
			r.await("learned", func() bool { return strings.Contains(r.adminText("/pools"), `"version": "0.33.0"`) })
		})
	}
}

// Engines are upgraded one at a time, each drained before, under load. No request fails, and no prompt is computed twice.
func TestRollingUpgrade(t *testing.T) {
	together(t)
	for name, order := range map[string]string{"prefill first": "p0 d0 p1 d1", "decode first": "d0 p0 d1 p1"} {
		t.Run(name, func(t *testing.T) {
			var pools router.Config
			r := releaseRig(t, rigOptions{
				config: func(c *proxy.Config) { c.Warmup = true },
				router: func(c *router.Config) {
					c.Health.Interval, c.Health.SuspectInterval, c.Health.SlowStart = 20*time.Millisecond, 20*time.Millisecond, 0
					pools = *c
				},
			}, []string{"0.32.0", "0.32.0"}, []string{"0.32.0", "0.32.0"})
			var stop atomic.Bool
			var served atomic.Int64
			var clients sync.WaitGroup
			for client := range 4 {
				clients.Go(func() {
					for i := 0; !stop.Load(); i++ {
						c := forms(fmt.Sprintf("%d %d %s", client, i, prompt), 5)[i%4]
						if a := r.call(c); a.err != nil || a.status != 200 || a.text() != c.want() {
							t.Errorf("%s: %d %v %.300s", c.name(), a.status, a.err, a.body)
							return
						}
						served.Add(1)
					}
				})
			}
			more := func() { // requests are served in the present state
				n := served.Load() + 20
				r.await("served", func() bool { return served.Load() >= n || t.Failed() })
			}
			once := func(when string) {
				if n := r.computedTwice(); n > 0 {
					t.Errorf("%s: %d prompts were computed twice", when, n)
				}
			}
			put := func(entries []router.Entry, i int, entry string) {
				entries[i] = router.MustEntries(entry)[0]
				if err := r.server.Reload(pools); err != nil {
					t.Fatal(err)
				}
			}
			r.awaitPolls()
			more()
			for _, step := range strings.Fields(order) {
				i, engines, entries := int(step[1]-'0'), r.prefill, pools.Prefill
				if step[0] == 'd' {
					engines, entries = r.decode, pools.Decode
				}
				e := engines[i]
				put(entries, i, e.URL()+" state=drain")
				r.await("drained", func() bool { return r.pooled(e).Drained })
				more()
				once("before " + step)
				if err := e.Upgrade("0.33.0"); err != nil {
					t.Fatal(err)
				}
				r.await("up again", func() bool { b := r.pooled(e); return b.State == "up" && b.Version == "0.33.0" })
				put(entries, i, e.URL())
				more()
				once("after " + step)
			}
			stop.Store(true)
			clients.Wait()
			r.expectNothingHeld()
		})
	}
}
