package versus

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"xpyd/tools/report"
)

// sample is a run of two rounds: xpyd costs 40 and 44 µs, nginx 20 and 20.
func sample() *Results {
	r := newResults(Options{Rounds: 2, Window: time.Second, Cores: 2, Version: "v1"})
	s := shape{
		name: "json", title: "JSON", metrics: []metric{cpuRequest, requestsS},
		bars: []bar{
			atMost(2.2, cpuRequest, nameNginx), atMost(2, cpuRequest, nameNginx),
			{metric: requestsS, to: nameNginx, limit: 0.45, atLeast: true}, {metric: cpuRequest, limit: 41},
			atMost(1, cpuRequest, nameHAProxy), {metric: cpuRequest, to: nameNginx, limit: 2.9, above: nameDirect},
			{metric: cpuRequest, base: "other", limit: 1.1}, {metric: cpuRequest, base: "none", limit: 1.1},
		},
	}
	out := r.add(s, []contender{{name: nameXpyd, xpyd: true}, {name: nameNginx}, {name: nameDirect}})
	for _, v := range []struct {
		name string
		cpu  float64
		rate float64
	}{{nameXpyd, 40, 50}, {nameXpyd, 44, 40}, {nameNginx, 20, 100}, {nameNginx, 20, 100}, {nameDirect, 10, 1}, {nameDirect, 10, 1}} {
		out.record(v.name, map[metric]float64{cpuRequest: v.cpu, requestsS: v.rate, othersCPU: 3}, nil)
	}
	other := r.add(shape{name: "other", title: "other", metrics: s.metrics}, []contender{{name: nameXpyd, xpyd: true}})
	for range 2 {
		other.record(nameXpyd, map[metric]float64{cpuRequest: 40}, nil)
	}
	return r
}

func TestVerdicts(t *testing.T) {
	r := sample()
	var got []string
	for _, v := range r.Shapes[0].verdicts(r) {
		got = append(got, v.String())
	}
	want := []string{
		"xpyd: CPU/request µs to nginx ≤ 2.2×: 2.10× (2.00–2.20): holds",
		"xpyd: CPU/request µs to nginx ≤ 2×: 2.10× (2.00–2.20): does not hold",
		"xpyd: requests/s to nginx ≥ 0.45×: 0.45× (0.40–0.50): holds",
		"xpyd: CPU/request µs ≤ 41: 42.0 (40.0–44.0): does not hold",
		"xpyd: CPU/request µs to haproxy ≤ 1×: not measured: unknown",
		"xpyd: CPU/request µs above direct to nginx ≤ 2.9×: 3.20× (3.00–3.40): does not hold",
		"xpyd: CPU/request µs to other ≤ 1.1×: 1.05× (1.00–1.10): holds",
		"xpyd: CPU/request µs to none ≤ 1.1×: not measured: unknown",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("verdicts\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestTableShowsRatiosFirst(t *testing.T) {
	r := sample()
	text := r.Markdown("img/")
	for _, want := range []string{
		"| JSON | xpyd | **2.10×** 42.0 (40.0–44.0) | **0.45×** 45.0 (40.0–50.0) | – |",
		"| JSON | nginx | 20.0 (20.0–20.0) | 100 (100–100) | – |",
		"| JSON | CPU/request µs to nginx ≤ 2× | 2.10× (2.00–2.20) | **does not hold** |",
		"![CPU of a request, µs](img/bench-requests.svg)",
		"xpyd v1",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// Rendering the file gives what the run itself writes.
func TestRenderOfAnEarlierRun(t *testing.T) {
	r := sample()
	r.Shapes[0].record(nameXpyd, nil, errors.New("it broke")) // NaN goes through the file too
	r.Shapes = r.Shapes[:1]
	r.Shapes[0].bars = requestShapes()[0].bars // those that the name stands for
	out, docs := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(docs, "performance.md"), []byte("<!-- bench-proxy: begin -->\n<!-- bench-proxy: end -->\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(report.Save(r, out, "", io.Discard), Render(filepath.Join(out, "results.json"), docs)); err != nil {
		t.Fatal(err)
	}
	svg, err := r.Charts()["bench-requests.svg"].SVG()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"performance.md": r.Markdown("img/"), "img/bench-requests.svg": string(svg)} {
		if got, err := os.ReadFile(filepath.Join(docs, name)); err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%s: error %v; from the file\n%s\nfrom the run\n%s", name, err, got, want)
		}
	}
}
