package report

import (
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"

	"xpyd/bench/advice"
	"xpyd/bench/plot"
	"xpyd/bench/result"
	"xpyd/internal/racetest"
)

// TestPageNeedsNothing: the page loads nothing and runs nothing, and input from outside is text.
func TestPageNeedsNothing(t *testing.T) {
	evil := failed(t)
	evil.Config.Label = `<script>alert("1")</script>`
	evil.Records[0].Error = `<img src=x onerror=alert(1)>`
	for name, runs := range map[string][]*result.Run{"one": {saved(t, "rate")}, "two": {saved(t, "rate"), evil}, "sweep": sweep(t)} {
		page := printed(t, "html", runs...)
		if bad := regexp.MustCompile(`(?i)<script|<img|<link|<iframe|<[a-z][^>]*\s(src|href)=|@import|url\(`).FindString(page); bad != "" {
			t.Errorf("%s has %s", name, bad)
		}
		if !strings.HasPrefix(page, "<!doctype html>") || !strings.Contains(page, "prefers-color-scheme: dark") || !strings.Contains(page, "width=device-width") {
			t.Errorf("%s begins\n%.300s", name, page)
		}
	}
}

// TestPageHasAllOfIt: tables, plots, words, and of each run the block, failures, notes and the
// configuration.
func TestPageHasAllOfIt(t *testing.T) {
	page := printed(t, "html", sweep(t)...)
	for _, want := range []string{"Concurrency", "tok/s a GPU", "collocated", "most throughput: ", "quickest by median TPOT: ", "quickest by median TTFT: ", "============ Serving Benchmark Result ============",
		"the tool&#39;s own lateness", "<th>seed</th><td>", "points: medians of 2 repeats"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page of a sweep lacks %q", want)
		}
	}
	if n := strings.Count(page, "<figure><svg"); n != 12 {
		t.Errorf("%d figures, want 3 of Ray's and 9 of inference-perf's", n)
	}
	if n := strings.Count(page, "<details>"); n != 12 {
		t.Errorf("%d runs, want 12", n)
	}
	r := failed(t)
	r.Engines = []result.Engine{{Name: "P1", Role: "prefill", Problem: "refused"}}
	page = printed(t, "html", r)
	for _, want := range []string{"<td class=\"bad\">http_429</td><td>10</td><td>429 Too Many Requests: queue full</td>", "interrupted after 59 requests", "engine P1, prefill: unknown, refused", "<details open>", "Share of answers"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page of a run lacks %q", want)
		}
	}
}

// TestSVGsAreWhole: each is XML, has the targets' names, and has numbers for coordinates.
func TestSVGsAreWhole(t *testing.T) {
	racetest.SkipPure(t)
	for _, format := range []string{"ray", "inference-perf"} {
		for name, text := range filesOf(t, format, sweep(t)) {
			if !strings.HasSuffix(name, ".svg") {
				continue
			}
			d := xml.NewDecoder(strings.NewReader(text))
			var err error
			for err == nil {
				_, err = d.Token()
			}
			if !errors.Is(err, io.EOF) {
				t.Errorf("%s: %v", name, err)
			}
			for _, want := range []string{">collocated<", ">1P1D<", ">2P1D<"} {
				if !strings.Contains(text, want) {
					t.Errorf("%s lacks %s", name, want)
				}
			}
			if strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
				t.Errorf("%s has a coordinate that is no number", name)
			}
		}
	}
}

// TestRayChoices: the third panel is the chosen one, and the words use the same latency.
func TestRayChoices(t *testing.T) {
	for want, o := range map[string]plot.Pareto{
		">TPOT (ms), log scale<": {}, ">Chunk Latency (ms, size=16), log scale<": {Mode: plot.Chunk}, ">Interactivity (token/s/usr), log scale<": {Interactivity: true},
		">Output Throughput vs TTFT<": {Mode: plot.FirstToken}, ">Chunk Latency (ms, size=4), log scale<": {Mode: plot.Chunk, Chunk: 4}, ">Request Throughput (request/s)<": {Raw: true, Throughput: plot.Requests}, ">Output Throughput (token/s)<": {Raw: true}, ">Output Throughput (token/s/node)<": {},
	} {
		var words strings.Builder
		if err := PrintAs(&words, "ray", sweep(t), Options{Ray: o}); err != nil {
			t.Fatal(err)
		}
		svg, err := plot.Ray(advice.Groups(sweep(t), o.Latency())[0], o).SVG()
		if err != nil || !strings.Contains(string(svg), want) || !strings.Contains(words.String(), "by "+o.Latency().Name+" and throughput:") {
			t.Errorf("%+v: no %s (%v), or\n%s", o, want, err, &words)
		}
	}
}

// TestPageOfRunsThatMakeNoCurve: a workload with a run alone has the spread of its latencies, whatever
// else is on the page. Targets that do not say how many GPUs they have get no column for it.
func TestPageOfRunsThatMakeNoCurve(t *testing.T) {
	other := saved(t, "rate")
	other.Config.InputLen = 9
	page := printed(t, "html", saved(t, "rate"), other)
	if n := strings.Count(page, "<figure><svg"); n != 8 {
		t.Errorf("%d figures, want 4 for each of two runs", n)
	}
	if strings.Contains(page, "a GPU") || strings.Count(page, "<th>TTFT median</th><th>P99</th>") != 2 {
		t.Error("a column without figures, or none for TTFT")
	}
}
