package router

// maxMatches bounds the backends that a match tells of: those with the longest prefixes.
const maxMatches = 32

// prefixMatch is how many of a prompt's first blocks a backend has, and how many blocks
// it has got since it had them last.
type prefixMatch struct {
	cache  *prefixCache
	blocks int
	age    uint32
	cost   float64 // of the prompt there, see offers
}

// prefixMatches is what is known of one prompt.
type prefixMatches struct {
	n     int
	of    [maxMatches]prefixMatch
	costs []float64 // see room
}

// room is for a number for each of n backends, with anything in it.
func (m *prefixMatches) room(n int) []float64 {
	if cap(m.costs) < n {
		m.costs = make([]float64, n)
	}
	return m.costs[:n]
}

// list is the matches, the backends in no order.
func (m *prefixMatches) list() []prefixMatch { return m.of[:m.n] }

// by is what one backend has of the prompt.
func (m *prefixMatches) by(c *prefixCache) prefixMatch {
	for _, x := range m.list() {
		if x.cache == c {
			return x
		}
	}
	return prefixMatch{cache: c}
}

// add notes a match, unless a longer one of the same backend is there.
func (m *prefixMatches) add(x prefixMatch) {
	for i := range m.list() {
		if had := &m.of[i]; had.cache == x.cache {
			if x.blocks > had.blocks {
				*had = x
			}
			return
		}
	}
	if m.n < maxMatches {
		m.of[m.n] = x
		m.n++
	}
}

// match finds how much of a prompt each backend has. Who has a beginning has what comes
// before, so that of a stretch with the same holders at both ends nothing is looked at:
// about ten lines of the table where the backends differ at one place, whatever the
// prompt's length.
func (t *prefixTable) match(prefix []uint64, m *prefixMatches) {
	m.n = 0
	last := markCount(len(prefix)) - 1
	if last < 0 {
		return
	}
	search := prefixSearch{t, prefix, m}
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

// prefixSearch is one match under way.
type prefixSearch struct {
	t      *prefixTable
	prefix []uint64
	found  *prefixMatches
}

// at fills s with who has all up to a mark.
func (p *prefixSearch) at(mark int, s *holderSet) {
	end := markEnd(mark)
	p.t.holders(p.prefix[end-1], end, s)
}

// note adds those who have all up to the mark, and not what others have.
func (p *prefixSearch) note(s, others *holderSet, mark int) {
	for i, c := range s.cache[:s.n] {
		if others == nil || !others.has(c) {
			p.found.add(prefixMatch{cache: c, blocks: markEnd(mark), age: s.age[i]})
		}
	}
}

// between looks where those end who have low's mark and not high's. The longer prefixes
// come first.
func (p *prefixSearch) between(low int, atLow *holderSet, high int, atHigh *holderSet) {
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
