package cmd

import (
	"strings"
	"testing"

	"xpyd/sim"
)

// Only some engines were started with --tool-call-parser, or with the same --max-model-len.
func TestCheckProbeComparesFlags(t *testing.T) {
	start := func(role sim.Role, parser string, room int) string {
		e, err := sim.Start(sim.Options{Role: role, ToolCallParser: parser, MaxModelLen: room}.Fast())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close() })
		return e.URL()
	}
	probe := func(prefill string, decode ...string) string {
		args := []string{"--probe", "--prefill", prefill}
		for _, d := range decode {
			args = append(args, "--decode", d)
		}
		out, _ := runCheck(args...)
		return out
	}
	calls, bare := start("decode", "hermes", 0), start("decode", "", 0)
	small := start("prefill", "", 4096)
	for _, tc := range []struct{ name, out, want string }{
		{"prefill", probe(small, calls), "note: prefill " + small + " refuses tools"},
		{"decode", probe(start("prefill", "hermes", 0), calls, bare), "does not fit: decode " + bare + " refuses tools"},
		{"length", probe(small, bare), "note: prefill " + small + " takes 4096 tokens of prompt and answer"},
	} {
		if !strings.Contains(tc.out, tc.want) {
			t.Errorf("%s: got\n%s\nwant %s", tc.name, tc.out, tc.want)
		}
	}
	if out := probe(start("prefill", "", 0), bare); strings.Contains(out, "tools") || strings.Contains(out, "tokens of prompt") {
		t.Errorf("engines without parsers: got\n%s", out)
	}
}
