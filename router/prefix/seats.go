package prefix

import (
	"sync"
	"sync/atomic"
)

// seatCount bounds the backends of a pool that the table tells apart; further ones are
// taken to have nothing.
const (
	seatCount = 1 << (32 - stampBits)
	seatBytes = 20 << 10 // of memory, with the table's own fields
)

// seating gives backends their numbers in the table, which are used again when a backend
// has left the pool.
type seating struct {
	caches [seatCount]atomic.Pointer[Cache]

	mu    sync.Mutex
	ended [seatCount]uint64 // the time of the seat's last owner, when it left
	last  uint32            // that was given: each is left free for as long as possible
}

// Seat gives the cache a seat if one is free.
func (t *Table) Seat(c *Cache) { t.seats.give(c) }

// Unseat ends the cache's seat, if it has one.
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

// at is who has the seat, nil: nobody.
func (s *seating) at(seat uint32) *Cache { return s.caches[seat].Load() }

// give gives c a seat, if one is free. What was noted of its last owner does not count
// for c, whose time begins later, and later than any insertion for the other that may
// still be under way.
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

// seatGap is the blocks of the longest prompts that may come at once.
const seatGap = 1 << 16

// free ends c's seat, if it has one.
func (s *seating) free(c *Cache) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if seat := c.seat.Swap(0); seat != 0 {
		s.ended[seat] = c.blocks.Load()
		s.caches[seat].Store(nil)
	}
}
