//go:build race

package proxy_test

// These have other values without the race detector. With it tests work more, and what it looks for does not depend on
// how often a fault comes.
const (
	testsPerCore = 2
	idleRequests = 1000
	eachCut      = false
)
