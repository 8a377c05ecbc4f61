package cmd

import (
	"strings"
	"testing"

	"xpyd/sim"
)

// A release with which the connector has not run is noted once, and is no fault.
func TestCheckNotesReleasesThatHaveNotRun(t *testing.T) {
	for version, noted := range map[string]bool{"0.33.0": false, "0.39.1": true} {
		p := startSim(t, sim.Options{Role: sim.RolePrefill, Version: version})
		d := startSim(t, sim.Options{Role: sim.RoleDecode, Version: version})
		out, err := runCheck("--probe", "--listen=127.0.0.1:1", "--prefill", p.URL(), "--decode", d.URL())
		if err != nil {
			t.Errorf("%s: %v\n%s", version, err, out)
		}
		if n := strings.Count(out, "is vLLM 0.39.1: xpyd's connector nixl has not run with 0.39, but with 0.26, 0.32, 0.33"); n != map[bool]int{false: 0, true: 1}[noted] {
			t.Errorf("%s is noted %d times:\n%s", version, n, out)
		}
	}
}
