package router

import (
	"math"
	"sync/atomic"
)

// vitals are what a choice reads of each backend: one cache line, of which it needs the
// first word only where nothing is unusual about the backend. Times are nanoseconds of
// the router's clock, 0 is never. The
// fields after the counts are written by the set methods alone, which mark what they write.
type vitals struct {
	inflight     counter
	tokens       atomic.Int64  // estimated prompt tokens of the requests in flight
	seed         uint64        // hash of the URL; never changes
	weight       atomic.Uint64 // bits of a float64: its part of the heaviest in the pool, above 0 to 1
	refusedUntil atomic.Int64
	ejectedUntil atomic.Int64
	rampFrom     atomic.Int64 // start of the slow start; 0: takes its full share
	state        atomic.Int32
	external     atomic.Int32 // requests of others than this process when the engine last told, see externalAt
}

// counter counts the leases on a backend, and holds the mark of one that is unusual.
type counter struct{ word atomic.Int64 }

// marked stands in a counter above any count. A word below it is the count.
const marked = 1 << 32

// Load is the number of leases.
func (c *counter) Load() int64 { return countOf(c.word.Load()) }

func countOf(word int64) int64 { return int64(int32(word)) }

// Add counts n leases more.
func (c *counter) Add(n int64) { c.word.Add(n) }

// reserve counts one lease more, unless that would pass limit (0: none).
func (c *counter) reserve(limit int64) bool {
	if limit == 0 {
		c.word.Add(1)
		return true
	}
	for {
		word := c.word.Load()
		if countOf(word) >= limit {
			return false
		}
		if c.word.CompareAndSwap(word, word+1) {
			return true
		}
	}
}

// mark has choices look at the fields behind the count.
func (v *vitals) mark() { v.inflight.word.Or(marked) }

func (v *vitals) setWeight(part float64) {
	v.weight.Store(math.Float64bits(part))
	v.mark()
}

// setRefused passes the backend over until then, unless it is passed over for longer already.
func (v *vitals) setRefused(until int64) {
	for was := v.refusedUntil.Load(); was < until; was = v.refusedUntil.Load() {
		if v.refusedUntil.CompareAndSwap(was, until) {
			v.mark()
			return
		}
	}
}

// clearRefused takes setRefused back.
func (v *vitals) clearRefused() {
	v.refusedUntil.Store(0)
	v.mark()
}

func (v *vitals) setEjected(until int64) {
	v.ejectedUntil.Store(until)
	v.mark()
}

func (v *vitals) setRamp(from int64) {
	v.rampFrom.Store(from)
	v.mark()
}

func (v *vitals) setState(to State) {
	v.state.Store(int32(to))
	v.mark()
}

// setExternal marks only where there are some: none is the usual.
func (v *vitals) setExternal(n int32) {
	v.external.Store(n)
	if n > 0 {
		v.mark()
	}
}

// unmark takes the mark off a backend that takes a full share and has no external load.
// What is written in the meantime is either seen by the second look or marked after it.
func (b *Backend) unmark(q *query) {
	b.inflight.word.And(^marked)
	if b.part(q) != 1 || b.externalAt(q.now) > 0 {
		b.mark()
	}
}

// part reads all there is: down or left alone for a while, slow start, weight.
func (v *vitals) part(q *query) float64 {
	if State(v.state.Load()) == Down || v.refusedUntil.Load() > q.now || v.ejectedUntil.Load() > q.now {
		return 0
	}
	return v.share(q.now, q.slowStart) * math.Float64frombits(v.weight.Load())
}
