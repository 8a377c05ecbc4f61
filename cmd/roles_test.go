package cmd

import (
	"strings"
	"testing"
)

// check and serve refuse an engine in both pools, however it is written.
func TestCheckAndServeRefuseOneEngineInBothPools(t *testing.T) {
	const want = `config: prefill and decode: "http://p.example:80" is in both pools; keep it in one, ` +
		`or name it once as an engine without a role: --engine http://p.example:80 (flag --prefill, XPYD_PREFILL) (flag --decode, XPYD_DECODE)`
	for _, same := range []string{"http://p.example:80", "http://P.Example", "http://p.example/", "HTTP://p.example:80/", "http://p.example weight=2"} {
		args := []string{"--prefill", "http://other:1,http://p.example", "--decode", "http://d:1", "--decode", same}
		_, err := runCheck(args...)
		checkUsage(t, err, want)
	}
	p := startSelf(t, "serve", "--prefill", "http://p.example", "--decode", "http://p.example")
	p.gone()
	if got := strings.Join(p.others, "\n"); got != "xpyd: "+want || p.exit() != exitUsage {
		t.Errorf("serve said %q", got)
	}
}
