package router

import (
	"strings"
	"testing"
)

// The sentence shows small figures as they are, and says that a price was not measured if it was
// not.
func TestAdviceArithmetic(t *testing.T) {
	a := Advice{
		WindowSeconds: 30,
		Prefill:       PoolAdvice{Backends: 2, Load: 0.00002, Tokens: 13, SecondsPerToken: 0.0000937, BusySeconds: 0.0012181},
		Decode:        PoolAdvice{Backends: 1, Load: 0.034, KVUsage: 0.034},
	}
	a.balance()
	for _, want := range []string{
		"prefill: 13 tokens at now 93.7 µs each, 1.22 ms of 2 x 30 s, is under 0.1 %;",
		"3.4 % of the KV cache used, requests that waited at 0 % of the polls,",
		"computed there: 0 tokens at a price that is not measured yet, 0 s of 1 x 30 s, is 0 %;",
	} {
		if !strings.Contains(a.Arithmetic, want) {
			t.Errorf("no %q in\n%s", want, a.Arithmetic)
		}
	}
	for s, want := range map[float64]string{0: "0 s", 840.4: "840 s", 4.567: "4.57 s", 0.0456: "45.6 ms", 4.56e-7: "0.456 µs"} {
		if got := showSeconds(s); got != want {
			t.Errorf("%v s as %q, want %q", s, got, want)
		}
	}
}
