package proxy_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	"xpyd/router"
	"xpyd/sim"
)

// Metrics tell which engine is slow, which pair, and what failed where.
func TestMetricsByEngine(t *testing.T) {
	r := newRig(t, rigOptions{prefill: 2, router: func(c *router.Config) { c.PD.Mode = router.PDAlways }})
	p, d := r.prefill[0].URL(), r.decode[0].URL()
	for _, c := range forms(prompt, 5) {
		r.expectWhole(c, r.call(c))
	}
	r.await("counted", func() bool {
		return r.metric(`xpyd_backend_first_token_seconds_count{backend="`+d+`",leg="decode"}`) == 2
	})
	for series, want := range map[string]float64{
		`xpyd_backend_first_token_seconds_count{`:                        4 + 2, // each prefill leg, and the streams of decode
		`xpyd_backend_time_per_output_token_seconds_count{backend="` + d: 2,
		`xpyd_pair_transfers_timed_total{`:                               2,
		`xpyd_model_ttft_seconds_count{model="sim"}`:                     2,
		`xpyd_model_time_per_output_token_seconds_count{model="sim"}`:    2,
		`xpyd_retries_total{`:                                            0,
	} {
		if got := r.metric(series); got != want {
			t.Errorf("%s: %v, want %v", series, got, want)
		}
	}
	if r.metric(`xpyd_pair_transfer_seconds_total{`) <= 0 || r.metric(`xpyd_backend_first_token_seconds_sum{backend="`+d) <= 0 {
		t.Error("the times are missing")
	}
	if err := r.prefill[0].SetFault(sim.Fault{Kind: sim.FaultRST, Leg: "P"}); err != nil {
		t.Fatal(err)
	}
	c := forms(prompt, 5)[0]
	r.until(func() bool {
		return r.metric(`xpyd_leg_errors_total{backend="`+p+`",code="prefill_failed",leg="prefill"}`) > 0
	}, func(int) { r.expectWhole(c, r.call(c)) })
	if n := r.metric(`xpyd_retries_total{leg="prefill"}`); n == 0 {
		t.Error("no retry is counted")
	}
}

// Another prefill engine is a retry too where it begins together with decode.
func TestRetriesOfLegsThatStartTogether(t *testing.T) {
	reached := make(chan struct{}, 1)
	fail := func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		<-reached
		w.WriteHeader(http.StatusInternalServerError)
	}
	p, other := newStub(t, fail), newStub(t, fail)
	d := newStub(t, func(_ http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		reached <- struct{}{}
		<-q.Context().Done()
	})
	r := newRig(t, rigOptions{prefill: 2, dialect: newPushDialect(), router: func(c *router.Config) {
		c.Prefill = router.MustEntries(p.server.URL, other.server.URL)
		d.asDecode(c)
	}})
	if a := r.call(forms(prompt, 2)[0]); a.status < 500 {
		t.Errorf("%d %s, although no prefill succeeds", a.status, a.body)
	}
	legs, retries := r.metric(`xpyd_leg_errors_total{`), r.metric(`xpyd_retries_total{leg="prefill"}`)
	if retries != 1 {
		t.Errorf("%v retries, want 1 of %v legs that failed\n%s", retries, legs, r.logs)
	}
}

// A prefill engine that is gone and has no other one beside it is no reason to count a retry.
func TestNoRetryWithoutAnotherEngine(t *testing.T) {
	r := newRig(t, rigOptions{router: func(c *router.Config) { c.PD.Mode, c.Health.Interval = router.PDAlways, time.Hour }})
	r.prefill[0].Kill()
	c := forms(prompt, 5)[0]
	r.expectWhole(c, r.call(c))
	if failed, retries := r.metric(`xpyd_leg_errors_total{backend="`+r.prefill[0].URL()), r.metric(`xpyd_retries_total{`); failed != 1 || retries != 0 {
		t.Errorf("%v legs failed and %v retries are counted, want 1 and 0\n%s", failed, retries, r.logs)
	}
}
