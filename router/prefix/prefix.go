// Package prefix remembers which backend has had which prefixes of prompts, as hashes of their blocks.
// It knows no pools and chooses no backend.
package prefix

const (
	// tickNanos is the unit of time in which the tables count how long a line was not used.
	tickNanos = 1 << 30
)
