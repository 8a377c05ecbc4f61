package metrics_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"xpyd/metrics"
)

func newMetrics() *metrics.Metrics {
	zero := func() float64 { return 0 }
	labels := metrics.Labels{APIs: []string{"chat"}, Outcomes: []string{"ok", "error"}, Paths: []string{"disaggregated"}, Legs: []string{"prefill", "decode"}}
	return metrics.New("test", labels, func() []metrics.BackendLoad { return nil }, nil, zero, zero, zero, zero)
}

// scrape returns the lines of /metrics that begin with prefix, in the format that accept asks for.
func scrape(m *metrics.Metrics, accept, prefix string) (lines []string) {
	r := httptest.NewRequest("GET", "/metrics", nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, r)
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, prefix) {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return lines
}

// However many models clients ask for, and however many engines serve, the series are bounded.
func TestModelsAreBounded(t *testing.T) {
	m := newMetrics()
	for i := range 1000 {
		m.Model(fmt.Appendf(nil, "asked-%d", i), false).Ended(1)
	}
	if got := scrape(m, "", "xpyd_model_requests_total{"); len(got) != 2 || got[0] != `xpyd_model_requests_total{model="other",outcome="error"} 1000` {
		t.Errorf("models that no engine has served have series: %q", got)
	}
	for range 2 {
		for i := range 300 {
			c := m.Model(fmt.Appendf(nil, "served-%d", i), true)
			c.Ended(0)
			c.Answered(metrics.Tokens{Prompt: 7, Cached: 3, Completion: 2, Told: true})
		}
	}
	for name, n := range map[string]int{
		"xpyd_model_requests_total": 2 * 101, "xpyd_prompt_tokens_total": 101, "xpyd_prompt_tokens_cached_total": 101,
		"xpyd_completion_tokens_total": 101, "xpyd_completions_without_usage_total": 101,
	} {
		if got := scrape(m, "", name+"{"); len(got) != n {
			t.Errorf("%s has %d series, want %d", name, len(got), n)
		}
	}
	for _, want := range []string{
		`xpyd_prompt_tokens_total{model="served-0"} 14`, `xpyd_prompt_tokens_cached_total{model="other"} 1200`, `xpyd_completion_tokens_total{model="served-99"} 4`,
		`xpyd_model_requests_total{model="other",outcome="ok"} 400`, `xpyd_completions_without_usage_total{model="other"} 0`,
	} {
		if got := scrape(m, "", want); len(got) != 1 {
			t.Errorf("there is no %s", want)
		}
	}
}

func TestModelsWithoutAUsualName(t *testing.T) {
	m := newMetrics()
	m.Model(nil, true).Ended(0)
	m.Model([]byte("a\xffb"), true).Ended(0)
	m.Model([]byte("x\"y\n"), true).Ended(0)
	for _, want := range []string{`{model="unnamed",outcome="ok"} 1`, "{model=\"a\uFFFDb\",outcome=\"ok\"} 1", `{model="x\"y\n",outcome="ok"} 1`} {
		if got := scrape(m, "", "xpyd_model_requests_total"+want); len(got) != 1 {
			t.Errorf("there is no %s in %q", want, scrape(m, "", "xpyd_model"))
		}
	}
	for _, line := range scrape(m, "", "") {
		if !utf8.ValidString(line) {
			t.Errorf("%q is no UTF-8", line)
		}
	}
}

// A known model costs a completion no allocation.
func TestKnownModelAllocates(t *testing.T) {
	m, name := newMetrics(), []byte("Qwen/Qwen3-8B")
	m.Model(name, true)
	if n := testing.AllocsPerRun(100, func() {
		c := m.Model(name, true)
		c.Ended(0)
		c.Answered(metrics.Tokens{Prompt: 7, Cached: 3, Completion: -1})
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// A trace is the exemplar of the buckets that its completion counts in, for scrapers that know exemplars.
func TestExemplars(t *testing.T) {
	const trace, open = "4bf92f3577b34da6a3ce929d0e0e4736", "application/openmetrics-text; version=1.0.0"
	m := newMetrics()
	m.Request(0, 0, 400*time.Millisecond, trace)
	m.Request(0, 0, 3*time.Second, "")
	m.Stream(0, 0, 30*time.Millisecond, time.Second, 11, trace)
	for bucket, want := range map[string]string{
		`xpyd_request_duration_seconds_bucket{api="chat",le="0.5"}`:        ` 1 # {trace_id="` + trace + `"} 0.4 `,
		`xpyd_request_duration_seconds_bucket{api="chat",le="5.0"}`:        ` 2`,
		`xpyd_ttft_seconds_bucket{api="chat",path="disaggregated",le="0.`:  ` # {trace_id="` + trace + `"} 0.03 `,
		`xpyd_time_per_output_token_seconds_bucket{api="chat",le="0.1"} 1`: ` # {trace_id="` + trace + `"} 0.1 `,
	} {
		if got := strings.Join(scrape(m, open, bucket), "\n"); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", bucket, got, want)
		}
	}
	for _, line := range scrape(m, "text/plain", "") {
		if strings.Contains(line, trace) {
			t.Errorf("the text format has an exemplar: %s", line)
		}
	}
}

// A value outside the closed sets is a bug, but no request ends because of it.
func TestUnknownIndexesCountAsOther(t *testing.T) {
	m := newMetrics()
	m.Leg(7, "http://p", "ok", time.Second)
	m.Queued(7, time.Second)
	m.Request(7, 7, time.Second, "")
	m.Model(nil, false).Ended(7)
	for _, want := range []string{
		`xpyd_leg_requests_total{backend="http://p",leg="other",outcome="ok"} 1`, `xpyd_queue_seconds_count{role="other"} 1`,
		`xpyd_requests_total{api="other",outcome="other"} 1`, `xpyd_model_requests_total{model="other",outcome="other"} 1`,
	} {
		if got := scrape(m, "", want); len(got) != 1 {
			t.Errorf("there is no %s", want)
		}
	}
}

// A prefill is measured in steps of milliseconds, a decode in steps of seconds.
func TestLegsHaveTheirOwnBuckets(t *testing.T) {
	m := newMetrics()
	m.Leg(0, "http://p", "ok", 15*time.Millisecond)
	m.Leg(1, "http://d", "ok", 45*time.Second)
	for _, want := range []string{
		`xpyd_leg_duration_seconds_bucket{leg="prefill",le="0.01"} 0`, `xpyd_leg_duration_seconds_bucket{leg="prefill",le="0.02"} 1`,
		`xpyd_leg_duration_seconds_bucket{leg="decode",le="40"} 0`, `xpyd_leg_duration_seconds_bucket{leg="decode",le="50"} 1`,
	} {
		if got := scrape(m, "", want); len(got) != 1 {
			t.Errorf("there is no %s in %q", want, scrape(m, "", "xpyd_leg_duration_seconds_bucket"))
		}
	}
}
