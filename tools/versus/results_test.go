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
	out := r.add(s, loadEpoll, []contender{{name: nameXpyd, xpyd: true}, {name: nameNginx}, {name: nameDirect}})
	for _, v := range []struct {
		name string
		cpu  float64
		rate float64
	}{{nameXpyd, 40, 50}, {nameXpyd, 44, 40}, {nameNginx, 20, 100}, {nameNginx, 20, 100}, {nameDirect, 10, 1}, {nameDirect, 10, 1}} {
		out.record(v.name, map[metric]float64{cpuRequest: v.cpu, requestsS: v.rate, othersCPU: 3}, nil)
	}
	other := r.add(shape{name: "other", title: "other", metrics: s.metrics}, loadEpoll, []contender{{name: nameXpyd, xpyd: true}})
	for range 2 {
		other.record(nameXpyd, map[metric]float64{cpuRequest: 40}, nil)
	}
	return r
}

func TestVerdicts(t *testing.T) {
	r := sample()
	var got []string
	for _, v := range r.verdicts(r.Shapes[0]) {
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
	for i := range want {
		want[i] += " [epoll]"
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("verdicts\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestTableShowsRatiosFirst(t *testing.T) {
	r := sample()
	text := r.Markdown("img/")
	for _, want := range []string{
		"| JSON [epoll] | xpyd | **2.10×** 42.0 (40.0–44.0) | **0.45×** 45.0 (40.0–50.0) | – |",
		"| JSON [epoll] | nginx | 20.0 (20.0–20.0) | 100 (100–100) | – |",
		"| JSON | CPU/request µs to nginx ≤ 2× | 2.10× (2.00–2.20) | **does not hold** | epoll | – |",
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
	if err := errors.Join(report.Save(r, out, "", io.Discard), Render([]string{filepath.Join(out, "results.json")}, docs)); err != nil {
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

// A bar is judged under the load that is worse for it, against the cheaper nginx under that load.
func TestBarsAreJudgedOnTheWorseLoad(t *testing.T) {
	figures := []struct {
		load, name string
		cpu, rate  float64
	}{
		{loadEpoll, nameXpyd, 40, 100}, {loadEpoll, nameNginx, 20, 100}, {loadEpoll, nameBuffered, 25, 200},
		{loadGoroutines, nameXpyd, 60, 50}, {loadGoroutines, nameNginx, 40, 100}, {loadGoroutines, nameBuffered, 20, 50},
	}
	s := shape{name: "json", title: "JSON", metrics: []metric{cpuRequest, requestsS}, bars: []bar{
		atMost(2.2, cpuRequest, nameNginx), {metric: requestsS, limit: 80, atLeast: true}, atMost(1, cpuRequest, nameRelay),
	}}
	names := []contender{{name: nameXpyd, xpyd: true}, {name: nameNginx}, {name: nameBuffered}}
	for _, tc := range []struct {
		name  string
		loads []string
		want  []string
	}{
		{"both", []string{loadEpoll, loadGoroutines}, []string{
			"xpyd: CPU/request µs to nginx-buffered ≤ 2.2×: 3.00× (3.00–3.00): does not hold [goroutines]; 2.00× (2.00–2.00) [epoll]",
			"xpyd: requests/s ≥ 80: 50.0 (50.0–50.0): does not hold [goroutines]; 100 (100–100) [epoll]",
			"xpyd: CPU/request µs to relay ≤ 1×: not measured: unknown [epoll]; not measured [goroutines]",
		}},
		{"the other order", []string{loadGoroutines, loadEpoll}, []string{
			"xpyd: CPU/request µs to nginx-buffered ≤ 2.2×: 3.00× (3.00–3.00): does not hold [goroutines]; 2.00× (2.00–2.00) [epoll]",
			"xpyd: requests/s ≥ 80: 50.0 (50.0–50.0): does not hold [goroutines]; 100 (100–100) [epoll]",
			"xpyd: CPU/request µs to relay ≤ 1×: not measured: unknown [goroutines]; not measured [epoll]",
		}},
		{"one", []string{loadEpoll}, []string{
			"xpyd: CPU/request µs to nginx ≤ 2.2×: 2.00× (2.00–2.00): holds [epoll]",
			"xpyd: requests/s ≥ 80: 100 (100–100): holds [epoll]",
			"xpyd: CPU/request µs to relay ≤ 1×: not measured: unknown [epoll]",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newResults(Options{Rounds: 1, Window: time.Second, Version: "v1"})
			for _, load := range tc.loads {
				out := r.add(s, load, names)
				for _, f := range figures {
					if f.load == load {
						out.record(f.name, map[metric]float64{cpuRequest: f.cpu, requestsS: f.rate}, nil)
					}
				}
			}
			var got []string
			for _, v := range r.verdicts(r.Shapes[0]) {
				got = append(got, v.String())
			}
			if strings.Join(got, "\n") != strings.Join(tc.want, "\n") {
				t.Errorf("verdicts\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
		})
	}
}

// A load under which a build failed does not leave the bar to the other load.
func TestFailureUnderOneLoadIsTheWorse(t *testing.T) {
	r := newResults(Options{Rounds: 1, Window: time.Second, Version: "v1"})
	s := shape{name: "json", title: "JSON", metrics: []metric{cpuRequest}, bars: []bar{{metric: cpuRequest, limit: 50}}}
	for _, load := range (&Options{}).loads() {
		out := r.add(s, load, []contender{{name: nameXpyd, xpyd: true}})
		var err error
		if load == loadGoroutines {
			err = errors.New("it lost a request")
		}
		out.record(nameXpyd, map[metric]float64{cpuRequest: 40}, err)
	}
	if v := r.verdicts(r.Shapes[0])[0]; v.Known || v.load != loadGoroutines {
		t.Errorf("verdict %q, want unknown under goroutines", v)
	}
}
