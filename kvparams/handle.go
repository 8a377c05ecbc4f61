package kvparams

import (
	"encoding/binary"
	"math/bits"
)

// need is a member of a handle without which an engine that gets the handle dies or hangs.
type need struct {
	name string
	kind needKind
}

// needKind says what the value of a member must be.
type needKind uint8

const (
	needTrue   needKind = iota
	needBlocks          // the pinned blocks
	needEngine          // P's engine id
	needHost            // of P's side channel
	needPort            // of P's side channel
	needText
	needCount
	needKinds
)

func (k needKind) want() string {
	return [needKinds]string{
		needTrue:   "true",
		needBlocks: "a non-empty list of non-empty lists of block numbers",
		needEngine: "a non-empty string",
		needHost:   "a non-empty string",
		needPort:   "an integer from 1 to 65535",
		needText:   "a non-empty string",
		needCount:  "an integer above 0",
	}[k]
}

// parseHandle reads an answer that holds a handle. needs are the members to check, in the order in
// which a missing one is reported.
func parseHandle(body []byte, needs []need) (Answer, error) {
	var a answer
	r := handleReader{needs: needs}
	a.begin(body)
	for a.nextHandle() {
		a.handleRead(r.read(&a.s, a.w.at, a.w.depth))
	}
	if err := a.finish(); err != nil {
		return Answer{}, err
	}
	out := a.figures()
	if a.kv.end == 0 || body[a.kv.at] == 'n' {
		return out, nil
	}
	if body[a.kv.at] != '{' {
		return Answer{}, badHandoff("kv_transfer_params", "an object or null")
	}
	if r.members == 0 {
		return out, nil
	}
	if err := r.fault(); err != nil {
		return Answer{}, err
	}
	out.Handle = r.h
	out.Handle.Raw = a.kv.of(body)
	out.Handle.prompt = a.prompt.of(body, out.PromptTokens)
	if r.h.host.end > 0 {
		out.Handle.host = span{r.h.host.at - a.kv.at, r.h.host.end - a.kv.at}
	}
	return out, nil
}

// handleReader is what one pass over a handle finds. Its faults are reported only when the whole
// answer is known to be JSON.
type handleReader struct {
	needs   []need
	h       Handle
	members int
	// seen and twice have one bit for each of needs.
	seen, twice uint32
	first       int // the first that is bad or duplicate, in the order of the answer, plus 1; 0 if none is
}

// read reads the object at i.
func (r *handleReader) read(s *scanner, i, depth int) int {
	w := s.enter(i, depth)
	for w.next(s) {
		which := r.needOf(w.name(s.b))
		if which >= 0 && r.needs[which].kind == needBlocks && s.byteAt(w.at) == '[' {
			w.done(r.blocks(s, w.at, w.depth))
			r.met(which, r.h.Blocks > 0)
			continue
		}
		at := span{w.at, s.value(w.at, w.depth)}
		switch {
		case at.end < 0:
		case which >= 0:
			r.met(which, r.valid(s.b, r.needs[which].kind, at))
		default:
			r.extent(w.name(s.b), at.of(s.b))
		}
		w.done(at.end)
	}
	r.members = w.n
	return w.pos
}

// needOf returns the index of a member in needs, or −1.
func (r *handleReader) needOf(name []byte) int {
	for i := range r.needs {
		if string(name) == r.needs[i].name {
			return i
		}
	}
	return -1
}

// met notes a member that D needs.
func (r *handleReader) met(which int, valid bool) {
	bit := uint32(1) << which
	r.twice |= r.seen & bit
	if (!valid || r.twice&bit != 0) && r.first == 0 {
		r.first = which + 1
	}
	r.seen |= bit
}

// fault is the first reason why D must not get the handle.
func (r *handleReader) fault() error {
	if r.first > 0 {
		n := r.needs[r.first-1]
		if r.twice&(1<<(r.first-1)) != 0 {
			return badHandoff("kv_transfer_params."+n.name, "there once")
		}
		return badHandoff("kv_transfer_params."+n.name, n.kind.want())
	}
	for i, n := range r.needs {
		if r.seen&(1<<i) == 0 {
			return badHandoff("kv_transfer_params."+n.name, n.kind.want())
		}
	}
	return nil
}

