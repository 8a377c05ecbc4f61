package soak

import (
	"fmt"
	"testing"

	"xpyd/tools/tally"
)

// More than half of a pool is never ejected. An ejection that a reload or a new engine has ended
// does not count.
func TestSoakCountsEjectionsThatRun(t *testing.T) {
	ejected := func(n int) string {
		return fmt.Sprintf(`{"role":"prefill","backend":"http://p%d","reason":"failures","for_ms":60000,"message":"backend ejected"}`, n)
	}
	for between, want := range map[string]int{
		`{"message":"completion"}`:                                         1,
		`{"message":"pools reloaded"}`:                                     0,
		`{"prefill":"http://p1","message":"prefill engine has restarted"}`: 0,
		`{"prefill":"http://p3","message":"prefill engine has restarted"}`: 1,
		`{"backend":"http://p1","message":"engine has restarted"}`:         1, // the engine's metrics say so, and it stays ejected
	} {
		v := &tally.Verdict{}
		l, err := newProxyLog(t.TempDir(), "key", newCounts(), v, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{ejected(1), between, ejected(2)} {
			l.check([]byte(line))
		}
		if got := len(v.Of(invHealth)); got != want {
			t.Errorf("%s: %d breaches, want %d", between, got, want)
		}
		l.close()
	}
}
