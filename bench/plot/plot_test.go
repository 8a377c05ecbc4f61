package plot

import (
	"bytes"
	"image/png"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"gonum.org/v1/plot/vg"

	"xpyd/bench/advice"
	"xpyd/bench/result"
)

// run is a run of a target at a concurrency, with its tokens a second and its latencies in ms.
func run(target string, gpus float64, concurrency int, rate, ttft, tpot float64) *result.Run {
	stat := func(x float64) result.Stat { return result.Stat{Mean: x, Median: x, Max: x} }
	return &result.Run{
		Tool:   "xpyd devel",
		Config: result.Config{Concurrency: concurrency, Cell: &result.Cell{Sweep: "s", Target: target, GPUs: gpus, Workload: "w", Repeat: 1}},
		Totals: &result.Totals{Completed: 10, RequestRate: rate / 100, OutputRate: rate, TotalRate: 10 * rate,
			MS: map[string]result.Stat{result.TTFT: stat(ttft), result.TPOT: stat(tpot), result.ITL: stat(tpot), result.NTPOT: stat(tpot)}},
	}
}

func group(t *testing.T, runs ...*result.Run) advice.Group {
	t.Helper()
	groups := advice.Groups(runs, advice.Token())
	if len(groups) != 1 {
		t.Fatalf("%d groups", len(groups))
	}
	return groups[0]
}

// two targets, of which b has twice the GPUs.
func two() []*result.Run {
	return []*result.Run{run("a", 4, 1, 100, 50, 10), run("a", 4, 8, 400, 90, 20), run("b", 8, 1, 100, 40, 9), run("b", 8, 8, 900, 60, 12)}
}

// TestThroughputIsOfANode: it is that of 8 GPUs if all GPUs are known, and of the target otherwise.
func TestThroughputIsOfANode(t *testing.T) {
	runs := two()
	third := Ray(group(t, runs...), Pareto{}).panels[2]
	if y := third.lines[1].points[1].y; y != 800 {
		t.Errorf("400 tokens a second of 4 GPUs are %v a node", y)
	}
	if label := third.lines[1].points[1].label; label != "8.0" {
		t.Errorf("4 requests a second of 4 GPUs are %s a node", label)
	}
	runs[3].Config.Cell.GPUs = 0
	third = Ray(group(t, runs...), Pareto{}).panels[2]
	if y := third.lines[1].points[1].y; y != 400 || third.y != "Output Throughput (token/s)" {
		t.Errorf("GPUs are not known, and 400 are %v of %s", y, third.y)
	}
}

// TestFrontHasWhatNothingBeats: the front has quick points first. With interactivity, more is better.
func TestFrontHasWhatNothingBeats(t *testing.T) {
	for _, o := range []Pareto{{}, {Interactivity: true}, {Mode: FirstToken}, {Mode: Chunk}} {
		third := Ray(group(t, two()...), o).panels[2]
		front := third.lines[0]
		if !front.front || len(front.points) == 0 {
			t.Fatalf("%+v: no front", o)
		}
		better := func(a, b point) bool {
			if o.Interactivity {
				return a.x > b.x && a.y > b.y
			}
			return a.x < b.x && a.y > b.y
		}
		for _, f := range front.points {
			for _, l := range third.lines[1:] {
				for _, p := range l.points {
					if better(p, f) {
						t.Errorf("%+v: %v %v is on the front, and %v %v beats it", o, f.x, f.y, p.x, p.y)
					}
				}
			}
		}
	}
}

// TestFailuresAreMarked: a point with failed requests has a cross, and the legend explains it. With many
// failures the point is not on the front.
func TestFailuresAreMarked(t *testing.T) {
	runs := two()
	runs[3].Totals.Failed = 5
	f := Ray(group(t, runs...), Pareto{})
	third := f.panels[2]
	if !third.lines[2].points[1].failed || third.lines[1].points[1].failed {
		t.Errorf("%+v", third.lines)
	}
	for _, p := range third.lines[0].points {
		if p.y == 900 {
			t.Error("a target that refuses a third is on the front")
		}
	}
	svg, err := f.SVG()
	if err != nil || !strings.Contains(string(svg), ">requests failed<") {
		t.Errorf("%v, or nothing in the legend", err)
	}
	runs[0].Interrupted = true
	if got := Ray(group(t, runs...), Pareto{}).Note; !strings.Contains(got, "runs left out: 1") {
		t.Errorf("note %q", got)
	}
}

// TestAnythingCanBeDrawn: one point, none, zeros on logarithmic axes.
func TestAnythingCanBeDrawn(t *testing.T) {
	broken := run("a", 1, 1, 0, 0, 0)
	broken.Totals.Completed = 0
	zero := run("a", 1, 1, 0, 0, 0)
	for name, runs := range map[string][]*result.Run{"one": {run("a", 1, 1, 100, 5, 5)}, "none": {broken}, "zeros": {zero}, "two": two()} {
		g := group(t, runs...)
		for _, f := range append(InferencePerf(g), Ray(g, Pareto{})) {
			if b, err := f.SVG(); err != nil || !bytes.HasSuffix(bytes.TrimSpace(b), []byte("</svg>")) {
				t.Errorf("%s: %s: %v", name, f.Name, err)
			}
		}
	}
}

