package metrics_test

import (
	"fmt"
	"testing"
	"time"

	"xpyd/metrics"
)

// With 512 engines, two models and 1,024 pairs, the series are bounded. Those of engines that have left are dropped.
func TestEnginesAreBounded(t *testing.T) {
	const prefills, decodes, pairs = 256, 256, 1024
	var loads []metrics.BackendLoad
	labels := metrics.Labels{
		APIs: []string{"chat"}, Outcomes: []string{"ok", "error"}, Paths: []string{"disaggregated"}, Legs: []string{"prefill", "decode"}, Codes: []string{"", "prefill_failed", "decode_failed"},
	}
	zero := func() float64 { return 0 }
	m := metrics.New("test", labels, func() []metrics.BackendLoad { return loads }, nil, zero, zero, zero, zero)
	m.WatchPairs(func() (all []metrics.PairLoad) {
		for i := range pairs {
			all = append(all, metrics.PairLoad{Prefill: fmt.Sprint("http://prefill-", i/4), Decode: fmt.Sprint("http://decode-", i%4), OK: 2, Failed: 1, Timed: 2, Seconds: 3})
		}
		return all
	})
	use := func() {
		for i := range prefills + decodes {
			leg, role := 0, "prefill"
			if i >= prefills {
				leg, role = 1, "decode"
			}
			url := fmt.Sprintf("http://%s-%d", role, i%prefills)
			for _, outcome := range []string{"ok", "gateway", "engine"} {
				m.Leg(leg, url, outcome, time.Second)
			}
			m.LegError(leg, url, 1+leg)
			m.FirstToken(leg, url, time.Second)
			if leg == 1 {
				m.Streamed(url, time.Second, 11)
			}
			m.Ejection(role, url, "failures")
		}
	}
	use()
	for i := range prefills + decodes {
		loads = append(loads, metrics.BackendLoad{Role: []string{"prefill", "decode"}[i/prefills], URL: fmt.Sprintf("http://%s-%d", []string{"prefill", "decode"}[i/prefills], i%prefills), Engine: &metrics.EngineLoad{}})
	}
	for range 3 { // more of the same makes no more series
		use()
	}
	const engines = prefills + decodes
	for name, want := range map[string]int{
		"xpyd_leg_requests_total{": 3 * engines, "xpyd_leg_errors_total{": engines, "xpyd_backend_first_token_seconds_": 2 * engines,
		"xpyd_backend_time_per_output_token_seconds_": 2 * decodes, "xpyd_engine_restarts_total{": engines, "xpyd_engine_transfer_bytes_total{": engines,
		"xpyd_pair_transfer_seconds_total{": pairs, "xpyd_pair_transfers_timed_total{": pairs, "xpyd_pair_transfers_total{": 2 * pairs, "xpyd_retries_total{": 2,
	} {
		if got := len(scrape(m, "", name)); got != want {
			t.Errorf("%s: %d series, want %d", name, got, want)
		}
	}
	// An engine has 10 to 30 series, a pair 5: the page of 512 engines stays below two megabytes.
	if got, most := len(scrape(m, "", "xpyd_")), 26*engines+5*pairs+200; got > most {
		t.Errorf("%d series, want at most %d", got, most)
	}
	if got := scrape(m, "", `xpyd_backend_time_per_output_token_seconds_sum{backend="http://decode-7"}`); len(got) != 1 || got[0][len(got[0])-3:] != "0.4" {
		t.Errorf("%q, want 4 gaps of 0.1 s", got)
	}
	loads = nil
	m.Forget("http://decode-7")
	if got := scrape(m, "", "xpyd_backend_time_per_output_token_seconds_"); len(got) != 2*(decodes-1) {
		t.Errorf("%d series after one engine is forgotten", len(got))
	}
	if got := scrape(m, "", "xpyd_leg_errors_total{"); len(got) != engines-1 {
		t.Errorf("%d series of errors after one engine is forgotten", len(got))
	}
}
