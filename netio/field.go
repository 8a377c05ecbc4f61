package netio

// SplitField splits a line of a head into a field's name, and its value without the white space around
// it. Both alias the line. A line that begins with white space continues the previous line (obs-fold).
// It is not a field, because its first byte is no token character.
func SplitField(line []byte) (name, value []byte, ok bool) {
	colon := 0
	for colon < len(line) && nameBytes[line[colon]] {
		colon++
	}
	if colon == 0 || colon == len(line) || line[colon] != ':' {
		return nil, nil, false
	}
	value = line[colon+1:]
	if !Printable(value) {
		return nil, nil, false
	}
	for len(value) > 0 && (value[0] == ' ' || value[0] == '\t') {
		value = value[1:]
	}
	for n := len(value); n > 0 && (value[n-1] == ' ' || value[n-1] == '\t'); n-- {
		value = value[:n-1]
	}
	return line[:colon], value, true
}

// Printable reports that b has no control characters except tabs.
func Printable(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// EqualFold compares b with lower, which must be in lower case, and ignores the case of ASCII letters.
// Unicode folding would take U+212A for a k.
func EqualFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// AllDigits reports that b is a decimal number, without a sign.
func AllDigits(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(b) > 0
}

// Bytes from which classes are made.
const (
	Digits  = "0123456789"
	Letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

var nameBytes = ByteClass("!#$%&'*+-.^_`|~" + Digits + Letters) // RFC 9110 token

// ByteClass returns a table that is true for the members.
func ByteClass(members string) (class [256]bool) {
	for _, c := range []byte(members) {
		class[c] = true
	}
	return class
}