// TestPNGIsAsWideAsItSays: 900 pixels, as in the guides.
func TestPNGIsAsWideAsItSays(t *testing.T) {
	f := InferencePerf(group(t, two()...))[0]
	b, err := f.PNG()
	if err != nil {
		t.Fatal(err)
	}
	if c, err := png.DecodeConfig(bytes.NewReader(b)); err != nil || c.Width != 900 {
		t.Errorf("%d pixels wide (%v)", c.Width, err)
	}
}

// TestTargetsLookDifferent: all targets of a published sweep do.
func TestTargetsLookDifferent(t *testing.T) {
	seen := map[any]bool{}
	for i := range 17 {
		line, glyph := look(i)
		key := [2]any{line.Color, glyph.Shape}
		if seen[key] {
			t.Errorf("target %d looks like another", i)
		}
		seen[key] = true
	}
}

// TestLabelsCoverNothing: whatever the points, labels keep clear of marks, of each other, and of
// the borders.
func TestLabelsCoverNothing(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	within := vg.Rectangle{Max: vg.Point{X: 300, Y: 200}}
	var taken []vg.Rectangle
	placed := 0
	for range 60 {
		at := vg.Point{X: vg.Length(random.Float64() * 300), Y: vg.Length(random.Float64() * 200)}
		box, ok := place(at, vg.Point{X: 20, Y: 8}, taken, within)
		if !ok {
			continue
		}
		placed++
		if !free(box, taken, within) {
			t.Errorf("label %d at %v covers something", placed, box)
		}
		taken = append(taken, box)
	}
	if placed < 30 {
		t.Errorf("%d of 60 labels had a place", placed)
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		log       bool
		low, high float64
		want      string
	}{
		{false, 0, 26, "0 10 20"}, {false, 0, 1, "0 0.2 0.4 0.6 0.8 1"}, {false, 0, 42000, "0 10k 20k 30k 40k"},
		{true, 3, 2400, "5 10 20 50 100 200 500 1000 2000"}, {true, 14, 26, "15 20 25"}, {true, 0.04, 0.9, "0.05 0.1 0.2 0.5"},
	} {
		var labels []string
		for _, tick := range (ticks{c.log}).Ticks(c.low, c.high) {
			labels = append(labels, tick.Label)
		}
		if got := strings.Join(labels, " "); got != c.want {
			t.Errorf("%v to %v: %s, want %s", c.low, c.high, got, c.want)
		}
	}
}

// TestLongLogAxisBeginsAtATick: every point of such an axis has a number below it.
func TestLongLogAxisBeginsAtATick(t *testing.T) {
	for lowest, want := range map[float64]float64{247: 200, 210: 200, 205: 100, 200: 100, 12: 10, 99: 50, 0.03: 0.02, 5.5: 5} {
		a, err := panel{logY: true, lines: []line{{points: []point{
			{x: 1, xMin: 1, xMax: 1, y: lowest, yMin: lowest, yMax: lowest}, {x: 2, xMin: 2, xMax: 2, y: 8 * lowest, yMin: 8 * lowest, yMax: 8 * lowest}}}}}.axes()
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(a.Y.Min-want) > 1e-9*want {
			t.Errorf("the lowest point is %v, and the axis begins at %v, want %v", lowest, a.Y.Min, want)
		}
		if first := a.Y.Tick.Marker.Ticks(a.Y.Min, a.Y.Max)[0].Value; math.Abs(first-want) > 1e-9*want {
			t.Errorf("the lowest point is %v, and the first number %v", lowest, first)
		}
	}
}

// TestUnreachedConcurrencyIsLeftOut: its figures are those of a lower one. The note says so. A logarithmic axis says what it is.
func TestUnreachedConcurrencyIsLeftOut(t *testing.T) {
	runs := two()
	for _, r := range runs {
		r.Totals.MostOpen = r.Config.Concurrency
	}
	runs[1].Totals.MostOpen = 7
	g := group(t, runs...)
	ray := Ray(g, Pareto{})
	for _, f := range append(InferencePerf(g), ray) {
		for _, p := range f.panels {
			for _, l := range p.lines {
				if l.name == "a" && len(l.points) != 1 || l.name == "b" && len(l.points) != 2 {
					t.Errorf("%s: %s has %d points", p.title, l.name, len(l.points))
				}
			}
		}
		if !strings.Contains(f.Note, "concurrency was never reached: 1") {
			t.Errorf("%s says %s", f.Name, f.Note)
		}
	}
	svg, err := ray.SVG()
	if err != nil || !strings.Contains(string(svg), ">TPOT Median (ms), log scale<") || !strings.Contains(string(svg), ">Concurrency<") {
		t.Errorf("the axes are not named (%v)", err)
	}
}
