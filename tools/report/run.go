package report

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Run is what the results of any benchmark begin with.
type Run struct {
	Began   string  `json:"began"`   // RFC 3339
	Version string  `json:"version"` // of xpyd
	Machine Machine `json:"machine"`
	Rounds  int     `json:"rounds"`
}

// Begin is a run that begins now.
func Begin(version string, rounds int) Run {
	return Run{Began: time.Now().UTC().Format(time.RFC3339), Version: version, Machine: thisMachine(), Rounds: rounds}
}

// Intro says what the tables are about, without a full stop. seconds is the length of a round.
func (r Run) Intro(seconds float64) string {
	rounds := fmt.Sprintf("medians of %d rounds of %g s, each with (least–most) of the rounds", r.Rounds, seconds)
	if r.Rounds == 1 {
		rounds = fmt.Sprintf("one round of %g s", seconds)
	}
	return fmt.Sprintf("Measured %s with xpyd %s on %s, %d cores, %s, %s: %s",
		r.Began, r.Version, r.Machine.CPU, r.Machine.Cores, r.Machine.Kernel, r.Machine.Go, rounds)
}

// Notes tell readers what they must know about the results.
type Notes []string

// Add also writes the note to out at once.
func (n *Notes) Add(out io.Writer, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	*n = append(*n, text)
	fmt.Fprintln(out, "note: "+text)
}

// Markdown is a list, with an empty line before it.
func (n Notes) Markdown() string {
	if len(n) == 0 {
		return ""
	}
	return "\n- " + strings.Join(n, "\n- ") + "\n"
}
