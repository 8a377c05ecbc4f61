package prefix

import (
	"math/bits"
	"sync/atomic"
)

// Table remembers which backend of a pool has had which beginnings of prompts. It
// is approximate by design: what two requests do at once may be lost, and nothing is
// locked. Its size is fixed: who has not been asked for the longest time makes room.
type Table struct {
	lines []line       // sets of two
	used  atomic.Int64 // lines that hold something
	seats seating

	memory int64 // bytes of all this
}

// line, one cache line, is a beginning of a prompt and who has it.
type line struct {
	head    atomic.Uint64             // tag in the upper 40 bits, tick of the last use below; 0: empty
	holders [MaxHolders]atomic.Uint32 // up to the first 0
}

const (
	lineBytes = 64
	tickBits  = 24
	tickMask  = 1<<tickBits - 1
	// MaxHolders have the same beginning in memory. Where more have it, as with a system
	// prompt that all requests share, those are known that had it last.
	MaxHolders = 14
	// A holder is a seat in its upper bits, so that 0 is nobody, and a stamp below: the
	// backend's blocks when it had the beginning last. Stamps wrap after 4 million blocks,
	// some hundred times what an engine holds.
	stampBits = 22
	stampMask = 1<<stampBits - 1
	// taken is the head of a line that is being written. No key makes it: its tick is not
	// reached in 190 years.
	taken = 1<<64 - 1
)

// Memory is the size of the table in bytes.
func (t *Table) Memory() int64 { return t.memory }

// Used is how much of Memory holds something.
func (t *Table) Used() int64 { return t.used.Load() * lineBytes }

// NewTable takes that many bytes of memory, which it fills as it is used.
func NewTable(memory int64) *Table {
	sets := max(1, (memory-seatBytes)/(2*lineBytes))
	return &Table{lines: make([]line, 2*sets), memory: memory}
}

// set is the first of the two lines that a key may be in.
func (t *Table) set(key uint64) int {
	at, _ := bits.Mul64(key, uint64(len(t.lines)/2))
	return int(2 * at)
}

// tagOf tells the keys of a set apart, by the bits that have not chosen the set.
func tagOf(key uint64) uint64 { return key << tickBits }

// touch has the lines that the marks from one to the other are in on their way from
// memory. One by one their writing would wait for each.
func (t *Table) touch(prefix []uint64, from, to int) {
	for n := from; n < to; n++ {
		at := t.set(prefix[markEnd(n)-1])
		t.lines[at].head.Load()
		t.lines[at+1].head.Load()
	}
}

// find is the key's line, nil if there is none.
func (t *Table) find(key uint64) *line {
	at, tag := t.set(key), tagOf(key)
	for i := at; i < at+2; i++ {
		if head := t.lines[i].head.Load(); head&^tickMask == tag && head != 0 && head != taken {
			return &t.lines[i]
		}
	}
	return nil
}

// holderSet is who still has a beginning, as far as is known, and how many blocks each
// has got since.
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

// holders fills s with who has the first so many blocks, of which key is the hash.
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
		s.n = 0 // it has become another one's meanwhile
	}
}

// put notes that the holder has what key stands for.
func (t *Table) put(key uint64, holder, tick uint32) {
	l := t.find(key)
	if l == nil {
		t.claim(key, holder, tick)
		return
	}
	if head := l.head.Load(); uint32(head&tickMask) != tick {
		l.head.CompareAndSwap(head, tagOf(key)|uint64(tick)) // else somebody else has just done that
	}
	if at := t.place(l, holder); l.holders[at].Load() == 0 {
		l.seat(at, holder)
	} else {
		l.holders[at].Store(holder)
	}
}

// seat puts a holder behind all others. What stands behind it may be of a former key.
func (l *line) seat(at int, holder uint32) {
	if at+1 < MaxHolders {
		l.holders[at+1].Store(0)
	}
	l.holders[at].Store(holder)
}

// place is where a holder goes: where it was, or nobody is, or one that has lost the
// blocks, or one that had them before all others.
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

// claim gives the key a line: of its two the one not used for longer.
func (t *Table) claim(key uint64, holder, tick uint32) {
	at := t.set(key)
	l, head := &t.lines[at], t.lines[at].head.Load()
	if other := t.lines[at+1].head.Load(); head != 0 && (other == 0 || idle(other, tick) > idle(head, tick)) {
		l, head = &t.lines[at+1], other
	}
	if head == taken || !l.head.CompareAndSwap(head, taken) {
		return // somebody else's at this moment: forgetting a block now and then does no harm
	}
	if head == 0 {
		t.used.Add(1)
	}
	l.seat(0, holder)
	l.head.Store(tagOf(key) | uint64(tick))
}

// idle is for how many ticks a line has not been used.
func idle(head uint64, tick uint32) uint32 { return (tick - uint32(head&tickMask)) & tickMask }
