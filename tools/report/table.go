package report

import (
	"fmt"
	"strings"
)

// Table is rows of cells for readers.
type Table struct {
	Head []string
	Rows [][]string
}

// Markdown is the table as GitHub's Markdown.
func (t Table) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(t.Head, " | "), strings.Repeat("---|", len(t.Head)))
	for _, row := range t.Rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
	}
	return b.String()
}
