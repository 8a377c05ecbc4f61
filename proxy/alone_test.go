package proxy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

// noDecodeAlone is the rigOptions.config of tests of what a client is told when a prefill fails.
func noDecodeAlone(c *proxy.Config) { c.DecodeOnly.Enabled = false }

// One of two prefill engines gives handles that cannot be used. No client notices, and the engine
// is ejected like any that fails.
func TestPrefillEngineWithUnusableHandles(t *testing.T) {
	together(t)
	for _, what := range []string{"port", "port-zero", "no-engine", "string-blocks"} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t, rigOptions{prefill: 2, router: inTurn})
			if err := r.prefill[0].SetFault(sim.Fault{Kind: sim.FaultBadHandle, Arg: what, Leg: "P"}); err != nil {
				t.Fatal(err)
			}
			statuses, paths := map[int]int{}, map[string]int{}
			for i := range 24 {
				a := r.call(forms(fmt.Sprint(prompt, i), 4)[0])
				statuses[a.status]++
				paths[a.header.Get("X-Xpyd-Path")]++
			}
			if statuses[200] != 24 || paths["disaggregated"] != 24 {
				t.Errorf("statuses %v, paths %v, want 24 times 200 by way of the other engine", statuses, paths)
			}
			if n := r.metric(`xpyd_backend_ejections_total{backend="` + r.prefill[0].URL()); n != 1 {
				t.Errorf("%v ejections of the engine, want 1", n)
			}
		})
	}
}

// If no other prefill engine does better, a prefill that failed ends in decode alone.
func TestFailedPrefillEndsInDecodeAlone(t *testing.T) {
	together(t)
	for kind, reason := range map[string]string{
		"rst": "prefill_failed", "fin": "prefill_failed", "status=500": "prefill_failed", "status=302": "prefill_failed",
		"truncate@30": "prefill_failed", "badjson": "prefill_failed", "badhandle=port": "bad_handle", "badhandle=no-engine": "bad_handle",
		"nohandle": "no_handle", "status=503": "prefill_busy",
	} {
		for _, engines := range []int{1, 2} {
			if engines == 2 && (kind == "rst" || kind == "fin") {
				continue // a request over which two engines broke off goes to no third: TestDeadlyRequestEndsAfterTwoEngines
			}
			t.Run(fmt.Sprintf("%s/%d engines", kind, engines), func(t *testing.T) {
				r := newRig(t, rigOptions{prefill: engines})
				f, err := sim.ParseFault(kind)
				if err != nil {
					t.Fatal(err)
				}
				f.Leg = "P"
				for _, p := range r.prefill {
					if err := p.SetFault(f); err != nil {
						t.Fatal(err)
					}
				}
				for i, c := range forms(prompt, 4)[:3-engines] {
					a := r.call(c, "X-Request-Id", fmt.Sprint("alone", i))
					r.expectWhole(c, a)
					if pathOf(a) != "decode_only "+reason {
						t.Errorf("went %s, want decode_only %s", pathOf(a), reason)
					}
					if body := string(r.record(r.decode[0], fmt.Sprint("alone", i)).Body); strings.Contains(body, "remote_") {
						t.Errorf("decode got a handle: %s", body)
					}
				}
				if n := r.metric(`xpyd_leg_requests_total{backend="` + r.prefill[0].URL() + `",leg="prefill",outcome="ok"}`); n != 0 {
					t.Errorf("%v legs of the engine count as a success", n)
				}
				r.await("idle", func() bool { return r.metric("xpyd_in_flight") == 0 })
			})
		}
	}
}

