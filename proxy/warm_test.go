package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

func warmed(c *proxy.Config) { c.Warmup = true }

func quickChecks(c *router.Config) {
	c.Health.Interval, c.Health.SuspectInterval = 50*time.Millisecond, 20*time.Millisecond
}

func TestEachPairIsWarmedUpOnce(t *testing.T) {
	r := newRig(t, rigOptions{prefill: 2, decode: 2, config: warmed})
	r.await("4 pairs warm", func() bool { return r.metric(`xpyd_warmups_total{result="ok"`) == 4 })
	r.expectNothingHeld()
	pairs := map[string]bool{}
	for _, d := range r.decode {
		for _, rec := range d.Requests() {
			if !strings.HasPrefix(rec.RequestID, "xpyd-warmup-") {
				t.Errorf("%s served %q", d.Name(), rec.RequestID)
			}
		}
		for _, p := range r.prefill {
			for _, a := range p.Requests() {
				for _, b := range d.Requests() {
					if a.RequestID == b.RequestID {
						pairs[p.Name()+" "+d.Name()] = true
					}
				}
			}
		}
	}
	if len(pairs) != 4 {
		t.Errorf("warmed: %v", pairs)
	}
	c := forms(prompt, 3)[0]
	for range 4 {
		r.expectWhole(c, r.call(c))
	}
	if n := r.metric("xpyd_requests_total"); n != 4 {
		t.Errorf("%v requests counted: warm-ups are nobody's", n)
	}
	if strings.Contains(r.logs.String(), "warm up warm up") {
		t.Error("a prompt in the log")
	}
}

func TestRestartedPrefillIsWarmedUpFirst(t *testing.T) {
	r := newRig(t, rigOptions{prefill: 2, config: warmed, router: quickChecks})
	r.await("warm", func() bool { return r.metric(`xpyd_warmups_total{result="ok"`) == 2 })
	p := r.prefill[0]
	r.await("idle", func() bool { return r.prefill[0].Ledger().Pinned == 0 })
	p.Kill()
	c := forms(prompt, 3)[0]
	r.await("down", func() bool { return r.metric(`xpyd_backend_up{backend="`+p.URL()) == 0 })
	if err := p.SetFault(sim.Fault{Kind: sim.FaultDelay, Delay: 600 * time.Millisecond}); err != nil { // its first transfer is slow
		t.Fatal(err)
	}
	if err := p.Restart(); err != nil {
		t.Fatal(err)
	}
	r.await("up", func() bool { return r.metric(`xpyd_backend_up{backend="`+p.URL()) == 1 })
	served := func() (n int) {
		for _, rec := range p.Requests() {
			if !strings.HasPrefix(rec.RequestID, "xpyd-warmup-") {
				n++
			}
		}
		return n
	}
	before := served()
	for r.metric(`xpyd_warmups_total{result="ok"`) == 2 {
		r.expectWhole(c, r.call(c))
		if n := served(); n != before && r.metric(`xpyd_warmups_total{result="ok"`) == 2 {
			t.Fatalf("%d requests before it was warm\n%s", n-before, r.logs)
		}
	}
	r.await("its share of requests", func() bool { r.expectWhole(c, r.call(c)); return served() > before })
	r.expectNothingHeld()
}

func TestFailedWarmUpLeavesNothingBehind(t *testing.T) {
	d := newStub(t, func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		http.Error(w, `{"error":{"message":"x","code":500}}`, http.StatusInternalServerError)
	})
	r := newRig(t, rigOptions{decode: 2, config: warmed, router: func(c *router.Config) { c.Decode[1].URL = d.server.URL }})
	r.await("failed and warm", func() bool {
		return r.metric(`xpyd_warmups_total{result="failed"`) >= 1 && r.metric(`xpyd_warmups_total{result="ok"`) == 1
	})
	r.expectNothingHeld()
	r.await("released", func() bool { return r.metric(`xpyd_kv_handles_total{end="released"`) >= 1 })
	c := forms(prompt, 3)[0]
	started := time.Now()
	r.expectWhole(c, r.call(c))
	if took := time.Since(started); took > patience {
		t.Errorf("a request took %v", took)
	}
}

