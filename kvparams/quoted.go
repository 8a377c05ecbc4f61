package kvparams

import "bytes"

// telling is the least length of a string that tells a text about other engines from any other text. The ids of
// engines have 36 bytes and more, and "10.0.0.1" has 8.
const telling = 8

// Quoted reports whether an engine's own text repeats what only xpyd has told it of other engines in leg, the body
// that it had of this request: a string in a member that clients may not send, or, as a word of its own, the name of a
// string or number there. Other names show nothing: the members of many a prefill leg are null.
func (r *Request) Quoted(text []byte, leg Segments) bool {
	s := scanner{b: r.added(leg)}
	for i, met := 0, false; ; {
		open := bytes.IndexByte(s.b[i:], '"')
		if open < 0 {
			return false
		}
		first := i + open + 1
		if i = s.str(first - 1); i < 0 {
			return false
		}
		told := s.b[first : i-1]
		met = met || kvDoor(told) // these members come last
		if !met || len(told) < telling {
			continue
		}
		if named, holds := s.holds(i); holds && repeats(text, told, named) {
			return true
		}
	}
}

// added is what stands behind the client's own bytes in leg, without the brace that closes both. The client's are
// slices of one buffer, which end at the same byte if their capacity counts.
func (r *Request) added(leg Segments) []byte {
	last := len(leg) - 1
	first := last
	for first > 0 && &leg[first-1][:cap(leg[first-1])][cap(leg[first-1])-1] != &r.s.b[:cap(r.s.b)][cap(r.s.b)-1] {
		first--
	}
	return bytes.Join(leg[first:last], nil)
}

// holds reports whether the string that ends at i is a value, or the name of a string or number, which named says.
func (s *scanner) holds(i int) (named, holds bool) {
	if i = s.space(i); s.byteAt(i) != ':' {
		return false, true
	}
	c := s.byteAt(s.space(i + 1))
	return true, c == '"' || c-'0' <= 9
}

// repeats reports whether a text has told in it, and a name as a word of its own: num_tokens is no part of
// max_num_tokens.
func repeats(text, told []byte, named bool) bool {
	for {
		at := bytes.Index(text, told)
		if at < 0 {
			return false
		}
		end := at + len(told)
		if !named || (at == 0 || !wordByte(text[at-1])) && (end == len(text) || !wordByte(text[end])) {
			return true
		}
		text = text[end:]
	}
}

func wordByte(c byte) bool { return c == '_' || c|0x20-'a' < 26 || c-'0' <= 9 }
