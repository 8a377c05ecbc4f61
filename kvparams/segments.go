package kvparams

// Segments is a body in pieces, for one vectored write. The pieces alias the request's buffer, the
// handle and constants of this package. They are read-only, and valid until the next Parse or Reset of
// the request.
type Segments [][]byte

// Len is the length of the body in bytes.
func (s Segments) Len() int {
	n := 0
	for _, p := range s {
		n += len(p)
	}
	return n
}

func (s Segments) add(p []byte) Segments {
	if len(p) == 0 {
		return s
	}
	return append(s, p)
}

// edit is what is done to one member.
type edit struct {
	field field
	value []byte // takes the place of the client's; nil removes the member
	add   []byte // the member with a leading comma, added if the client did not send it; nil adds nothing
}

// AppendPlain appends the client's own body, without the null KV fields, which clients may send
// and engines must not see.
func (r *Request) AppendPlain(dst Segments) Segments {
	return r.appendEdited(dst, nil, nil)
}

// appendEdited appends the body with the edits applied. Unless lead is nil, lead and the pieces of
// value become the last member, of which lead is the comma, name and colon.
func (r *Request) appendEdited(dst Segments, edits []edit, lead []byte, value ...[]byte) Segments {
	var own [16]edit
	edits = r.adds.to(edits, own[:])
	b, at := r.s.b, 0
	var removed [groupCount]int
	for _, m := range r.marks {
		e := find(edits, m.field)
		switch {
		case m.field == fieldClosing:
			dst = dst.add(b[at:m.start])
			dst, _ = r.appendMissing(dst, edits, m.group, m.nth == 0)
			at = m.start
		case e == nil && m.field != fieldHidden:
		case e != nil && e.value != nil:
			dst = dst.add(b[at:m.val.at]).add(e.value)
			at = m.val.end
		default:
			from, to := r.cut(m, removed[m.group] < m.nth)
			removed[m.group]++
			dst = dst.add(b[at:from])
			at = to
		}
	}
	dst = dst.add(b[at:r.closing])
	dst, empty := r.appendMissing(dst, edits, groupTop, removed[groupTop] == r.members)
	if lead != nil {
		dst = dst.add(uncomma(lead, empty))
		for _, piece := range value {
			dst = dst.add(piece)
		}
	}
	return dst.add(b[r.closing:])
}

// appendMissing adds the members of the edits that belong to the object of g and that the client did not
// send. empty says whether the object has no member so far.
func (r *Request) appendMissing(dst Segments, edits []edit, g group, empty bool) (Segments, bool) {
	for _, e := range edits {
		inside := r.form().sampling.has(e.field)
		if e.add != nil && !r.seen.has(e.field) && inside == (g == groupSampling) {
			dst = dst.add(uncomma(e.add, empty))
			empty = false
		}
	}
	return dst, empty
}

func find(edits []edit, f field) *edit {
	for i := range edits {
		if edits[i].field == f {
			return &edits[i]
		}
	}
	return nil
}

func uncomma(member []byte, first bool) []byte {
	if first {
		return member[1:]
	}
	return member
}

// cut is the range that removes m with exactly one comma: the one before it if a member before it
// is kept, otherwise the one after it.
func (r *Request) cut(m mark, keptBefore bool) (from, to int) {
	b := r.s.b
	if keptBefore {
		for from = m.start - 1; b[from] != ','; from-- { // only white space is between them
		}
		return from, m.val.end
	}
	to = r.s.space(m.val.end)
	if b[to] == ',' {
		return m.start, r.s.space(to + 1)
	}
	return m.start, m.val.end
}