// The answer of the warm-up's prefill takes longer than P's lease.
func TestWarmUpHeedsTheLease(t *testing.T) {
	together(t)
	const lease = 2 * time.Second
	r := newRig(t, rigOptions{
		config: func(c *proxy.Config) { c.Warmup, c.KV.Lease, c.KV.LeaseMargin = true, lease, lease/4 },
		engine: func(o *sim.Options) { o.Lease = lease },
		before: func(r *rig) {
			if err := r.prefill[0].SetFault(sim.Fault{Kind: sim.FaultDrip, At: 30, Delay: 100 * time.Millisecond, Leg: "P", Count: 1}); err != nil {
				t.Fatal(err)
			}
		},
	})
	r.await("warm at the second attempt", func() bool { return r.metric(`xpyd_warmups_total{result="ok"`) == 1 })
	if n := r.metric(`xpyd_kv_handles_total{end="expired"}`); n != 1 || r.prefill[0].Ledger().StaleReads != 0 {
		t.Errorf("%v handles expired, want 1; %d reads of blocks that were free", n, r.prefill[0].Ledger().StaleReads)
	}
}

func TestWarmUpEndsWithTheServer(t *testing.T) {
	asked := make(chan struct{}, 8)
	d := newStub(t, func(_ http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		asked <- struct{}{}
		<-req.Context().Done()
	})
	r := newRig(t, rigOptions{
		router: d.asDecode,
		config: func(c *proxy.Config) { warmed(c); c.Timeouts.PrefillAbortGrace = 50 * time.Millisecond },
	})
	<-asked
	started := time.Now()
	if err := r.server.Shutdown(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(started); took > patience {
		t.Errorf("shutdown took %v", took)
	}
	// The rig's own shutdown and its count of goroutines come after this.
}

// Decode engines that are busy for longer than a warm-up waits, or that break off, say nothing
// about the blocks.
func TestWarmUpThatBreaksOffBlamesNobody(t *testing.T) {
	var urls []string
	for range 3 {
		d := newStub(t, func(_ http.ResponseWriter, req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body)
			panic(http.ErrAbortHandler)
		})
		urls = append(urls, d.server.URL)
	}
	r := newRig(t, rigOptions{prefill: 2, decode: 3, config: warmed, router: func(c *router.Config) { c.Decode = router.MustEntries(urls...) }})
	r.await("each pair has failed", func() bool { return r.metric(`xpyd_warmups_total{result="failed"`) >= 6 })
	if n := r.metric("xpyd_backend_ejections_total"); n != 0 {
		t.Errorf("%v ejections without a request\n%s", n, r.logs)
	}
}

// vLLM may have several data parallel ranks behind one URL, each with an engine id of its own.
func TestRanksOfAnEngineAreNoRestart(t *testing.T) {
	var n atomic.Int64
	p := newStub(t, func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		handle := strings.Replace(stubHandle, `"remote_engine_id":"e"`, fmt.Sprintf(`"remote_engine_id":"e_dp%d"`, n.Add(1)&1), 1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"c","object":"text_completion","choices":[{"index":0,"text":"a","finish_reason":"length"}],"kv_transfer_params":`+handle+`}`)
	})
	d := newStub(t, func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"cmpl-1","object":"text_completion","created":1,"model":"sim","choices":[{"index":0,"text":"abc","logprobs":null,"finish_reason":"stop"}],"usage":null}`)
	})
	r := newRig(t, rigOptions{router: func(c *router.Config) { p.asPrefill(c); d.asDecode(c) }})
	for range 4 {
		if a := r.call(forms(prompt, 3)[0]); a.status != 200 {
			t.Fatal(a.status, a.body)
		}
	}
	if n := strings.Count(r.logs.String(), "prefill engine has restarted"); n > 0 {
		t.Errorf("%d restarts seen, of none", n)
	}
}
