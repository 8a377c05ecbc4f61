package cmd

import (
	"fmt"
	"os"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/term"
)

// plain is standard output for text that may come from a server. A terminal would obey what that has of its control
// sequences, so they are spelt out as JSON does it. A line break and a tab pass.
type plain struct{ to *os.File }

func (p plain) Write(text []byte) (int, error) {
	if _, err := p.to.WriteString(spellOut(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// clear empties a terminal before it is written anew, and reports whether there is one.
func (p plain) clear() bool {
	if !term.IsTerminal(int(p.to.Fd())) {
		return false
	}
	_, err := p.to.WriteString(home)
	return err == nil
}

// home moves the cursor of a terminal to its first place, and clears what follows.
const home = "\x1b[H\x1b[J"

func isPlain(r rune, size int) bool {
	return (unicode.IsGraphic(r) || r == '\n' || r == '\t') && (r != utf8.RuneError || size > 1)
}

// spellOut replaces what is no graphic character, line break or tab.
func spellOut(text string) string {
	done, out := 0, []byte(nil)
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if isPlain(r, size) {
			i += size
			continue
		}
		out = append(out, text[done:i]...)
		switch high, low := utf16.EncodeRune(r); {
		case r == utf8.RuneError:
			out = fmt.Appendf(out, `\x%02x`, text[i])
		case high != utf8.RuneError:
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		i += size
		done = i
	}
	if out == nil {
		return text
	}
	return string(append(out, text[done:]...))
}
