package sweep

import (
	"fmt"
	"math"
	"strings"
	"time"

	"xpyd/bench/dataset"
)

// What an estimate assumes of a target without measurements.
const (
	assumedFirst = time.Second
	assumedNext  = 20 * time.Millisecond
	assumedOpen  = 64 // answers at once
)

// estimate is roughly how long a cell takes, from its first request to its last answer.
func (c *Cell) estimate() time.Duration {
	out := c.Workload.dataset("").OutputLen
	if out == 0 {
		out = dataset.DefaultLimit
	}
	answer := assumedFirst + time.Duration(out)*assumedNext
	var sending time.Duration
	switch {
	case c.NumPrompts == 0:
		return c.Duration + answer
	case math.IsInf(c.Rate, 1):
		open := c.Concurrency
		if open == 0 {
			open = assumedOpen
		}
		sending = time.Duration((c.NumPrompts-1)/open) * answer
	default:
		sending = time.Duration(float64(c.NumPrompts) / c.Rate * float64(time.Second))
	}
	if c.Duration > 0 {
		sending = min(sending, c.Duration)
	}
	return sending + answer
}

// Plan lists the cells, a line each, with about how long they take.
func (r *Runner) Plan() (string, error) {
	lines, total, err := r.plan()
	return lines + total, err
}

// Estimate is how many cells are left, and about how long they take, in words.
func (r *Runner) Estimate() (string, error) {
	_, total, err := r.plan()
	return strings.TrimSpace(total), err
}

// plan has a line for each cell, and words for all together. If a load was measured on any target, its cells are taken
// to be as long as that.
func (r *Runner) plan() (lines, total string, err error) {
	done, err := r.finished()
	if err != nil {
		return "", "", err
	}
	cells := r.File.Cells()
	measured := map[string]time.Duration{}
	for _, c := range cells {
		if took, ok := done[c.File()]; ok {
			measured[c.Workload.Name+c.Load()] = took
		}
	}
	var b strings.Builder
	whole, left := time.Duration(0), 0
	for i := range cells {
		c := &cells[i]
		state := "done"
		if _, ok := done[c.File()]; !ok {
			took, ok := measured[c.Workload.Name+c.Load()]
			if !ok {
				took = c.estimate()
			}
			whole += took
			left++
			state = "about " + rounded(took)
		}
		fmt.Fprintf(&b, "[%d/%d] %s: %s\n", i+1, len(cells), c, state)
	}
	total = fmt.Sprintf("%d of %d cells, about %s without the time to make prompts and to start targets.\n"+
		"Where nothing is measured, this assumes %s for a first token, %s for each further one, and %d answers at once.\n",
		left, len(cells), rounded(whole), assumedFirst, assumedNext, assumedOpen)
	return b.String(), total, nil
}

func rounded(d time.Duration) string { return d.Round(time.Second).String() }
