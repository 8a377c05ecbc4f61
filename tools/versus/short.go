package versus

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"xpyd/tools/report"
)

// glance is a row of the table that a reader sees first.
type glance struct {
	shape, what string
	metric      metric
}

func glances() []glance {
	return []glance{
		{"json", "a request of 1 KiB, 64 at once", cpuRequest},
		{"json", "the same, as a rate", requestsS},
		{"body-512k", "a request of 512 KiB", cpuRequest},
		{"body-4m", "a request of 4 MiB", cpuRequest},
		{"flood", "an event, as fast as it goes", cpuEvent},
		{"paced-64", "an event, 64 streams at 50 a second", cpuEvent},
		{"paced-500", "an event, 500 streams at 50 a second", cpuEvent},
		{"paced-500", "the same, from engine to client", delay99},
		{"ttft", "the first event on an idle machine", ttft50},
		{"ttft-500", "the first event among 500 streams", ttft50},
		{"flow-2000", "an open stream with events", kibStream},
	}
}

// shortTable is the price of xpyd on one screen, each figure under the load that is worse for it.
func (r *Results) shortTable() string {
	var rows strings.Builder
	for _, g := range glances() {
		if s := r.dearest(g); s != nil {
			x, base := s.build(), s.yardstick(r.Baseline)
			values := x.Of(g.metric)
			fmt.Fprintf(&rows, "| %s | %s | %s | %s | %s | %s | %s |\n", g.what, g.metric, report.Short(x.Spread(g.metric).Median), short(base, g.metric),
				orDash(report.Times(values, base.Of(g.metric))), orDash(report.Times(s.Contenders.Of(nameRouter).Of(g.metric), base.Of(g.metric))), s.Load)
		}
	}
	if rows.Len() == 0 {
		return ""
	}
	return "| work | figure | xpyd | nginx, one leg | xpyd / nginx | vllm-router / nginx | load |\n|---|---|---|---|---|---|---|\n" + rows.String() + "\n"
}

// dearest returns the result under the load in which xpyd is the farthest behind nginx, or nil.
func (r *Results) dearest(g glance) *Shape {
	var worst *Shape
	most := math.Inf(-1)
	for _, s := range r.among([]string{g.shape}) {
		base := s.yardstick(r.Baseline)
		q := report.SpreadOf(report.Ratios(s.build().Of(g.metric), base.Of(g.metric))).Median
		if g.metric == requestsS {
			q = -q
		}
		if q > most {
			worst, most = s, q
		}
	}
	return worst
}

// build is the first of xpyd's.
func (s *Shape) build() *report.Row {
	if i := slices.IndexFunc(s.Contenders, func(c *report.Row) bool { return c.Build }); i >= 0 {
		return s.Contenders[i]
	}
	return nil
}

func short(c *report.Row, m metric) string {
	if c == nil || math.IsNaN(c.Spread(m).Median) {
		return "–"
	}
	return report.Short(c.Spread(m).Median)
}

func orDash(text string) string {
	if text == "" {
		return "–"
	}
	return text
}

// scope says what the line about the run leaves open: how many cores were used, and which shapes
// have fewer rounds.
func (r *Results) scope() string {
	text := ""
	if r.Cores > 0 && r.Cores < r.Machine.Cores {
		text = fmt.Sprintf("; proxies, clients and engines together had %d of the cores, except where a row says how many threads the proxy has: there they had all", r.Cores)
	}
	byRounds := map[int][]string{}
	for _, s := range r.Shapes {
		n := 0
		for _, c := range s.Contenders {
			n = max(n, len(c.Of(s.Metrics[0])))
		}
		if n < r.Rounds && !slices.Contains(byRounds[n], s.Name) {
			byRounds[n] = append(byRounds[n], s.Name)
		}
	}
	for n := r.Rounds - 1; n >= 0; n-- {
		if len(byRounds[n]) > 0 {
			text += fmt.Sprintf("; %d rounds of %s", n, strings.Join(families(byRounds[n]), ", "))
		}
	}
	return text
}

// families shortens names that begin alike, such as crowd-100 and crowd-10k, to crowd-*.
func families(names []string) []string {
	size := map[string]int{}
	head := func(name string) string {
		before, _, _ := strings.Cut(name, "-")
		return before
	}
	for _, name := range names {
		size[head(name)]++
	}
	var all []string
	for _, name := range names {
		if size[head(name)] > 1 {
			name = head(name) + "-*"
		}
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}
