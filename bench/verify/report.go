package verify

import (
	"encoding/json"
	"fmt"
	"io"
)

// Report is what --json prints.
type Report struct {
	URL  string `json:"url"`
	OK   bool   `json:"ok"` // every row is
	Rows []Row  `json:"rows"`
}

// Print writes the report as JSON.
func (r Report) Print(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	return nil
}

// PrintRow writes one line of the table.
func PrintRow(w io.Writer, row Row) {
	fmt.Fprintf(w, "%-*s  %-7s  %s\n", nameWidth(), row.Check, row.State, row.Detail)
}

func nameWidth() (widest int) {
	for _, name := range Names() {
		widest = max(widest, len(name))
	}
	return widest
}
