package kvparams

import "math"

const (
	// longText is how long a text is at least before it is worth skimming, in bytes. Most strings are short.
	longText = 64
	// roughText is how long a text is read word by word after a place that could not be skimmed.
	roughText = 512
	// skimmed bounds one call in bytes, because Go cannot interrupt it.
	skimmed = 64 << 10
)

// simpleEscapes are the bytes that may follow a backslash and end the escape.
var simpleEscapes = [256]bool{'"': true, '/': true, 'b': true, 'f': true, 'n': true, 'r': true, 't': true}

// skim goes on from i, inside a string, as far as its text is plain or has simple escapes. far is where
// it may be called next. A branch for each escape would be guessed wrong in a text with one in each line.
func (s *scanner) skim(i int) (next, far int) {
	if len(s.b)-i < 64 {
		return i, math.MaxInt
	}
	n, escapes := skim64(&s.b[i], min(len(s.b)-i, skimmed), &simpleEscapes)
	s.escapes += escapes
	if n == 0 {
		return i, i + roughText
	}
	return i + n, i + n + longText
}

// whereLong is where a string that begins at i counts as long.
func whereLong(i int) int {
	if !skims {
		return math.MaxInt
	}
	return i + longText
}
