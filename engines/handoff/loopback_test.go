package handoff

import "testing"

func TestLoopback(t *testing.T) {
	for host, want := range map[string]bool{
		"127.0.0.1": true, "127.1.2.3": true, "::1": true, "localhost": true, "LocalHost": true,
		"10.0.0.1": false, "p1": false, "": false, "::2": false, "12.7.0.1": false,
	} {
		if got := loopback([]byte(host)); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
}
