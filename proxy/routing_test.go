package proxy_test

import (
	"strings"
	"testing"

	"xpyd/sim"
)

// The fault matrix would prove nothing about a routing that the rigs of its tests do not use.
func TestRigIsRoutedAsTheMatrixAsks(t *testing.T) {
	alone(t)
	for _, tc := range []struct {
		variable, value string
		prefill, decode int // engines of three that the same prompt goes to, sent three times
	}{
		{"XPYD_PREFILL_POLICY", "round_robin", 3, 3},
		{"XPYD_PREFILL_POLICY", "consistent_hash", 1, 3},
		{"XPYD_DECODE_POLICY", "consistent_hash", 3, 1},
		{"XPYD_PD_MODE", "never", 0, 3},
	} {
		t.Run(tc.variable+"="+tc.value, func(t *testing.T) {
			t.Setenv("XPYD_PREFILL_POLICY", "round_robin")
			t.Setenv("XPYD_DECODE_POLICY", "round_robin")
			t.Setenv("XPYD_PD_MODE", "always")
			t.Setenv(tc.variable, tc.value)
			r := newRig(t, rigOptions{prefill: 3, decode: 3})
			c := call{prompt: strings.Repeat("the same ", 200), tokens: 2}
			for range 3 {
				r.expectWhole(c, r.call(c))
				r.await("idle", func() bool { return r.metric("xpyd_in_flight") == 0 })
			}
			r.await("recorded by decode engines", func() bool { requests, _ := asked(r.decode); return requests == 3 })
			if _, engines := asked(r.decode); engines != tc.decode {
				t.Errorf("%d decode engines were asked, want %d", engines, tc.decode)
			}
			if tc.prefill > 0 {
				r.await("recorded by prefill engines", func() bool { requests, _ := asked(r.prefill); return requests == 3 })
			}
			if _, engines := asked(r.prefill); engines != tc.prefill {
				t.Errorf("%d prefill engines were asked, want %d", engines, tc.prefill)
			}
		})
	}
}

// asked counts the requests that came to engines, and the engines that had any.
func asked(all []*sim.Engine) (requests, engines int) {
	for _, e := range all {
		if n := len(e.Requests()); n > 0 {
			requests, engines = requests+n, engines+1
		}
	}
	return requests, engines
}
