package migrate

import (
	"strings"
	"testing"
)

// A configuration for SGLang's engines says how to get one for vLLM's. With --backend vllm, this advice would be wrong,
// and the flag has an equivalent: it says what the engines are.
func TestBackendSaysWhatTheEnginesAre(t *testing.T) {
	const pools = " --pd-disaggregation --prefill http://p:1 --decode http://d:1"
	for _, tc := range []struct {
		line          string
		sglang, noted bool
	}{
		{pools, true, false},
		{pools + " --backend sglang", true, false},
		{pools + " --backend vllm", false, false},
		{pools + " --runtime vllm", false, false},
		{pools + " --runtime sglang --backend vllm", false, false},
		{" --worker-urls http://w:1", false, false},
		{" --worker-urls http://w:1 --backend vllm", false, true},
	} {
		for _, name := range []string{"smg", "sglang-router"} {
			text, err := YAML(name, strings.Fields(tc.line))
			if err != nil {
				t.Fatalf("%s%s: %v", name, tc.line, err)
			}
			settings, notes, _ := strings.Cut(string(text), "no equivalent")
			if strings.Contains(settings, "add --backend vllm") != tc.sglang || strings.Contains(settings, "connector: sglang") != tc.sglang {
				t.Errorf("%s%s: is it for SGLang's engines, and says so?\n%s", name, tc.line, text)
			}
			if strings.Contains(notes, "--backend") != tc.noted {
				t.Errorf("%s%s: does --backend have no equivalent?\n%s", name, tc.line, text)
			}
		}
	}
}
