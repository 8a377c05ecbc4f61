package migrate

import (
	"strings"
	"testing"
)

// Flags of other routers that make them pick data-parallel ranks say how xpyd does it, and the pools that
// the note writes are pools that xpyd reads.
func TestFlagsOfRanksNameThePools(t *testing.T) {
	for line, want := range map[string]string{
		"sglang-router --dp-aware":           "--dp-aware: xpyd asks no engine for its number of ranks; name those of vLLM engines in the pools, as http://host:8000@0..7",
		"smg --dp-aware":                     "--dp-aware: xpyd asks no engine",
		"smg --dp-minimum-tokens-scheduler":  "--dp-minimum-tokens-scheduler: policy least_tokens picks the rank with the fewest tokens, where the pools name the ranks",
		"smg --dp-minimum-tokens-scheduler ": "as http://host:8000@0..7",
	} {
		router, flags, _ := strings.Cut(line, " ")
		text, err := YAML(router, words("--worker-urls http://host:8000 "+flags))
		if err != nil || !strings.Contains(string(text), want) || strings.Contains(string(text), "vLLM picks") {
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
