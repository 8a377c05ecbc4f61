package churn

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"xpyd/tools/completion"
	"xpyd/tools/tally"
)

// phase is the moment in a request's life at which a client leaves.
type phase uint8

const (
	phaseBody       phase = iota // half of the request body sent
	phasePrefill                 // P computes
	phasePrefillEnd              // P has pinned the blocks and not answered
	phaseAnswered                // P's answer is written, D has not begun
	phaseDecode                  // D has the request, before its first event
	phaseStream                  // after some events
	phaseEnd                     // the answer is complete
	phases
)

func (p phase) String() string {
	return [...]string{"body", "prefill", "prefill_end", "answered", "decode", "stream", "end"}[p]
}

// counts has what the clients did. It is safe for concurrent use.
type counts struct {
	mu       sync.Mutex
	hits     [phases][completion.Manners]int
	checked  int // whole answers whose text was compared
	alone    int // requests that went to decode alone instead of coming to the phase
	failures tally.Verdict
}

func (t *counts) hit(p phase, m completion.Manner) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hits[p][m]++
}

func (t *counts) wentAlone() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.alone++
}

func (t *counts) answered() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.checked++
}

func (t *counts) fail(v *visit, err error) {
	t.failures.Breach("", fmt.Sprintf("phase %s, %s: %v", v.phase, v.manner, err), "%s", v.id)
}

func (t *counts) total(p phase) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, hits := range t.hits[p] {
		n += hits
	}
	return n
}

// ofPrefill reports that only a request with a prefill reaches the phase.
func (p phase) ofPrefill() bool { return p >= phasePrefill && p <= phaseAnswered }

// problems names the phases that were hit too rarely and each kind of failure. If a request may go
// to decode alone, the proxy decides how many have a prefill.
func (t *counts) problems(o Options) []string {
	var all []string
	for p := range phases {
		switch n := t.total(p); {
		case o.phaseOf(int(p)) != p: // the connector does not have it
		case p.ofPrefill() && o.Alone:
			if n > 0 && o.Never {
				all = append(all, fmt.Sprintf("phase %s was hit %d times, and no request was to have a prefill", p, n))
			}
		case n < o.MinPerPhase:
			all = append(all, fmt.Sprintf("phase %s was hit %d times, wanted %d", p, n, o.MinPerPhase))
		}
	}
	failures := t.failures.Of("")
	slices.SortFunc(failures, func(a, b tally.Breach) int { return strings.Compare(a.What, b.What) })
	for _, f := range failures {
		all = append(all, fmt.Sprintf("%d× in %s (first: %s)", f.Count, f.What, f.First))
	}
	return all
}

// write prints the table of hits.
func (t *counts) write(w io.Writer) {
	fmt.Fprintf(w, "%-12s %7s %7s %11s %7s %7s\n", "phase", "hits", completion.MannerClose, completion.MannerHalf, completion.MannerReset, completion.MannerKeep)
	for p := range phases {
		n := t.total(p)
		t.mu.Lock()
		h := t.hits[p]
		t.mu.Unlock()
		fmt.Fprintf(w, "%-12s %7d %7d %11d %7d %7s\n", p, n, h[completion.MannerClose], h[completion.MannerHalf], h[completion.MannerReset], kept(p, h[completion.MannerKeep]))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(w, "%s\nwhole answers compared byte by byte: %d\n", strings.Repeat("-", 56), t.checked)
	if t.alone > 0 {
		fmt.Fprintf(w, "clients that left, as their request went to decode alone: %d\n", t.alone)
	}
}

func kept(p phase, n int) string {
	if p != phaseEnd {
		return "-"
	}
	return fmt.Sprint(n)
}
