package routing

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"xpyd/tools/report"
)

// sample is a workload of two rounds: the candidate waits 90 and 110 ms, the best other
// 100 both times, and has 76 and 80 % of hits to the oracle's 80.
func sample(kind string) (*Results, *Measurement) {
	r := newResults(Options{Rounds: 2, Length: time.Second, Parallel: 1, Version: "v1"})
	s := &scenario{workload: workload{name: "w", title: "work"}, on: topology{2, 2}, requests: make([]request, 30), rate: 30}
	switch kind {
	case "random":
		s.random = true
	case "split":
		s.split = true
	case "slower":
		s.slower = time.Second
	}
	m := r.add(s, []contender{{name: candidate}, {name: splits}, {name: neverSplits}, {name: baseline}})
	for _, v := range []struct {
		name               string
		ttft, hits, tokens float64
		tpot, split        float64
	}{
		{candidate, 90, 76, 100, 15.5, 20}, {candidate, 110, 80, 101, 16, 59}, {baseline, 200, 40, 50, 15, 0}, {baseline, 220, 40, 50, 15, 0},
		{splits, 100, 79, 100, 15, 0}, {splits, 100, 79, 100, 15, 0},
		{neverSplits, 300, 79, 110, 100, 0}, {neverSplits, 300, 79, 110, 100, 0},
		{nameOracle, 50, 80, 0, 0, 0}, {nameOracle, 50, 80, 0, 0, 0},
		{nameOracle + "+auto", 40, 80, 0, 0, 0}, {nameOracle + "+never", 60, 80, 0, 0, 0},
	} {
		m.record(v.name, figures{ttft90: v.ttft, hits: v.hits, tokensS: v.tokens, tpot90: v.tpot, ttftThen: v.ttft, splitBefore: 50, splitThen: v.split, failed: 0, late: 1}, nil, nil)
	}
	return r, m
}

func TestVerdicts(t *testing.T) {
	for _, tc := range []struct{ kind, want string }{
		{"", "prefix+auto: TTFT p90 ms to the best other ≤ 1×: 1.000× (0.900–1.100) to prefix+always: holds\n" +
			"prefix+auto: time per further token p90 ms to prefix+always ≤ 1.05×: 1.050× (1.033–1.067): holds\n" +
			"prefix+auto: tokens/s to prefix+never ≥ 0.95×: 0.914× (0.909–0.918): does not hold\n" +
			"prefix+always: prefix hits % to oracle ≥ 0.95×: 0.988× (0.988–0.988): holds\n" +
			"prefix+auto: prefix hits % to oracle ≥ 0.95×: 0.975× (0.950–1.000): holds"},
		{"random", "prefix+auto: TTFT p90 ms to the best other ≤ 1.03×: 1.000× (0.900–1.100) to prefix+always: holds\n" +
			"prefix+auto: time per further token p90 ms to prefix+always ≤ 1.05×: 1.050× (1.033–1.067): holds\n" +
			"prefix+auto: tokens/s to prefix+never ≥ 0.95×: 0.914× (0.909–0.918): does not hold"},
		{"split", "prefix+auto: TTFT p90 ms to the best other ≤ 1×: 1.000× (0.900–1.100) to prefix+always: holds\n" +
			"prefix+auto: time per further token p90 ms to prefix+always ≤ 1.05×: 1.050× (1.033–1.067): holds\n" +
			"prefix+auto: tokens/s to prefix+never ≥ 0.95×: 0.914× (0.909–0.918): does not hold\n" +
			"prefix+auto: TTFT p90 ms to prefix+always ≤ 1×: 1.000× (0.900–1.100): holds\n" +
			"prefix+auto: tokens/s to prefix+always ≥ 1×: 1.005× (1.000–1.010): holds\n" +
			"prefix+auto: TTFT p90 ms to prefix+never ≤ 1×: 0.333× (0.300–0.367): holds\n" +
			"prefix+auto: tokens/s to prefix+never ≥ 1×: 0.914× (0.909–0.918): does not hold"},
		{"slower", "prefix+auto: TTFT p90 ms from 60 s after the change to prefix+always ≤ 1×: 1.000× (0.900–1.100): holds\n" +
			"prefix+auto: TTFT p90 ms from 60 s after the change to prefix+never ≤ 1.03×: 0.333× (0.300–0.367): holds\n" +
			"prefix+auto: long prompts split from 60 s after it % to before ≤ 0.75×: 0.790× (0.400–1.180): does not hold"},
	} {
		_, m := sample(tc.kind)
		var got []string
		for _, v := range m.verdicts() {
			got = append(got, v.String())
		}
		if strings.Join(got, "\n") != tc.want {
			t.Errorf("%q: verdicts\n%s\nwant\n%s", tc.kind, strings.Join(got, "\n"), tc.want)
		}
	}
}

