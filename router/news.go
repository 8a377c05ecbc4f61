package router

import "xpyd/router/prefix"

// News tells the estimate of a backend's cache what the events of its engine say. Its methods may be called while
// requests are routed.
type News struct{ b *Backend }

// NewsOf returns that of b.
func NewsOf(b *Backend) News { return News{b} }

// Listen makes to hear of the prompts that the engine computes; nil ends that.
func (n News) Listen(to chan<- prefix.Heard) { n.b.cache.Listen(to) }

// Live reports whether somebody listens.
func (n News) Live() bool { return n.b.cache.Live() }

// Counts are the counters of the news.
func (n News) Counts() *prefix.News { return &n.b.cache.News }

// Stored notes that the engine has the blocks of these keys.
func (n News) Stored(keys []uint64) {
	if t := n.table(); t != nil && len(keys) > 0 {
		t.Hold(&n.b.cache, keys, n.b.router.now())
	}
}

// Removed notes that the engine no longer has the blocks of these keys.
func (n News) Removed(keys []uint64) {
	if t := n.table(); t != nil && len(keys) > 0 {
		t.Drop(&n.b.cache, keys)
	}
}

// Grown notes that the engine has stored new blocks of so many tokens.
func (n News) Grown(tokens int) {
	n.b.cache.Grow(int(float64(tokens) * n.b.router.tokenBytes.Load() / blockBytes(n.b.router)))
}

// Cleared notes that the engine's cache is empty.
func (n News) Cleared() { n.b.cache.Clear() }

// NewsMemory is Routing.KVEventsMemory.
func NewsMemory(s *Snapshot) int64 { return s.routing.KVEventsMemory }

func (n News) table() *prefix.Table { return n.b.router.Snapshot().pool(n.b.Role).prefix }
