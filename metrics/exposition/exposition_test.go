package exposition

import (
	"bufio"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func read(t *testing.T, text string) Page {
	t.Helper()
	p, err := Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestSum(t *testing.T) {
	p := read(t, "# HELP a_total x\na_total{engine=\"0\",source=\"b c\"} 2.0\na_total{engine=\"1\",source=\"d\"} 3e1\na_total_created{engine=\"0\"} 9\nplain 4\n")
	for _, tc := range []struct {
		name   string
		labels []string
		want   float64
		fails  bool
	}{
		{name: "a_total", want: 32},
		{name: "a_total", labels: []string{`source="d"`}, want: 30},
		{name: "a_total", labels: []string{`engine="0"`, `source="d"`}, want: 0},
		{name: "plain", want: 4},
		{name: "a", fails: true},
	} {
		got, err := p.Sum(tc.name, tc.labels...)
		if got != tc.want || (err != nil) != tc.fails {
			t.Errorf("%s %q: %v, %v", tc.name, tc.labels, got, err)
		}
	}
	if by := p.By("a_total", "source"); len(by) != 2 || by["b c"] != 2 || by["d"] != 30 {
		t.Errorf("by source: %v", by)
	}
}

func TestSeriesAreThoseOfTheText(t *testing.T) {
	p := read(t, "# TYPE h histogram\nh_bucket{a=\"x\",le=\"0.005\"} 1\nh_bucket{a=\"x\",le=\"+Inf\"} 2\nh_sum{a=\"x\"} 0.5\nh_count{a=\"x\"} 2\n"+
		"# TYPE s summary\ns{quantile=\"0.5\"} 7\ns_sum 8\ns_count 9\n# TYPE g gauge\ng{a=\"x \\\"y\\\"\"} -1\n")
	for name, want := range map[string]float64{
		`h_bucket{a="x",le="0.005"}`: 1, `h_bucket{a="x",le="+Inf"}`: 2, `h_sum{a="x"}`: 0.5, `h_count{a="x"}`: 2,
		`s{quantile="0.5"}`: 7, "s_sum": 8, "s_count": 9, `g{a="x \"y\""}`: -1,
	} {
		if got, ok := p.Series[name]; !ok || got != want {
			t.Errorf("%s: %v, there: %v; all: %v", name, got, ok, p.Series)
		}
	}
	if p.Kinds["g"] != "gauge" || p.Kinds["h"] != "histogram" {
		t.Errorf("kinds %v", p.Kinds)
	}
	if _, err := Read(strings.NewReader("a lots\n")); err == nil {
		t.Error("Read accepts a value that is not a number")
	}
}

// Read reads each engine's recorded page.
func TestRecordedPages(t *testing.T) {
	files, err := filepath.Glob("../../sim/testdata/*/*get-metrics.http")
	if err != nil || len(files) < 6 {
		t.Fatalf("recordings: %q, error %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, answer, _ := strings.Cut(string(text), "==\n") // the request comes first
		resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(answer)), nil)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Read(resp.Body)
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if _, err := p.Sum("vllm:prompt_tokens_total"); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		_ = resp.Body.Close()
	}
}