// If all prefill engines fail, no request waits for a share of the retries. It goes to decode alone
// at once.
func TestSpentRetriesEndInDecodeAlone(t *testing.T) {
	const n = 40 // more than may be retried within ten seconds
	r := newRig(t, rigOptions{prefill: 2, router: func(c *router.Config) { c.Health.EjectAfter = 0 }})
	for _, p := range r.prefill {
		if err := p.SetFault(sim.Fault{Kind: sim.FaultBadHandle, Arg: "port", Leg: "P"}); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	got := r.burst(n, prompt)
	for range n {
		if a := <-got; a.status != 200 || pathOf(a) != "decode_only bad_handle" {
			t.Errorf("%d, went %s", a.status, pathOf(a))
		}
	}
	if took := time.Since(began); took >= router.RetrySettle {
		t.Errorf("all had an answer after %v: the last ones waited for a retry", took)
	}
	if n := r.metric("xpyd_retries_denied_total"); n != 0 {
		t.Errorf("%v retries counted as denied", n)
	}
}

// If decode has only a small share for them, requests of a prefill engine that fails wait for a
// retry on the other one, as they do when decode may not compute prompts.
func TestSmallShareDoesNotTakeTheRetries(t *testing.T) {
	r := newRig(t, rigOptions{prefill: 2, config: func(c *proxy.Config) { c.DecodeOnly.MaxShare = 0.01 },
		router: func(c *router.Config) {
			inTurn(c)
			c.Health.EjectAfter, c.DecodeMaxInFlight = 0, 100
			c.Queue.Wait = 10 * time.Millisecond
		},
		engine: func(o *sim.Options) { o.TokenLatency = 20 * time.Millisecond }})
	if err := r.prefill[0].SetFault(sim.Fault{Kind: sim.FaultStatus, Value: 500, Leg: "P"}); err != nil {
		t.Fatal(err)
	}
	const n = 24
	got := r.burst(n, prompt)
	for range n {
		if a := <-got; a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
}

// The second prefill engine of a request must not spoil the round that follows a decode engine's
// failure. A decode alone is counted once, wherever it ends.
func TestSecondRoundOfADecodeAlone(t *testing.T) {
	r := newRig(t, rigOptions{decode: 2, router: inTurn})
	if err := r.prefill[0].SetFault(sim.Fault{Kind: sim.FaultBadHandle, Arg: "port", Leg: "P"}); err != nil {
		t.Fatal(err)
	}
	if err := r.decode[0].SetFault(sim.Fault{Kind: sim.FaultRST, Leg: "D", Count: 1}); err != nil {
		t.Fatal(err)
	}
	c := forms(prompt, 4)[0]
	met := func() bool { return len(r.decode[0].Requests()) > 0 }
	r.until(met, func(int) {
		a := r.call(c)
		r.expectWhole(c, a)
		if pathOf(a) != "decode_only bad_handle" {
			t.Errorf("went %s", pathOf(a))
		}
	})
	if n := r.metric(`xpyd_requests_total`); n != r.metric(`xpyd_decisions_total{path="decode_only",reason="bad_handle"}`) {
		t.Errorf("%v requests, decisions\n%s", n, r.metricsText())
	}
}

// If decode alone is off, the client is told.
func TestFailedPrefillIsAnErrorWhereDecodeAloneIsOff(t *testing.T) {
	together(t)
	for kind, code := range map[string]string{"rst": "prefill_failed", "badjson": "prefill_failed", "badhandle=port": "invalid_prefill_handoff", "status=302": "prefill_failed"} {
		t.Run(kind, func(t *testing.T) {
			r := newRig(t, rigOptions{config: noDecodeAlone})
			f, err := sim.ParseFault(kind)
			if err != nil {
				t.Fatal(err)
			}
			f.Leg = "P"
			if err := r.prefill[0].SetFault(f); err != nil {
				t.Fatal(err)
			}
			if a := r.call(forms(prompt, 4)[0]); a.status != 502 || a.code() != code {
				t.Errorf("%d %s", a.status, a.body)
			}
			if n := len(r.decode[0].Requests()); n != 0 {
				t.Errorf("decode was asked %d times", n)
			}
		})
	}
}
