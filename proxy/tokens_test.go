package proxy_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"xpyd/proxy"
	"xpyd/router"
)

// usageOf returns the usage that the client saw, or zeros.
func usageOf(a answer) (prompt, cached, completion int) {
	var u struct {
		Usage struct {
			Prompt     int `json:"prompt_tokens"`
			Completion int `json:"completion_tokens"`
			Details    struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	for line := range strings.Lines(a.body) {
		_ = json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &u)
	}
	return u.Usage.Prompt, u.Usage.Details.Cached, u.Usage.Completion
}

func (r *rig) expectTokens(model string, want map[string]int) {
	r.t.Helper()
	for name, n := range want {
		series := fmt.Sprintf("xpyd_%s_total{model=%q}", name, model)
		r.await(fmt.Sprintf("%s %d", series, n), func() bool { return r.metric(series) == float64(n) })
	}
}

// Tokens are counted as the usage says that the client sees, on both paths, streamed and whole. The
// cached ones are those of the engine that computed the prompt.
func TestTokensAreCountedAsUsageSays(t *testing.T) {
	together(t)
	for _, mode := range []string{router.PDAlways, router.PDNever} {
		for _, c := range forms(strings.Repeat("abcd ", 80), 5) {
			t.Run(mode+" "+c.name(), func(t *testing.T) {
				r := newRig(t, rigOptions{router: func(c *router.Config) { c.PD.Mode = mode }})
				if c.stream {
					c.more = `,"stream_options":{"include_usage":true}`
				}
				prompt, cached, completion := 0, 0, 0
				for range 2 { // the second finds the prompt in a cache
					a := r.call(c)
					r.expectWhole(c, a)
					p, k, n := usageOf(a)
					prompt, cached, completion = prompt+p, cached+k, completion+n
				}
				if prompt == 0 || cached == 0 || completion != 10 {
					t.Fatalf("usage %d, %d, %d", prompt, cached, completion)
				}
				r.expectTokens("sim", map[string]int{"prompt_tokens": prompt, "prompt_tokens_cached": cached, "completion_tokens": completion, "completions_without_usage": 0})
				if n := r.metric(`xpyd_model_requests_total{model="sim",outcome="ok"}`); n != 2 {
					t.Errorf("%v requests of the model, want 2", n)
				}
			})
		}
	}
}

// Without usage in the stream, the prefill engine has counted the prompt, and events count as tokens.
func TestTokensOfAStreamWithoutUsage(t *testing.T) {
	r := newRig(t, rigOptions{router: func(c *router.Config) { c.PD.Mode = router.PDAlways }})
	c := call{stream: true, prompt: strings.Repeat("abcd ", 80), tokens: 5}
	whole := c
	whole.stream = false
	a := r.call(whole)
	r.expectWhole(whole, a)
	prompt, cached, _ := usageOf(a)
	r.expectWhole(c, r.call(c))
	r.expectTokens("sim", map[string]int{"prompt_tokens": 2 * prompt, "completion_tokens": 10, "completions_without_usage": 1})
	if n := r.metric(`xpyd_prompt_tokens_cached_total{model="sim"}`); n <= float64(cached) {
		t.Errorf("%v cached tokens, want those of the second prompt", n)
	}
}

// A stream that breaks counts the tokens that came. A request that no engine answered counts none, and
// its model has no series.
func TestTokensOfFailures(t *testing.T) {
	r := newRig(t, rigOptions{})
	if a := r.ask("no-such-model"); a.status != http.StatusNotFound {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if n := r.metric(`xpyd_model_requests_total{model="other",outcome="client_error"}`); n != 1 {
		t.Errorf("%v requests of other models, want 1\n%s", n, r.metricsText())
	}
	c := call{stream: true, prompt: prompt + "[[D:error-done@4]]", tokens: 8}
	if a := r.call(c); !strings.Contains(a.body, `data: {"error"`) {
		t.Fatalf("%d %v %s", a.status, a.err, a.body)
	}
	r.await("counted", func() bool { return r.metric(`xpyd_model_requests_total{model="sim",outcome="broken"}`) == 1 })
	if n := r.metric("xpyd_completion_tokens_total"); n != 3 && n != 4 {
		t.Errorf("%v tokens of a stream that was cut at its fourth event", n)
	}
	if strings.Contains(r.metricsText(), "no-such-model") {
		t.Error("a model that no engine serves has series")
	}
}

// The metrics of pairs, traces and the configuration, as a scraper sees them.
func TestMetricsOfTheWholePath(t *testing.T) {
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	r := newRig(t, rigOptions{config: func(c *proxy.Config) { c.Connector = "nixl" }})
	c := call{stream: true, prompt: prompt, tokens: 4}
	r.expectWhole(c, r.call(c, "Traceparent", "00-"+trace+"-00f067aa0ba902b7-01"))
	pair := fmt.Sprintf(`xpyd_pair_transfers_total{decode=%q,prefill=%q,result="ok"}`, r.decode[0].URL(), r.prefill[0].URL())
	r.await("counted", func() bool { return r.metric("xpyd_requests_total") == 1 })
	if r.metric("xpyd_decisions_total{path=\"disaggregated\"") == 1 && r.metric(pair) != 1 {
		t.Errorf("no %s 1\n%s", pair, r.metricsText())
	}
	w := &responseRecorder{header: http.Header{}}
	req, _ := http.NewRequest(http.MethodGet, "/metrics", nil)
	req.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	r.admin().ServeHTTP(w, req)
	if n := strings.Count(w.body.String(), `# {trace_id="`+trace+`"}`); n != 3 {
		t.Errorf("%d exemplars, want one each of the duration, the first token and the tokens", n)
	}
	for _, want := range []string{`xpyd_config_info{connector="nixl",decode_policy=`, `xpyd_build_info{goversion="go1.`} {
		if r.metric(want) != 1 {
			t.Errorf("no %s", want)
		}
	}
	r.expectNothingHeld()
}
