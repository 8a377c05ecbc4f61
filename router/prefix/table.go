package prefix

import (
	"math/bits"
	"sync/atomic"
)

// Table remembers which backend of a pool has had which prefixes of prompts. It is approximate by
// design. It uses no locks, so one of two concurrent writes may be lost. Its size is fixed. To make
// room, it evicts the line that has been unused for the longest time.
type Table struct {
	lines []line       // sets of two
	used  atomic.Int64 // lines in use
	seats seating

	memory int64 // size of the whole table in bytes
}

// line is one cache line: a prefix and its holders.
type line struct {
	head    atomic.Uint64             // tag in the upper 40 bits, tick of the last use below; 0: empty
	holders [MaxHolders]atomic.Uint32 // end at the first 0
}

const (
	lineBytes = 64
	tickBits  = 24
	tickMask  = 1<<tickBits - 1
	// MaxHolders is how many backends one line can hold. If more have the prefix, such as a system
	// prompt that all requests share, the line keeps those that used it last.
	MaxHolders = 14
	// The upper bits of a holder are a seat, and 0 is no seat. The lower bits are a stamp: the
	// backend's count of blocks when it last used the prefix. Stamps wrap after 4 million blocks,
	// some hundred times what an engine holds.
	stampBits = 22
	stampMask = 1<<stampBits - 1
	// taken is the head of a line that is being written. No key has this head: its tick would
	// come after 190 years.
	taken = 1<<64 - 1
)

// Memory is the size of the table in bytes.
func (t *Table) Memory() int64 { return t.memory }

// Used is how many bytes of Memory are in use.
func (t *Table) Used() int64 { return t.used.Load() * lineBytes }

// NewTable makes a table of that many bytes. The system provides the memory as the table fills.
func NewTable(memory int64) *Table {
	sets := max(1, (memory-seatBytes)/(2*lineBytes))
	return &Table{lines: make([]line, 2*sets), memory: memory}
}

// set returns the first of the two lines in which a key may be.
func (t *Table) set(key uint64) int {
	at, _ := bits.Mul64(key, uint64(len(t.lines)/2))
	return int(2 * at)
}

// tagOf tells the keys of one set apart, by the bits that have not chosen the set.
func tagOf(key uint64) uint64 { return key << tickBits }

// touch starts the loads of all lines for these marks. Without it each write would wait for its
// own line.
func (t *Table) touch(prefix []uint64, from, to int) {
	for n := from; n < to; n++ {
		at := t.set(prefix[markEnd(n)-1])
		t.lines[at].head.Load()
		t.lines[at+1].head.Load()
	}
}

// find returns the line of the key, or nil.
func (t *Table) find(key uint64) *line {
	at, tag := t.set(key), tagOf(key)
	for i := at; i < at+2; i++ {
		if head := t.lines[i].head.Load(); head&^tickMask == tag && head != 0 && head != taken {
			return &t.lines[i]
		}
	}
	return nil
}

// holderSet is the backends that still have a prefix, and how many blocks each has got since.
type holderSet struct {
	n     int
	cache [MaxHolders]*Cache
	age   [MaxHolders]uint32
}

func (s *holderSet) has(c *Cache) bool {
	for _, x := range s.cache[:s.n] {
		if x == c {
			return true
		}
	}
	return false
}

// holders fills s with the backends that have the given number of first blocks, whose hash is key.
func (t *Table) holders(key uint64, blocks int, s *holderSet) {
	s.n = 0
	l := t.find(key)
	if l == nil {
		return
	}
	head := l.head.Load()
	for i := range l.holders {
		word := l.holders[i].Load()
		if word == 0 {
			break
		}
		if c := t.seats.at(word >> stampBits); c != nil {
			if age, ok := c.has(word&stampMask, blocks); ok {
				s.cache[s.n], s.age[s.n] = c, age
				s.n++
			}
		}
	}
	if l.head.Load()&^tickMask != head&^tickMask {
		s.n = 0 // the line was given to another key meanwhile
	}
}

// put notes that the holder has the prefix of the key.
func (t *Table) put(key uint64, holder, tick uint32) {
	l := t.find(key)
	if l == nil {
		t.claim(key, holder, tick)
		return
	}
	if head := l.head.Load(); uint32(head&tickMask) != tick {
		l.head.CompareAndSwap(head, tagOf(key)|uint64(tick)) // a failure means that another has just done it
	}
	if at := t.place(l, holder); l.holders[at].Load() == 0 {
		l.seat(at, holder)
	} else {
		l.holders[at].Store(holder)
	}
}

// seat adds a holder at the end of the line. The place after it may hold a holder of an earlier
// key, so it is cleared first.
func (l *line) seat(at int, holder uint32) {
	if at+1 < MaxHolders {
		l.holders[at+1].Store(0)
	}
	l.holders[at].Store(holder)
}

// place returns where a holder goes: its own place, a free one, that of a backend that has lost
// the blocks, or that of the oldest use.
func (t *Table) place(l *line, holder uint32) int {
	oldest, place := int64(-1), 0
	for i := range l.holders {
		word := l.holders[i].Load()
		if word == 0 {
			if oldest < lost {
				place = i
			}
			break
		}
		if word>>stampBits == holder>>stampBits {
			return i
		}
		age := int64(lost)
		if c := t.seats.at(word >> stampBits); c != nil {
			if a, ok := c.has(word&stampMask, 0); ok {
				age = int64(a)
			}
		}
		if age > oldest {
			oldest, place = age, i
		}
	}
	return place
}

// lost is more than any age.
const lost = stampMask + 1

// claim gives the key one of its two lines, the one that has not been used for longer.
func (t *Table) claim(key uint64, holder, tick uint32) {
	at := t.set(key)
	l, head := &t.lines[at], t.lines[at].head.Load()
	other := t.lines[at+1].head.Load()
	if head != 0 && (other == 0 || idle(other, tick) > idle(head, tick)) {
		l, head = &t.lines[at+1], other
	}
	if head == taken || !l.head.CompareAndSwap(head, taken) {
		return // another request is writing it, and losing a block now and then does no harm
	}
	if head == 0 {
		t.used.Add(1)
	}
	l.seat(0, holder)
	l.head.Store(tagOf(key) | uint64(tick))
}

// idle is the number of ticks for which a line has not been used.
func idle(head uint64, tick uint32) uint32 { return (tick - uint32(head&tickMask)) & tickMask }
