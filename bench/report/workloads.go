package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"xpyd/bench/advice"
	"xpyd/bench/result"
)

// workload are all runs of one workload of a sweep, good or bad.
type workload struct {
	sweep, workload string
	cells           []cell // by load, then by target in the order of the first runs
}

// cell are the repeats of one load on one target.
type cell struct {
	target string
	runs   []*result.Run
}

func workloads(runs []*result.Run) (all []workload) {
	index := map[[2]string]int{}
	for _, s := range sets(runs) {
		key := [2]string{s.sweep, s.workload}
		i, ok := index[key]
		if !ok {
			i = len(all)
			index[key] = i
			all = append(all, workload{sweep: s.sweep, workload: s.workload})
		}
		all[i].cells = append(all[i].cells, cells(s)...)
	}
	for i := range all {
		slices.SortStableFunc(all[i].cells, func(a, b cell) int { return byLoad(a.runs[0].Config, b.runs[0].Config) })
	}
	return all
}

// cells groups the runs of a target by load.
func cells(s set) (all []cell) {
	index := map[string]int{}
	for _, r := range s.runs {
		load := advice.Load(r.Config)
		i, ok := index[load]
		if !ok {
			i = len(all)
			index[load] = i
			all = append(all, cell{target: s.target})
		}
		all[i].runs = append(all[i].runs, r)
	}
	return all
}

// byLoad orders loads: rates, all at once, caps.
func byLoad(a, b result.Config) int {
	rate := func(c result.Config) float64 {
		switch {
		case c.Rate != nil:
			return *c.Rate
		case c.Ramp != nil:
			return c.Ramp.To
		case c.Concurrency == 0:
			return math.Inf(1)
		}
		return 0
	}
	if closed(a) != closed(b) {
		return cmp.Compare(rate(b), rate(a))
	}
	return cmp.Or(cmp.Compare(rate(a), rate(b)), a.Concurrency-b.Concurrency, a.NumPrompts-b.NumPrompts)
}

// closed reports whether the cap alone sets the load, without a rate.
func closed(c result.Config) bool { return c.Rate == nil && c.Ramp == nil && c.Concurrency > 0 }

// loadValue is a load as text for a column.
func loadValue(c result.Config) string {
	switch {
	case closed(c):
		return strconv.Itoa(c.Concurrency)
	case c.Ramp != nil:
		return fmt.Sprintf("%g-%g", c.Ramp.From, c.Ramp.To)
	}
	return strings.TrimSuffix(rate(c.Rate), ".0")
}

func loadWords(c result.Config) string {
	if closed(c) {
		return "concurrency = " + loadValue(c)
	}
	return "qps = " + loadValue(c)
}

// loadName heads the column of loads.
func (l workload) loadName() string {
	for _, c := range l.cells {
		if !closed(c.runs[0].Config) {
			return "QPS"
		}
	}
	return "Concurrency"
}

func (l workload) loads() int {
	seen := map[string]bool{}
	for _, c := range l.cells {
		seen[advice.Load(c.runs[0].Config)] = true
	}
	return len(seen)
}

func (l workload) name() string { return strings.TrimSpace(l.sweep + " " + l.workload) }

// title names the workload with its loads.
func (l workload) title() string {
	var values []string
	for _, c := range l.cells {
		if v := loadValue(c.runs[0].Config); !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	c := l.cells[0].runs[0].Config
	text := l.name()
	if c.InputLen > 0 {
		text += fmt.Sprintf(": input_len=%d", c.InputLen)
	}
	return text + ", " + strings.ToLower(l.loadName()) + " = " + strings.Join(values, ", ")
}

func (c cell) median(of func(*result.Run) float64) float64 { return c.values(of).Median() }

// values are a figure's values in all repeats, the lowest first.
func (c cell) values(of func(*result.Run) float64) result.Values {
	var v []float64
	for _, r := range c.runs {
		v = append(v, of(r))
	}
	return result.NewValues(v)
}

func (c cell) failed() (n int) {
	for _, r := range c.runs {
		n += r.Totals.Failed
	}
	return n
}

func (c cell) interrupted() bool {
	return slices.ContainsFunc(c.runs, func(r *result.Run) bool { return r.Interrupted })
}