func TestVerdictsOfWhatIsNotThere(t *testing.T) {
	_, m := sample("")
	m.Rows = m.Rows[1:]
	m.Rows.Of(splits).Name = "another"
	for _, v := range m.verdicts() {
		if v.Known || !strings.HasSuffix(v.String(), "not measured: unknown") {
			t.Errorf("without the candidate: %s", v)
		}
	}
	_, m = sample("slower")
	m.Rows.Of(candidate).Values[splitBefore] = report.Series{0, 0}
	if v := m.judgeTurn(); v.Known {
		t.Errorf("one that has split nothing before: %s", v)
	}
}

// Requests that failed have no times, so dropping the slow ones would look quick.
func TestNoGoalIsMetWithErrors(t *testing.T) {
	_, m := sample("")
	m.Rows.Of(splits).Values[failed] = report.Series{5, 0}
	m.Rows.Of(candidate).Values[failed] = report.Series{0, 3}
	for _, v := range m.verdicts() {
		n := sum(m.Rows.Of(v.Of).Of(failed))
		if v.Holds || !strings.Contains(v.Measured, fmt.Sprintf(", with %.0f errors", n)) {
			t.Errorf("with %g errors: %s", n, v)
		}
	}
}

// A round that failed is a gap, and what went wrong stays in the results.
func TestFailedRoundIsAGap(t *testing.T) {
	r, m := sample("")
	m.record(baseline, nil, nil, errors.New("it broke"))
	m.record(candidate, figures{ttft90: 100}, []string{"502 Bad Gateway"}, nil)
	if q := report.Ratios(m.Rows.Of(candidate).Of(ttft90), m.Rows.Of(baseline).Of(ttft90)); len(report.Present(q)) != 2 {
		t.Errorf("ratios %v, want those of the two rounds that both have", q)
	}
	text := r.Markdown("")
	for _, want := range []string{"- round_robin: it broke", "- prefix+auto: 502 Bad Gateway", "| prefix+auto | **0.47×** 100 (90.0–110)", "| 2P2D | work | prefix+auto: TTFT p90 ms"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// Rendering the file gives what the run itself writes.
func TestRenderOfAnEarlierRun(t *testing.T) {
	r, m := sample("slower")
	m.record(baseline, nil, nil, errors.New("it broke")) // NaN goes through the file too
	out, docs := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(docs, "routing.md"), []byte("<!-- bench-routing: begin -->\n<!-- bench-routing: end -->\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(report.Save(r, out, "", io.Discard), Render(filepath.Join(out, "results.json"), docs)); err != nil {
		t.Fatal(err)
	}
	svg, err := r.Charts()["bench-routing-ttft-2p2d.svg"].SVG()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"routing.md": r.Markdown("img/"), "img/bench-routing-ttft-2p2d.svg": string(svg)} {
		if got, err := os.ReadFile(filepath.Join(docs, name)); err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%s: error %v; from the file\n%s\nfrom the run\n%s", name, err, got, want)
		}
	}
}

// Late requests count from when they were due. Those of the warm part do not count, and those
// without an answer count only as errors.
func TestFiguresOfAnswers(t *testing.T) {
	start := time.Now()
	after := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	s := &scenario{warm: 100 * time.Millisecond, requests: []request{
		{at: 50 * time.Millisecond, tokens: 10, output: 3}, {at: 100 * time.Millisecond, tokens: 100, output: 3},
		{at: 200 * time.Millisecond, tokens: 300, output: 3}, {at: 300 * time.Millisecond, tokens: 5, output: 3},
	}}
	f, problems := s.figures([]answer{
		{sent: after(50), first: after(9000), last: after(9900), tokens: 3, path: pathDecodeOnly},
		{sent: after(110), first: after(150), last: after(170), tokens: 3, cached: 20, path: pathDecodeOnly},
		{sent: after(200), first: after(500), last: after(600), tokens: 3, cached: 80, path: "disaggregated"},
		{sent: after(300), err: errors.New("502 Bad Gateway"), path: "disaggregated"},
	}, start)
	want := figures{ttft50: 50, ttft90: 300, ttft99: 300, tpot90: 50, late: 10, hits: 25, tokensS: 12, direct: 50, failed: 1}
	for k, v := range want {
		if math.Abs(f[k]-v) > 1e-6 {
			t.Errorf("%s: %g, want %g", k, f[k], v)
		}
	}
	if len(problems) != 1 || problems[0] != "502 Bad Gateway" {
		t.Errorf("problems %q", problems)
	}
}
