package dataset

import (
	_ "embed"
	"strings"
)

// sonnets are nine of Shakespeare's, a line each of their lines: what Sonnet draws from where no
// file is given. They are in the public domain.
//
//go:embed sonnets.txt
var sonnets string

// poem is the lines that Sonnet draws from.
func (m *maker) poem() ([]string, error) {
	if m.o.File == "" {
		return strings.Split(strings.TrimSpace(sonnets), "\n"), nil
	}
	return lines(m.o.File)
}
