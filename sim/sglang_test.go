package sim_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"xpyd/sim"
)

// An engine of SGLang answers its own routes, and those of vLLM only where both have them.
func TestSGLangRoutes(t *testing.T) {
	p, _ := pair(t, sim.Options{Connector: sim.ConnectorSGLang})
	for path, want := range map[string]string{
		"/health": "", "/health_generate": "", "/ping": "",
		"/v1/models":   `{"object":"list","data":[{"id":"`,
		"/model_info":  `"disaggregation_mode":"prefill"`,
		"/server_info": `"version":"0.5.23"`,
		"/metrics":     "\nsglang:num_running_reqs{engine_type=\"prefill\",",
	} {
		status, answer := fetchText(t, p.URL()+path)
		if status != 200 || !strings.Contains(answer, want) || strings.Contains(answer, "vllm:") {
			t.Errorf("%s: %d %s", path, status, answer)
		}
	}
	for _, path := range []string{"/version", "/load"} {
		if status, answer := fetchText(t, p.URL()+path); status != 404 {
			t.Errorf("%s: %d %s", path, status, answer)
		}
	}
}

func fetchText(t *testing.T, url string) (status int, answer string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}
