package advice

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"xpyd/bench/result"
)

// measured is a whole run of a target at a concurrency, with a rate of requests and a TPOT in ms.
func measured(target string, gpus float64, concurrency, repeat int, rate, tpot float64) *result.Run {
	return &result.Run{
		Config: result.Config{Concurrency: concurrency, Cell: &result.Cell{Sweep: "s", Target: target, GPUs: gpus, Workload: "mixed", Repeat: repeat}},
		Totals: &result.Totals{
			Completed: 100, RequestRate: rate, OutputRate: rate * 100, TotalRate: rate * 1000,
			MS: map[string]result.Stat{result.TPOT: {Median: tpot, Max: tpot}, result.TTFT: {Median: 10 * tpot}},
		},
	}
}

// crossing are two targets with lines that cross at 4 req/s and a TPOT of 8 ms: a from 1 to 7 req/s at
// 2 to 14 ms, b from 1 to 9 at 6.5 to 10.5. Each is measured three times, and repeats differ by ±jitter.
func crossing(jitter float64) (runs []*result.Run) {
	for repeat, by := range []float64{1 - jitter, 1, 1 + jitter} {
		for i := range 7 {
			rate := float64(i + 1)
			runs = append(runs, measured("a", 4, 1<<i, repeat+1, rate, 2*rate*by))
		}
		for i := range 9 {
			rate := float64(i + 1)
			runs = append(runs, measured("b", 4, 1<<i, repeat+1, rate, (6+rate/2)*by))
		}
	}
	return runs
}

