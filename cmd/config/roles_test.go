package config

import (
	"testing"
)

// An engine in both pools, however it is written, is refused.
func TestOneEngineInBothPools(t *testing.T) {
	const want = `config: prefill and decode: "http://p.example:80" is in both pools; keep it in one, ` +
		`or name it once as an engine without a role: --engine http://p.example:80 (flag --prefill, XPYD_PREFILL) (flag --decode, XPYD_DECODE)`
	for _, same := range []string{"http://p.example:80", "http://P.Example", "http://p.example/", "HTTP://p.example:80/", "http://p.example weight=2"} {
		args := []string{"--prefill", "http://other:1,http://p.example", "--decode", "http://d:1", "--decode", same}
		_, err := load(t, args, nil)
		checkUsage(t, err, want)
	}
	if _, err := load(t, []string{"--prefill", "http://p.example:1", "--decode", "http://p.example:2"}, nil); err != nil {
		t.Errorf("two engines of a host: %v", err)
	}
}
