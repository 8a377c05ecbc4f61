package prefix

import (
	"sync"
	"sync/atomic"
)

// seatCount bounds the backends of a pool that the table can tell apart. Further ones count as
// having nothing.
const (
	seatCount = 1 << (32 - stampBits)
	seatBytes = 20 << 10 // of memory, with the other fields of the table
)

// seating gives caches their numbers in the table. A number is used again after its backend has
// left the pool.
type seating struct {
	caches [seatCount]atomic.Pointer[Cache]

	mu    sync.Mutex
	ended [seatCount]uint64 // the time of the last owner when it left its seat
	last  uint32            // the seat that was given last; each seat stays free for as long as possible
}

// Seat gives the cache a seat, if one is free.
func (t *Table) Seat(c *Cache) { t.seats.give(c) }

// Unseat takes the seat of the cache back, if it has one.
func (t *Table) Unseat(c *Cache) { t.seats.free(c) }

// Seated is the number of caches that have a seat.
func (t *Table) Seated() (n int) {
	for seat := range t.seats.caches {
		if t.seats.at(uint32(seat)) != nil {
			n++
		}
	}
	return n
}

// at returns the cache on the seat, or nil if the seat is free.
func (s *seating) at(seat uint32) *Cache { return s.caches[seat].Load() }

// give gives c a seat, if one is free. The time of c begins later than that of the seat's last
// owner, and later than any insertion for it that is still running. So nothing that was noted for
// the last owner counts for c.
func (s *seating) give(c *Cache) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range seatCount {
		s.last = (s.last + 1) % seatCount
		if s.last == 0 || s.at(s.last) != nil {
			continue
		}
		c.blocks.Store(s.ended[s.last] + seatGap)
		c.Clear()
		s.caches[s.last].Store(c)
		c.seat.Store(s.last)
		return
	}
}

// seatGap is the blocks of the longest prompts that may be inserted at once.
const seatGap = 1 << 16

// free takes the seat of c back, if it has one.
func (s *seating) free(c *Cache) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if seat := c.seat.Swap(0); seat != 0 {
		s.ended[seat] = c.blocks.Load()
		s.caches[seat].Store(nil)
	}
}
