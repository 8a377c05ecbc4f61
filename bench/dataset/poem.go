package dataset

import (
	_ "embed"
	"strings"
)

// sonnets are nine sonnets by Shakespeare, line by line. Sonnet draws from them where no file is
// given. They are in the public domain.
//
//go:embed sonnets.txt
var sonnets string

// poem returns the lines that Sonnet draws from.
func (m *maker) poem() ([]string, error) {
	if m.o.File == "" {
		return strings.Split(strings.TrimSpace(sonnets), "\n"), nil
	}
	return lines(m.o.File)
}
