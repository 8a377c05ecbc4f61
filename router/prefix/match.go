package prefix

// MaxMatches bounds the backends that a match tells of: those with the longest prefixes.
const MaxMatches = 32

// Match is how many of a prompt's first blocks a backend has, and how many blocks
// it has got since it had them last.
type Match struct {
	Cache  *Cache
	Blocks int
	age    uint32
}

// Matches is what is known of one prompt.
type Matches struct {
	n  int
	of [MaxMatches]Match
}

// List is the matches, the backends in no order.
func (m *Matches) List() []Match { return m.of[:m.n] }

// By is what one backend has of the prompt.
func (m *Matches) By(c *Cache) Match {
	for _, x := range m.List() {
		if x.Cache == c {
			return x
		}
	}
	return Match{Cache: c}
}

// add notes a match, unless a longer one of the same backend is there.
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

// Match finds how much of a prompt each backend has. Who has a beginning has what comes
// before, so that of a stretch with the same holders at both ends nothing is looked at:
// about ten lines of the table where the backends differ at one place, whatever the
// prompt's length.
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

// search is one match under way.
type search struct {
	t      *Table
	prefix []uint64
	found  *Matches
}

// at fills s with who has all up to a mark.
func (p *search) at(mark int, s *holderSet) {
	end := markEnd(mark)
	p.t.holders(p.prefix[end-1], end, s)
}

// note adds those who have all up to the mark, and not what others have.
func (p *search) note(s, others *holderSet, mark int) {
	for i, c := range s.cache[:s.n] {
		if others == nil || !others.has(c) {
			p.found.add(Match{Cache: c, Blocks: markEnd(mark), age: s.age[i]})
		}
	}
}

// between looks where those end who have low's mark and not high's. The longer prefixes
// come first.
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
