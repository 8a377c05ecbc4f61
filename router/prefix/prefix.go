// Package prefix remembers which backend has had which beginnings of prompts, as hashes of
// their blocks. It knows no pools and chooses nobody.
package prefix

const (
	// BlockBytes is how much of a prompt one hash stands for.
	BlockBytes = 256
	// tickNanos is the unit in which the tables tell how long something was not used.
	tickNanos = 1 << 30
)
