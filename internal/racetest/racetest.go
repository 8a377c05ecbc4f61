// Package racetest leaves out tests where they find nothing.
package racetest

import "testing"

// SkipPure skips a test under the race detector, and with -short. It is for tests of one goroutine that computes for a
// while, reads files, or builds programs that the detector is not in. It has nothing to find there, and makes them ten
// times slower. make test runs all.
func SkipPure(t *testing.T) {
	t.Helper()
	if enabled || testing.Short() {
		t.Skip("make test runs it: one goroutine computes, and the race detector has nothing to find")
	}
}
