package routing

import (
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"xpyd/sim"
	"xpyd/tools/process"
)

func (a *answer) askOnce(t *testing.T, addr string, q *request) error {
	t.Helper()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	return a.ask(t.Context(), &http.Client{Transport: transport}, addr, q, false)
}

const (
	roleEvent  = `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}` + "\n\n"
	tokenEvent = `data: {"choices":[{"index":0,"delta":{"content":" a"}}]}` + "\n\n"
	usageEvent = `data: {"choices":[],"usage":{"prompt_tokens":40,"total_tokens":42,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":32}}}` + "\n\n"
	doneLine   = "data: [DONE]\n\n"
)

func TestReadStream(t *testing.T) {
	for _, tc := range []struct{ name, stream, want string }{
		{"whole", roleEvent + tokenEvent + tokenEvent + usageEvent + doneLine, ""},
		{"cut", roleEvent + tokenEvent + usageEvent, "without [DONE]"},
		{"no text", roleEvent + usageEvent + doneLine, "has 2 tokens"},
		{"too few tokens", roleEvent + tokenEvent + strings.Replace(usageEvent, `tokens":2`, `tokens":1`, 1) + doneLine, "has 1 tokens, not 2"},
		{"an error event", roleEvent + `data: {"error":{"message":"EngineCore"}}` + "\n\n" + doneLine, "EngineCore"},
		{"another prompt's KV", roleEvent + strings.Replace(tokenEvent, " a", " WRONG-KV-1f", 1) + usageEvent + doneLine, "another prompt's KV"},
	} {
		var a answer
		err := a.readStream(strings.NewReader(tc.stream), 2)
		if tc.want == "" {
			if err != nil || a.tokens != 2 || a.cached != 32 || a.first.IsZero() || a.last.Before(a.first) {
				t.Errorf("%s: error %v, answer %+v", tc.name, err, a)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q in it", tc.name, err, tc.want)
		}
	}
}

func TestCounters(t *testing.T) {
	const text = `# TYPE vllm:prompt_tokens_by_source_total counter
vllm:prompt_tokens_total{engine="0",model_name="m"} 500.0
vllm:prompt_tokens_by_source_total{engine="0",model_name="m",source="local_cache_hit"} 7.0
vllm:prompt_tokens_by_source_total{engine="0",model_name="m",source="local_compute"} 1.5e+06
`
	page, err := process.ReadPage(strings.NewReader(text))
	if n := computed(page); err != nil || n != 1.5e6 {
		t.Errorf("%g tokens, error %v", n, err)
	}
	page, err = process.ReadPage(strings.NewReader("python_info{a=\"b\"} 1.0\n"))
	if n := computed(page); err != nil || !math.IsNaN(n) {
		t.Errorf("without the counter: %g, error %v, want NaN", n, err)
	}
}

// A simulated engine accepts the change of its transfers. Anything else that answers does not.
func TestTransfersBecomeSlower(t *testing.T) {
	e, err := sim.Start(sim.Options{Role: sim.RoleDecode, Model: model}.Fast())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	s := &scenario{workload: workload{engines: usualEngines(), slower: time.Millisecond}}
	var then census
	if err := s.accompany(t.Context(), process.Pools{Decode: []string{e.Addr()}}, time.Now(), &then); err != nil {
		t.Fatal(err)
	}
	if len(then.decode) != 1 || then.decode[0] != 0 {
		t.Errorf("census %+v, want one decode engine that has computed nothing", then)
	}
	deaf := httptest.NewServer(http.NotFoundHandler())
	defer deaf.Close()
	if err := setTransfer(t.Context(), strings.TrimPrefix(deaf.URL, "http://"), time.Second); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("an engine without the route: error %v", err)
	}
}
