package migrate

import (
	"strings"
	"testing"

	pools "xpyd/router"
)

// Flags of other routers that make them pick data-parallel ranks say how xpyd does it, and the pools that
// the note writes are pools that xpyd reads.
func TestFlagsOfRanksNameThePools(t *testing.T) {
	for line, want := range map[string]string{
		"sglang-router --dp-aware":           "--dp-aware: xpyd asks vLLM engines for their number of ranks where the pools say so, as http://host:8000@auto",
		"smg --dp-aware":                     "--dp-aware: xpyd asks vLLM engines",
		"smg --dp-minimum-tokens-scheduler":  "--dp-minimum-tokens-scheduler: policy least_tokens picks the rank with the fewest tokens, where the pools name the ranks",
		"smg --dp-minimum-tokens-scheduler ": "as http://host:8000@0..7",
	} {
		router, flags, _ := strings.Cut(line, " ")
		text, err := YAML(router, words("--worker-urls http://host:8000 "+flags))
		if err != nil || !strings.Contains(string(text), want) || strings.Contains(string(text), "vLLM picks") {
			t.Errorf("%s: %v\n%s", line, err, text)
		}
	}
	for line, want := range map[string]string{
		"smg --backend vllm --dp-aware --worker-urls http://host:8000 http://other:8000@0..1":                         "http://host:8000@auto,http://other:8000@0,http://other:8000@1",
		"sglang-router --dp-aware --pd-disaggregation --prefill http://p:8000 --decode http://d:8000":                 "http://d:8000@auto",
		"sglang-router --runtime vllm --dp-aware --pd-disaggregation --prefill http://p:8000 --decode http://d:8000/": "http://d:8000@auto",
	} {
		router, flags, _ := strings.Cut(line, " ")
		text, err := YAML(router, words(flags))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		c, err := load(t, text)
		if err != nil || strings.Join(pools.Texts(c.Router.Decode), ",") != want || len(c.Router.Prefill) > 0 && c.Router.Prefill[0].URL != "http://p:8000@auto" || !strings.Contains(string(text), "--dp-aware") {
			t.Errorf("%s: %v\n%s", line, err, text)
		}
	}
	text, err := YAML("smg", words("--worker-urls http://host:8000@0..7 --policy least_load --dp-minimum-tokens-scheduler"))
	if err != nil {
		t.Fatal(err)
	}
	if c, err := load(t, text); err != nil || len(c.Router.Decode) != 8 || c.Router.DecodePolicy != "least_tokens" {
		t.Errorf("%v\n%s", err, text)
	}
}