func (r *handleReader) valid(b []byte, kind needKind, at span) bool {
	raw := at.of(b)
	switch kind {
	case needTrue:
		return string(raw) == "true"
	case needBlocks:
		return false // it is not a list
	case needPort:
		port, ok := integer(raw)
		r.h.RemotePort = port
		return ok && port >= 1 && port <= 65535
	case needCount:
		n, ok := integer(raw)
		return ok && n > 0
	}
	if raw[0] != '"' || len(raw) == 2 {
		return false
	}
	switch kind {
	case needEngine:
		r.h.EngineID = text(b, inner(at))
	case needHost:
		r.h.host = inner(at)
		r.h.RemoteHost = text(b, r.h.host)
	}
	return true
}

// blocks counts the block ids of the list at i, which has one list for each KV cache group, or is
// the flat list of older versions. It counts 0 if a list is empty or holds anything else.
func (r *handleReader) blocks(s *scanner, i, depth int) int {
	flat, total, ok := 0, 0, true
	w := s.enter(i, depth)
	for w.next(s) {
		if s.byteAt(w.at) == '[' {
			ids, end := s.ids(w.at, w.depth)
			total += ids
			ok = ok && ids > 0
			w.done(end)
			continue
		}
		end, id := s.id(w.at, w.depth)
		flat++
		ok = ok && id
		w.done(end)
	}
	if r.h.lists = w.n; flat > 0 {
		r.h.lists = 1
	}
	if r.h.Blocks = flat + total; !ok || flat > 0 && total > 0 {
		r.h.Blocks = 0
	}
	return w.pos
}

// ids counts the block ids of the list at i. It returns 0 if the list holds anything else.
func (s *scanner) ids(i, depth int) (n, end int) {
	if n, end = plainIDs(s.b, i); n > 0 {
		return n, end
	}
	ok := true
	w := s.enter(i, depth)
	for w.next(s) {
		end, id := s.id(w.at, w.depth)
		ok = ok && id
		w.done(end)
	}
	if !ok {
		return 0, w.pos
	}
	return w.n, w.pos
}

// plainIDs is ids for a list of only digits and commas, as engines write it. It returns 0 for any
// other. A prompt of a million tokens has tens of thousands of ids.
func plainIDs(b []byte, i int) (n, end int) {
	n, i = wordsOfIDs(b, i+1)
	for ; ; i++ {
		first := i
		for i < len(b) && b[i]-'0' <= 9 {
			i++
		}
		digits := i - first
		if i == len(b) || digits == 0 || digits > 18 || digits > 1 && b[first] == '0' {
			return 0, 0
		}
		switch n++; b[i] {
		case ',':
		case ']':
			return n, i + 1
		default:
			return 0, 0
		}
	}
}

// wordsOfIDs reads ids from i on by words of eight bytes, as long as each word has a comma and all of it
// is plain. It returns how many ids end in these words, and where the next one begins. It leaves to the
// caller all that is not sound, an id of 0, and long ids.
func wordsOfIDs(b []byte, i int) (n, next int) {
	next = i
	begins := uint64(1) << 7 // marks the bytes with which an id begins, by their high bits
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		if w&highs != 0 {
			break
		}
		commas := ^((w ^ ','*ones) + 0x7f*ones) & highs // no carry leaves a byte, as all are below 0x80
		fromZero, above9 := w+(0x80-'0')*ones, w+(0x80-'9'-1)*ones
		starts := begins | commas<<8
		zeros := starts &^ ((w ^ '0'*ones) + 0x7f*ones)
		if fromZero&^above9&highs|commas != highs || commas == 0 || starts&commas|zeros != 0 {
			break
		}
		n += bits.OnesCount64(commas)
		next = i + (71-bits.LeadingZeros64(commas))>>3
		begins = commas >> 56
	}
	return n, next
}

// id reads the value at i, and reports whether it is a block id: a plain integer that is not
// negative.
func (s *scanner) id(i, depth int) (end int, ok bool) {
	if end = s.value(i, depth); end < 0 || s.b[i] == '-' {
		return end, false
	}
	_, ok = integer(s.b[i:end])
	return end, ok
}
