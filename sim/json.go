package sim

import (
	"bytes"
	"strconv"
)

// The answers are appended by hand: members in the recorded order, numbers and
// nulls as recorded, and no reflection in the token loop.

func appendInt(b []byte, n int) []byte { return strconv.AppendInt(b, int64(n), 10) }

func appendHex(b []byte, n int) []byte { return strconv.AppendInt(b, int64(n), 16) }

// appendString appends s as a JSON string the way vLLM's serialiser does:
// only what must be escaped is.
func appendString(b []byte, s string) []byte {
	return append(appendEscaped(append(b, '"'), s), '"')
}

func appendEscaped(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	start := 0
	for i := 0; i < len(s); i++ {
		ch := s[i]
		if ch >= 0x20 && ch != '"' && ch != '\\' {
			continue
		}
		b = append(b, s[start:i]...)
		start = i + 1
		switch ch {
		case '"', '\\':
			b = append(b, '\\', ch)
		case '\b':
			b = append(b, '\\', 'b')
		case '\f':
			b = append(b, '\\', 'f')
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[ch>>4], hex[ch&15])
		}
	}
	return append(b, s[start:]...)
}

// appendStrings appends texts as one JSON string.
func appendStrings(b []byte, texts []string) []byte {
	b = append(b, '"')
	for _, t := range texts {
		b = appendEscaped(b, t)
	}
	return append(b, '"')
}

func appendInts(b []byte, ids []int) []byte {
	b = append(b, '[')
	for i, id := range ids {
		b = appendInt(appendComma(b, i), id)
	}
	return append(b, ']')
}

// appendFloat shows a float as such: 1 is 1.0.
func appendFloat(b []byte, f float64) []byte {
	at := len(b)
	b = strconv.AppendFloat(b, f, 'f', -1, 64)
	if !bytes.ContainsRune(b[at:], '.') {
		return append(b, ".0"...)
	}
	return b
}

func appendComma(b []byte, i int) []byte {
	if i > 0 {
		return append(b, ',')
	}
	return b
}

// appendEach appends texts as JSON strings with commas between them.
func appendEach(b []byte, texts []string) []byte {
	for i, t := range texts {
		b = appendString(appendComma(b, i), t)
	}
	return b
}
