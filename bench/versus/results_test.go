package versus

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"xpyd/bench/report"
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
			{metric: cpuRequest, base: "other", limit: 1.1},
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
		"xpyd: CPU/request µs to other ≤ 1.1×: not measured: unknown",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("verdicts\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A round that failed stays in the results, as a gap and as a text.
func TestFailedRoundIsAGap(t *testing.T) {
	r := sample()
	r.Shapes[0].record(nameXpyd, nil, errors.New("it broke"))
	js, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"CPU/request µs":[40,44,null]`, `"errors":["it broke"]`, `"pace kept %":[null,null,null]`} {
		if !strings.Contains(string(js), want) {
			t.Errorf("results lack %s: %s", want, js)
		}
	}
	if m := r.Shapes[0].of(nameXpyd); report.SpreadOf(report.Present(m.Values[cpuRequest])).Median != 42 {
		t.Errorf("the gap counts: %v", m.Values[cpuRequest])
	}
}

func TestTableShowsRatiosFirst(t *testing.T) {
	r := sample()
	text := r.markdown("img/")
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

func TestDocsKeepWhatIsWritten(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "performance.md")
	if err := os.WriteFile(path, []byte("before\n"+docsBegin+"old\n"+docsEnd+"after\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 { // again and again
		if err := sample().writeDocs(dir); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if s := string(text); !strings.HasPrefix(s, "before\n"+docsBegin) || !strings.HasSuffix(s, docsEnd+"after\n") || strings.Contains(s, "old\n") || strings.Count(s, "### Bars") != 1 {
		t.Errorf("performance.md became\n%s", s)
	}
	if _, err := os.Stat(filepath.Join(dir, "img", "bench-requests.svg")); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte("no marks\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := sample().writeDocs(dir); err == nil || !strings.Contains(err.Error(), "bench-proxy: begin") {
		t.Errorf("without marks: error %v", err)
	}
}

// What is rendered of the file is what the run itself writes.
func TestRenderOfAnEarlierRun(t *testing.T) {
	r := sample()
	r.Shapes[0].record(nameXpyd, nil, errors.New("it broke")) // NaN goes through the file, too
	r.Shapes[0].bars = requestShapes()[0].bars                // those that the name stands for
	out, now, later := t.TempDir(), t.TempDir(), t.TempDir()
	for _, dir := range []string{now, later} {
		if err := os.WriteFile(filepath.Join(dir, "performance.md"), []byte(docsBegin+docsEnd), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(r.write(out), r.writeDocs(now), Render(filepath.Join(out, "results.json"), later)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"performance.md", "img/bench-requests.svg"} {
		a, err1 := os.ReadFile(filepath.Join(now, name))
		b, err2 := os.ReadFile(filepath.Join(later, name))
		if err := errors.Join(err1, err2); err != nil || string(a) != string(b) {
			t.Errorf("%s: error %v; from the file\n%s\nfrom the run\n%s", name, err, b, a)
		}
	}
}