// The lines cross at 4 req/s. Within 2 % around that, neither is better.
func TestCrossoverIsWhereTheLinesCross(t *testing.T) {
	all := Crossovers(crossing(0), Token())
	if len(all) != 1 || all[0].Few || all[0].Latency != "median TPOT" {
		t.Fatalf("%+v", all)
	}
	if got, want := all[0].String(), "a up to 3.9 req/s, a or b (no clear difference) to 4.11, b above, to 9"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestPointsThatAreBeatenByTheirOwn: they do not shorten the range. a is measured from 2 req/s on, and
// is slower there than at 6.
func TestPointsThatAreBeatenByTheirOwn(t *testing.T) {
	runs := []*result.Run{measured("a", 1, 1, 1, 2, 4), measured("a", 1, 3, 1, 6, 3), measured("b", 1, 1, 1, 2, 9), measured("b", 1, 3, 1, 5, 9)}
	if got, want := Crossovers(runs, Token())[0].String(), "a from 2 to 6 req/s"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestTwoPercentAreNothing: such a difference decides nothing, however well the repeats agree.
func TestTwoPercentAreNothing(t *testing.T) {
	var runs []*result.Run
	for repeat := range 3 {
		runs = append(runs, measured("a", 1, 8, repeat, 5, 15), measured("b", 1, 8, repeat, 5.05, 15.1))
	}
	if got := Crossovers(runs, Token())[0]; len(got.Ranges) != 1 || len(got.Ranges[0].Best) != 2 || got.Few {
		t.Errorf("%+v", got)
	}
	if got := Throughput(runs)[0].String(); !strings.HasPrefix(got, "no winner: b at concurrency 8 with 505 ") {
		t.Error(got)
	}
}

// TestReachVaries: if the repeats of two targets reach equally far, neither loses the last bit of the
// load to the other.
func TestReachVaries(t *testing.T) {
	var runs []*result.Run
	for i, rates := range [][2]float64{{7.5, 7.66}, {7.7, 7.7}} {
		runs = append(runs, measured("a", 1, 8, i+1, rates[0], 5), measured("b", 1, 8, i+1, rates[1], 6))
	}
	if got, want := Crossovers(runs, Token())[0].String(), "a at 7.68 req/s"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestWithinTheSpreadNobodyWins: where the repeats overlap there is no winner, and only there.
func TestWithinTheSpreadNobodyWins(t *testing.T) {
	ranges := Crossovers(crossing(0.1), Token())[0].Ranges
	if len(ranges) != 3 || ranges[0].Best[0] != "a" || !slices.Equal(ranges[1].Best, []string{"a", "b"}) || ranges[2].Best[0] != "b" {
		t.Fatalf("%+v", ranges)
	}
	// a's highest of 2.2x meets b's lowest of 0.9(6+x/2) at 3.09; b's highest 1.1(6+x/2) meets a's lowest 1.8x at 5.28
	if math.Abs(ranges[1].From-3.09) > 0.01 || math.Abs(ranges[1].To-5.28) > 0.01 {
		t.Errorf("no winner from %v to %v", ranges[1].From, ranges[1].To)
	}
	if text := strings.Join(Words(crossing(0.9), Token()), "\n"); !strings.Contains(text, "no winner") && !strings.Contains(text, "no clear difference") {
		t.Error(text)
	}
}

// TestObjective: the most load at which the P90 of both metrics keeps its bound, in the median of the repeats.
func TestObjective(t *testing.T) {
	within := func(target string, gpus float64, concurrency, repeat int, rate, ttft, tpot float64) *result.Run {
		r := measured(target, gpus, concurrency, repeat, rate, tpot)
		r.Totals.MS[result.TTFT], r.Totals.MS[result.TPOT] = result.Stat{P90: ttft}, result.Stat{Median: tpot, Max: tpot, P90: tpot}
		return r
	}
	runs := []*result.Run{
		within("3P2D", 5, 4, 1, 4, 200, 10), within("3P2D", 5, 8, 1, 9, 490, 19), within("3P2D", 5, 8, 2, 9, 500, 20), within("3P2D", 5, 8, 3, 9, 900, 21), within("3P2D", 5, 16, 1, 12, 700, 22),
		within("2P3D", 5, 4, 1, 4, 450, 9), within("2P3D", 5, 8, 1, 8, 501, 9), within("whole", 5, 4, 1, 5, 100, 30),
	}
	bounds := map[string]float64{result.TTFT: 500, result.TPOT: 20}
	const want = "s mixed, closed loop, P90 within TPOT 20 ms and TTFT 500 ms: 3P2D up to 9 req/s (concurrency 8); 2P3D up to 4 req/s (concurrency 4); whole at no load that was measured"
	if got := Objective(runs, bounds); len(got) != 1 || got[0] != want {
		t.Errorf("%q, want %q", got, want)
	}
	runs = append(runs, within("small", 1, 4, 1, 2, 450, 9))
	if got := Objective(runs, bounds)[0]; !strings.Contains(got, ": small up to 2 req/s, 2 a GPU (concurrency 4); 3P2D up to 9 req/s, 1.8 a GPU (concurrency 8); ") {
		t.Error(got)
	}
}

// TestGPUsCount: with twice the GPUs and less than twice the throughput a target is worse.
func TestGPUsCount(t *testing.T) {
	runs := []*result.Run{measured("small", 1, 1, 1, 2, 5), measured("small", 1, 8, 1, 4, 9), measured("big", 2, 1, 1, 2, 5), measured("big", 2, 8, 1, 6, 9)}
	best := Throughput(runs)[0]
	if got, want := best.String(), "small at concurrency 8 with 400 (measured once), in tok/s, a GPU"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	c := Crossovers(runs, Token())[0]
	if c.Unit != "req/s a GPU" || !c.Few || !slices.Equal(c.Ranges[len(c.Ranges)-1].Best, []string{"small"}) || c.Ranges[len(c.Ranges)-1].To != 4 {
		t.Errorf("%+v", c)
	}
	front := Pareto(runs, Token())[0]
	if len(front.Line) != 2 || front.Unit != "tok/s a GPU" || front.Line[0].Target != "small" || front.Line[1].Target != "small" {
		t.Errorf("%+v", front.Line)
	}
	for _, r := range runs {
		r.Config.Cell.GPUs = 0
	}
	if got := Throughput(runs)[0].String(); !strings.HasPrefix(got, "big at concurrency 8 with 600 ") {
		t.Error(got)
	}
}

// TestGoodputDecides: it does so if there are bounds.
func TestGoodputDecides(t *testing.T) {
	var runs []*result.Run
	for i, good := range []float64{3, 1} {
		r := measured(fmt.Sprint("t", i), 1, 8, 1, float64(4+i), 9)
		r.Config.Goodput, r.Totals.GoodRate = map[string]float64{"ttft": 200}, &good
		runs = append(runs, r)
	}
	if got, want := Throughput(runs)[0].String(), "t0 at concurrency 8 with 3 (measured once), in req/s that keep TTFT 200 ms"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestWhatIsLeftOut: a target that refuses requests is not quick, and an interrupted run does not count.
func TestWhatIsLeftOut(t *testing.T) {
	refuses, broken := measured("r", 1, 8, 1, 9, 1), measured("b", 1, 8, 1, 9, 1)
	refuses.Totals.Failed, broken.Interrupted = 50, true
	text := strings.Join(Words([]*result.Run{refuses, broken, measured("a", 1, 8, 1, 3, 9), measured("c", 1, 8, 1, 3, 8)}, Token()), "\n")
	for _, want := range []string{"s mixed, closed loop:", "left out: r at concurrency 8, where 33.3 % of the requests failed", "or without an answer: 1 of the runs", "quickest by median TPOT: c at 3 req/s", "measured fewer than 3 times: a small"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if strings.Contains(text, "most throughput: r") || strings.Contains(text, "most throughput: b") {
		t.Error(text)
	}
}

// TestOneTokenHasNoTPOT: answers of one token are compared by TTFT, their only latency.
func TestOneTokenHasNoTPOT(t *testing.T) {
	a, b := measured("a", 1, 8, 1, 3, 0), measured("b", 1, 8, 1, 3, 0)
	a.Totals.MS[result.TTFT], b.Totals.MS[result.TTFT] = result.Stat{Median: 20}, result.Stat{Median: 30}
	c := Crossovers([]*result.Run{a, b}, Token())[0]
	if c.Latency != "median TTFT" || !slices.Equal(c.Ranges[0].Best, []string{"a"}) {
		t.Errorf("%+v", c)
	}
}

// TestRunsOutsideASweep: their target is their label, or the URL.
func TestRunsOutsideASweep(t *testing.T) {
	a, b := measured("", 0, 8, 1, 3, 5), measured("", 0, 8, 1, 3, 6)
	a.Config.Cell, b.Config.Cell, a.Config.Label, b.Config.URL = nil, nil, "xpyd", "http://plain"
	if groups := Groups([]*result.Run{a, b}, Token()); len(groups) != 1 || len(groups[0].Points) != 2 || groups[0].Points[0].Target != "xpyd" || groups[0].Points[1].Target != "http://plain" {
		t.Errorf("%+v", groups)
	}
}
