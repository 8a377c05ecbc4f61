//go:build !race

package proxy_test

const (
	// testsPerCore is how many tests run together for each core, unless -parallel says otherwise. They
	// mostly wait.
	testsPerCore = 6
	// idleRequests are sent to engines that close idle connections. Some meet that.
	idleRequests = 5000
	// eachCut has streams cut at each byte of some events, and not at each third.
	eachCut = true
)
