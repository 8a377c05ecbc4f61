package kvevents

import "xpyd/router/prefix"

// cache is what the router believes of the cache of one backend.
type cache interface {
	Stored(keys []uint64)
	Removed(keys []uint64)
	Grown(tokens int)
	Cleared()
	Counts() *prefix.News
	Listen(to chan<- prefix.Heard)
}

// caches are those of all backends of one engine, which has one cache: an engine without a role has two backends.
type caches []cache

// Stored notes that the engine has what the keys stand for.
func (c caches) Stored(keys []uint64) {
	for _, x := range c {
		x.Stored(keys)
	}
}

// Removed notes that the engine no longer has it.
func (c caches) Removed(keys []uint64) {
	for _, x := range c {
		x.Removed(keys)
	}
}

// Grown notes that the engine has stored blocks of so many tokens.
func (c caches) Grown(tokens int) {
	for _, x := range c {
		x.Grown(tokens)
	}
}

// Cleared notes that the engine has nothing.
func (c caches) Cleared() {
	for _, x := range c {
		x.Cleared()
	}
}

// Listen has to told of the prompts that the engine computes; nil ends that.
func (c caches) Listen(to chan<- prefix.Heard) {
	for _, x := range c {
		x.Listen(to)
	}
}

// count calls f for the counters of each.
func (c caches) count(f func(*prefix.News)) {
	for _, x := range c {
		f(x.Counts())
	}
}
