package prefix

// MaxMatches bounds the backends of one match. Those with the longest prefixes are kept.
const MaxMatches = 32

// Match is how many of a prompt's first blocks a backend has. age is how many blocks it has received
// since it last used them.
type Match struct {
	Cache  *Cache
	Blocks int
	age    uint32
}

// Matches is what the table knows of one prompt.
type Matches struct {
	n  int
	of [MaxMatches]Match
}

// List returns the matches, in no order.
func (m *Matches) List() []Match { return m.of[:m.n] }

// By returns how much of the prompt one backend has.
func (m *Matches) By(c *Cache) Match {
	for _, x := range m.List() {
		if x.Cache == c {
			return x
		}
	}
	return Match{Cache: c}
}

// add notes a match, unless the same backend has a longer one already.
func (m *Matches) add(x Match) {
	for i := range m.List() {
		if had := &m.of[i]; had.Cache == x.Cache {
			if x.Blocks > had.Blocks {
				*had = x
			}
			return
		}
	}
	if m.n < MaxMatches {
		m.of[m.n] = x
		m.n++
	}
}

// Match finds how much of a prompt each backend has. A backend that has a prefix has all shorter
// ones, so a stretch with the same holders at both ends is skipped. If the backends differ at one
// place, this reads about ten lines of the table, however long the prompt is.
func (t *Table) Match(prefix []uint64, m *Matches) {
	m.n = 0
	last := markCount(len(prefix)) - 1
	if last < 0 {
		return
	}
	search := search{t, prefix, m}
	var first, whole holderSet
	search.at(0, &first)
	if first.n == 0 || last == 0 {
		search.note(&first, nil, 0)
		return
	}
	search.at(last, &whole)
	search.note(&whole, nil, last)
	search.between(0, &first, last, &whole)
}

// search is one running match.
type search struct {
	t      *Table
	prefix []uint64
	found  *Matches
}

// at fills s with the backends that have everything up to the mark.
func (p *search) at(mark int, s *holderSet) {
	end := markEnd(mark)
	p.t.holders(p.prefix[end-1], end, s)
}

// note adds the backends of s, which have everything up to the mark, without those in others.
func (p *search) note(s, others *holderSet, mark int) {
	for i, c := range s.cache[:s.n] {
		if others == nil || !others.has(c) {
			p.found.add(Match{Cache: c, Blocks: markEnd(mark), age: s.age[i]})
		}
	}
}

// between finds where the prefixes end of the backends that have low's mark and not high's. The
// longer prefixes come first.
func (p *search) between(low int, atLow *holderSet, high int, atHigh *holderSet) {
	same := true
	for _, c := range atLow.cache[:atLow.n] {
		same = same && atHigh.has(c)
	}
	if same {
		return
	}
	if high-low == 1 {
		p.note(atLow, atHigh, low)
		return
	}
	var atMiddle holderSet
	middle := (low + high) / 2
	p.at(middle, &atMiddle)
	p.between(middle, &atMiddle, high, atHigh)
	p.between(low, atLow, middle, &atMiddle)
}
