package kvparams

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"xpyd/internal/racetest"
)

// readString reads a string byte by byte. It returns the offset after it, or −1 and where it is wrong, and
// the number of its escapes.
func readString(b string) (end, at, escapes int) {
	for i := 1; i < len(b); {
		switch c := b[i]; {
		case c == '"':
			return i + 1, 0, escapes
		case c < ' ':
			return -1, i, escapes
		case c >= 0x80:
			r, n := utf8.DecodeRuneInString(b[i:])
			if r == utf8.RuneError && n == 1 {
				return -1, i, escapes
			}
			i += n
		case c != '\\':
			i++
		default:
			escapes++
			n := 2
			if strings.HasPrefix(b[i+1:], "u") {
				n = 6
			}
			if i+n > len(b) || !strings.Contains(`"\/bfnrtu`, b[i+1:i+2]) || strings.Trim(b[i+2:i+n], "0123456789abcdefABCDEF") != "" {
				return -1, i, escapes
			}
			i += n
		}
	}
	return -1, len(b), escapes
}

// expectString compares the scanner with readString on what follows the opening quote.
func expectString(t *testing.T, b string) {
	t.Helper()
	var s scanner
	s.reset([]byte(b))
	end := s.str(0)
	wantEnd, wantAt, wantEscapes := readString(b)
	if end != wantEnd || s.at != wantAt || s.escapes != wantEscapes || s.failed() != (wantEnd < 0) {
		t.Fatalf("%.300q of %d bytes: end %d, wrong at %d (%s), %d escapes; want %d, %d, %d", b, len(b), end, s.at, s.why, s.escapes, wantEnd, wantAt, wantEscapes)
	}
}

var inStrings = []string{"", "a", `\"`, `"`, `\\`, `\\\`, `\n`, `\n\n`, `\r\n`, `\/`, `\u00e9`, `\\n`, `\\"`, "é", "日本", "😀", `\`, `\x`, `\u12`, `\u12"`, "\x00", "\x01", "\x1f", " ", "\x7f", "\x80", "\xff", "\xc3", "\\\x01", "\\é"}

// A string ends where it ends, and is wrong where it is wrong, wherever that is among the bytes that are read at once.
func TestStringsAtEachOffset(t *testing.T) {
	racetest.SkipPure(t)
	for _, c := range inStrings {
		for before := range 3*longText + 10 {
			for _, after := range []int{0, 1, 7, 63, 64, 65, 130} {
				text := `"` + strings.Repeat("a", before) + c + strings.Repeat("b", after)
				expectString(t, text)
				expectString(t, text+`"`)
				expectString(t, text+`",`+strings.Repeat(" ", longText))
			}
		}
	}
}

// Each byte is read alike at each place of a long text, alone and behind a backslash.
func TestEachByteInALongText(t *testing.T) {
	racetest.SkipPure(t)
	for c := range 256 {
		for place := range longText + 8 {
			for _, escape := range []string{"", `\`, `\\`} {
				before := strings.Repeat("a", longText+place)
				expectString(t, `"`+before+escape+string([]byte{byte(c)})+strings.Repeat("b", 2*longText)+`" `)
			}
		}
	}
}

// Texts of all kinds, in a row, are read as byte by byte, also where they are longer than what is read in one go.
func TestMixedStrings(t *testing.T) {
	racetest.SkipPure(t)
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		var b strings.Builder
		b.WriteByte('"')
		for range r.IntN(40) {
			b.WriteString(strings.Repeat("x", r.IntN(1+r.IntN(300))))
			if c := inStrings[r.IntN(len(inStrings))]; r.IntN(8) > 0 && len(c) == 2 && c[0] == '\\' && c != `\x` {
				b.WriteString(c)
			} else if r.IntN(20) == 0 {
				b.WriteString(c)
			}
		}
		b.WriteByte('"')
		expectString(t, b.String())
	}
	for _, c := range inStrings {
		for _, near := range []int{-66, -65, -64, -2, -1, 0, 1, 2, 63, 64, 65} {
			expectString(t, `"`+strings.Repeat(`abc\n`, (skimmed+near)/5)+c+strings.Repeat("y", skimmed+100)+`"`)
			expectString(t, `"`+strings.Repeat("a", longText+skimmed+near)+c+strings.Repeat(`y\t`, 100)+`"`)
		}
	}
}
