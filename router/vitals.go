package router

import (
	"math"
	"sync/atomic"
)

// vitals are the fields of a backend that choices read, in one cache line. If nothing is unusual
// about the backend, they read only its first word. Times are nanoseconds of the router's clock,
// and 0 is never. Only the set methods write the fields after the counts, because they mark what
// they write.
type vitals struct {
	inflight     counter
	tokens       atomic.Int64  // estimated prompt tokens of the requests in flight
	seed         uint64        // hash of the URL; never changes
	weight       atomic.Uint64 // bits of a float64, above 0 and up to 1: its part of the heaviest weight, see Trouble.weight
	refusedUntil atomic.Int64
	ejectedUntil atomic.Int64
	rampFrom     atomic.Int64 // start of the slow start; 0 if it takes its full share
	state        atomic.Int32
	external     atomic.Int32 // requests of other clients at the last reading, see externalAt
}

// counter counts the leases on a backend. It also holds the mark of a backend that is unusual, and
// whether it takes no more of them.
type counter struct{ word atomic.Int64 }

// marked is a bit of a counter above any count. A word below it is the count itself.
const marked = 1 << 32

// closed is another. It is in the word that reserve changes, so no lease can slip in after it.
const closed = 1 << 33

// Load is the number of leases.
func (c *counter) Load() int64 { return countOf(c.word.Load()) }

func countOf(word int64) int64 { return int64(int32(word)) }

// Add counts n more leases.
func (c *counter) Add(n int64) { c.word.Add(n) }

// reserve counts one more lease, unless that would exceed limit or the backend is closed. A limit of
// 0 is none.
func (c *counter) reserve(limit int64) bool {
	if limit == 0 {
		if c.word.Add(1)&closed == 0 {
			return true
		}
		c.word.Add(-1)
		return false
	}
	for {
		word := c.word.Load()
		if countOf(word) >= limit || word&closed != 0 {
			return false
		}
		if c.word.CompareAndSwap(word, word+1) {
			return true
		}
	}
}

func (c *counter) open() { c.word.And(^closed) }

// close also marks the backend, so that choices see that it is closed.
func (c *counter) close() { c.word.Or(closed | marked) }

// mark makes choices read the fields after the count.
func (v *vitals) mark() { v.inflight.word.Or(marked) }

func (v *vitals) setWeight(part float64) {
	v.weight.Store(math.Float64bits(part))
	v.mark()
}

// setRefused passes the backend over until then. It never shortens such a time.
func (v *vitals) setRefused(until int64) {
	for was := v.refusedUntil.Load(); was < until; was = v.refusedUntil.Load() {
		if v.refusedUntil.CompareAndSwap(was, until) {
			v.mark()
			return
		}
	}
}

// clearRefused ends what setRefused began.
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

// setExternal marks only a backend with external load, because most have none.
func (v *vitals) setExternal(n int32) {
	v.external.Store(n)
	if n > 0 {
		v.mark()
	}
}

// unmark takes the mark off a backend with a full share and no external load. It looks again
// afterwards, so that what was written meanwhile is seen, or marks the backend later.
func (b *Backend) unmark(q *query) {
	b.inflight.word.And(^marked)
	if b.part(q) != 1 || b.externalAt(q.now) > 0 || b.Twin() != nil {
		b.mark()
	}
}

// part is the share by all that vitals tell: closed, down, ejected, passed over, slow start, weight.
func (v *vitals) part(q *query) float64 {
	if v.inflight.word.Load()&closed != 0 || State(v.state.Load()) == Down || v.refusedUntil.Load() > q.now || v.ejectedUntil.Load() > q.now {
		return 0
	}
	return v.share(q.now, q.slowStart) * math.Float64frombits(v.weight.Load())
}
