package kvparams

import (
	"encoding/binary"
	"math/bits"
)

// maxDepth is how deep arrays and objects may be nested. It is far more than a tool schema needs.
// Each costs one bit of scanner state.
const maxDepth = 512

// scanner reads strict JSON (RFC 8259, UTF-8 only) from b. Its methods take the offset of the
// first byte and return the offset after the last one. -1 means a fault, which why and at
// describe. It keeps no copy of what it has read.
type scanner struct {
	b   []byte
	why string // it never holds bytes of the input
	at  int
	// escapes counts the escapes read in strings so far.
	escapes int
	// stack has one bit for each level: set for an object, clear for an array. Bit 0 belongs to
	// level 1.
	stack [maxDepth / 64]uint64
}

func (s *scanner) reset(b []byte) {
	s.b, s.why, s.at, s.escapes = b, "", 0, 0
}

func (s *scanner) failed() bool { return s.why != "" }

func (s *scanner) fail(at int, why string) int {
	if s.why == "" {
		s.why, s.at = why, at
	}
	return -1
}

// byteAt is the byte at i, or 0 past the end. No token starts with a raw NUL.
func (s *scanner) byteAt(i int) byte {
	if uint(i) < uint(len(s.b)) {
		return s.b[i]
	}
	return 0
}

