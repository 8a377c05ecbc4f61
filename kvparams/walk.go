package kvparams

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// span is the half-open byte range of a value in its buffer.
type span struct{ at, end int }

func (p span) of(b []byte) []byte { return b[p.at:p.end] }

// walk steps through the members of one object or the elements of one array, once, in order:
//
//	w := s.enter(i, depth)   // i at the bracket, inside depth open containers
//	for w.next(s) {
//		w.done(s.value(w.at, w.depth))   // or anything else that reads the value at w.at
//	}
//	// w.pos is after the closing bracket, or -1
type walk struct {
	key     span // content of the name, without its quotes; objects only
	escaped bool // the name has escapes
	at      int  // first byte of the value
	n       int  // members met so far, this one included
	depth   int  // containers open around the value
	pos     int
	close   byte
}

// enter starts a walk. Only known places are walked, and these are a few levels deep, so only
// value needs to watch maxDepth.
func (s *scanner) enter(i, depth int) walk {
	return walk{pos: s.space(i + 1), depth: depth + 1, close: s.b[i] + 2}
}

func (w *walk) done(end int) { w.pos = end }

func (w *walk) next(s *scanner) bool {
	if w.pos < 0 {
		return false
	}
	i := s.space(w.pos)
	switch c := s.byteAt(i); {
	case c == w.close:
		w.pos = i + 1
		return false
	case w.n == 0:
	case c == ',':
		i = s.space(i + 1)
	default:
		w.pos = s.fail(i, "expected a comma or the end of the list or object")
		return false
	}
	w.n++
	w.at = i
	if w.close == '}' {
		w.readName(s, i)
	}
	return w.pos >= 0
}

func (w *walk) readName(s *scanner, i int) {
	if s.byteAt(i) != '"' {
		w.pos = s.fail(i, "expected a name in double quotes")
		return
	}
	escapes := s.escapes
	end := s.str(i)
	if end < 0 {
		w.pos = end
		return
	}
	w.key, w.escaped = span{i + 1, end - 1}, s.escapes != escapes
	w.at = s.colon(end)
	if w.at < 0 {
		w.pos = w.at
	}
}

// name is the decoded name of the member at hand: a slice of b if it has no escapes, otherwise
// fresh memory.
func (w *walk) name(b []byte) []byte {
	if !w.escaped {
		return w.key.of(b)
	}
	return unescape(nil, w.key.of(b))
}

// text is the decoded content of a string: a slice of b if it has no escapes, otherwise fresh
// memory.
func text(b []byte, content span) []byte {
	raw := content.of(b)
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	return unescape(nil, raw)
}

// inner is the content of a string without its quotes.
func inner(p span) span { return span{p.at + 1, p.end - 1} }

// unescape appends the decoded content of a validated string. A lone surrogate becomes U+FFFD, so
// it never equals a name that this package knows.
func unescape(dst, raw []byte) []byte {
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			dst = append(dst, raw[i])
			continue
		}
		i++
		switch raw[i] {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r := hex4(raw[i+1:])
			i += 4
			if utf16.IsSurrogate(r) && i+6 < len(raw) && raw[i+1] == '\\' && raw[i+2] == 'u' {
				if pair := utf16.DecodeRune(r, hex4(raw[i+3:])); pair != utf8.RuneError {
					r = pair
					i += 6
				}
			}
			dst = utf8.AppendRune(dst, r)
		default: // quote, backslash, slash
			dst = append(dst, raw[i])
		}
	}
	return dst
}

func hex4(b []byte) rune {
	r := 0
	for _, c := range b[:4] {
		r = r<<4 | hexDigit(c)
	}
	return rune(r)
}

// integer reads a plain JSON integer of at most 18 digits. ok is false for anything else: a
// fraction, an exponent, a larger number, another type.
func integer(b []byte) (n int, ok bool) {
	digits := bytes.TrimPrefix(b, []byte("-"))
	if len(digits) == 0 || len(digits) > 18 {
		return 0, false
	}
	for _, c := range digits {
		if c-'0' > 9 {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	if b[0] == '-' {
		n = -n
	}
	return n, true
}