func (s *scanner) space(i int) int {
	b := s.b
	for uint(i) < uint(len(b)) && b[i] <= ' ' && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// value validates the one value that starts at i, inside depth open containers.
func (s *scanner) value(i, depth int) int {
	for level := depth; ; {
		switch s.byteAt(i) {
		case '"':
			i = s.str(i)
		case '{', '[':
			var entered bool
			if i, entered = s.open(i, level); entered {
				level++
				continue
			}
		default:
			i = s.scalar(i)
		}
		for more := false; !more; {
			if i < 0 || level == depth {
				return i
			}
			if i, more = s.follow(i, level); !more {
				level--
			}
		}
	}
}

// open steps into the container at i. entered is false for an empty one, and next is then after it.
func (s *scanner) open(i, level int) (next int, entered bool) {
	if level >= maxDepth {
		return s.fail(i, "nested deeper than 512 levels"), false
	}
	word, bit := level>>6, uint64(1)<<(level&63)
	c := s.b[i]
	i = s.space(i + 1)
	if s.byteAt(i) == c+2 { // ']' is '[' + 2, '}' is '{' + 2
		return i + 1, false
	}
	if c == '{' {
		s.stack[word] |= bit
		i = s.key(i)
	} else {
		s.stack[word] &^= bit
	}
	return i, i >= 0
}

// follow reads what comes after a value of the container at level: a comma (more: the next value
// starts at next) or the end of the container.
func (s *scanner) follow(i, level int) (next int, more bool) {
	i = s.space(i)
	object := s.stack[(level-1)>>6]>>((level-1)&63)&1 == 1
	switch c := s.byteAt(i); {
	case c == ',' && object:
		i = s.key(s.space(i + 1))
		return i, i >= 0
	case c == ',':
		return s.space(i + 1), true
	case c == '}' && object, c == ']' && !object:
		return i + 1, false
	}
	return s.fail(i, "expected a comma or the end of the list or object"), false
}

// key reads a name, its colon and the space after it.
func (s *scanner) key(i int) int {
	if s.byteAt(i) != '"' {
		return s.fail(i, "expected a name in double quotes")
	}
	if i = s.str(i); i < 0 {
		return i
	}
	return s.colon(i)
}

func (s *scanner) colon(i int) int {
	i = s.space(i)
	if s.byteAt(i) != ':' {
		return s.fail(i, "expected a colon")
	}
	return s.space(i + 1)
}

func (s *scanner) scalar(i int) int {
	switch c := s.byteAt(i); {
	case c == '-' || c-'0' <= 9:
		return s.number(i)
	case c == 't':
		return s.word(i, "true")
	case c == 'f':
		return s.word(i, "false")
	case c == 'n':
		return s.word(i, "null")
	}
	return s.fail(i, "expected a value")
}

func (s *scanner) word(i int, w string) int {
	if len(s.b)-i < len(w) || string(s.b[i:i+len(w)]) != w {
		return s.fail(i, "expected a value")
	}
	return i + len(w)
}

func (s *scanner) number(i int) int {
	if s.b[i] == '-' {
		i++
	}
	first := i
	if i = s.digits(i); i < 0 {
		return i
	}
	if s.b[first] == '0' && i > first+1 {
		return s.fail(first, "number with a leading zero")
	}
	if s.byteAt(i) == '.' {
		if i = s.digits(i + 1); i < 0 {
			return i
		}
	}
	if c := s.byteAt(i); c == 'e' || c == 'E' {
		if c = s.byteAt(i + 1); c == '+' || c == '-' {
			i++
		}
		i = s.digits(i + 1)
	}
	return i
}

func (s *scanner) digits(i int) int {
	b, first := s.b, i
	for uint(i) < uint(len(b)) && b[i]-'0' <= 9 {
		i++
	}
	if i == first {
		return s.fail(i, "expected a digit")
	}
	return i
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// stops marks, by their high bits, the bytes of w that end a run of plain text: a quote, a
// backslash, a control character, a byte of 0x80 or more. The first difference marks control
// characters and quotes, since of the bytes with bit 1 flipped only these are below 0x21. The second
// marks backslashes. The bytes from 0x80 on keep their high bit in one of the two at least. Borrows may
// mark bytes above the lowest mark wrongly. The lowest mark is always right.
func stops(w uint64) uint64 {
	return (((w ^ 2*ones) - 0x21*ones) | ((w ^ '\\'*ones) - ones)) & highs
}

// str validates the string whose opening quote is at i.
func (s *scanner) str(i int) int {
	b, far := s.b, whereLong(i)
	for i++; ; {
		if i >= far {
			i, far = s.skim(i)
		}
		for end := min(len(b)-7, far); i < end; i += 8 {
			if m := stops(binary.LittleEndian.Uint64(b[i:])); m != 0 {
				i += bits.TrailingZeros64(m) >> 3
				break
			}
		}
		if i >= far {
			continue
		}
		if i >= len(b) {
			return s.fail(i, "string without an end")
		}
		switch c := b[i]; {
		case c == '"':
			return i + 1
		case c == '\\':
			i = s.escape(i)
		case c >= 0x80:
			i = s.runes(i)
		case c < ' ':
			return s.fail(i, "raw control character in a string")
		default:
			i++
		}
		if i < 0 {
			return i
		}
	}
}

// escape validates the escape whose backslash is at i. A lone surrogate passes, because engines
// differ on it, so they decide.
func (s *scanner) escape(i int) int {
	s.escapes++
	switch s.byteAt(i + 1) {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case 'u':
		for k := i + 2; k < i+6; k++ {
			if hexDigit(s.byteAt(k)) < 0 {
				return s.fail(i, "bad \\u escape in a string")
			}
		}
		return i + 6
	}
	return s.fail(i, "bad escape in a string")
}

// runes validates a run of UTF-8 beyond ASCII.
func (s *scanner) runes(i int) int {
	b := s.b
	for i < len(b) && b[i] >= 0x80 {
		n := runeLen(b[i:])
		if n == 0 {
			return s.fail(i, "text that is not UTF-8 in a string")
		}
		i += n
	}
	return i
}

// runeLen is the length of the well-formed UTF-8 sequence beyond ASCII at the start of b, or 0 if
// there is none. An overlong form, a surrogate, and anything above U+10FFFF are not well-formed.
func runeLen(b []byte) int {
	switch c := b[0]; {
	case c >= 0xC2 && c < 0xE0:
		if len(b) >= 2 && b[1]&0xC0 == 0x80 {
			return 2
		}
	case c >= 0xE0 && c < 0xF0:
		if len(b) >= 3 && b[1]&0xC0 == 0x80 && b[2]&0xC0 == 0x80 &&
			(c != 0xE0 || b[1] >= 0xA0) && (c != 0xED || b[1] < 0xA0) {
			return 3
		}
	case c >= 0xF0 && c < 0xF5:
		if len(b) >= 4 && b[1]&0xC0 == 0x80 && b[2]&0xC0 == 0x80 && b[3]&0xC0 == 0x80 &&
			(c != 0xF0 || b[1] >= 0x90) && (c != 0xF4 || b[1] < 0x90) {
			return 4
		}
	}
	return 0
}

func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}
