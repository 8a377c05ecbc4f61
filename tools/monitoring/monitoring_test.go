package monitoring

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"xpyd/tools/process"
)

const configs = "../../configs"

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestDashboardsAreCurrent(t *testing.T) {
	if err := Current(configs); err != nil {
		t.Error(err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "grafana"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Write(dir); err != nil {
		t.Fatal(err)
	}
	if err := Current(dir); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "grafana", "pd.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Current(dir); err == nil || !strings.Contains(err.Error(), "pd.json") {
		t.Errorf("a changed dashboard: %v", err)
	}
}

// Panels of one row do not cover each other, and every panel and variable has an expression.
func TestDashboardsAreWhole(t *testing.T) {
	for _, d := range Dashboards() {
		seen := map[string]bool{}
		for _, r := range d.Rows {
			for _, p := range r.Panels {
				if len(p.Queries) == 0 || p.Unit == "" && p.Kind == graph {
					t.Errorf("%s, %s: no query or no unit", d.Title, p.Title)
				}
				if seen[r.Title+p.Title] {
					t.Errorf("%s has two panels %s", d.Title, p.Title)
				}
				seen[r.Title+p.Title] = true
			}
		}
	}
}

// metricNames returns the names of metrics in an expression.
func metricNames(expr string) []string {
	return regexp.MustCompile(`\b(?:xpyd_|vllm:)\w+`).FindAllString(expr, -1)
}

// known returns the metrics that xpyd documents and that a real vLLM 0.32 showed. Histograms also have
// their three suffixes.
func known(t *testing.T) map[string]bool {
	all := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(xpyd_\\w+)` \\| (\\w+)").FindAllStringSubmatch(read(t, "../../docs/metrics.md"), -1) {
		if all[m[1]] = true; m[2] == "histogram" {
			all[m[1]+"_bucket"], all[m[1]+"_sum"], all[m[1]+"_count"] = true, true, true
		}
	}
	for _, of := range []string{"p", "d"} {
		page := read(t, "../../sim/testdata/vllm-0.32.0/"+of+"-get-metrics.http")
		for _, m := range regexp.MustCompile(`(?m)^(vllm:\w+)`).FindAllStringSubmatch(page, -1) {
			all[m[1]] = true
		}
	}
	return all
}

// Every metric in an expression is one of xpyd or of vLLM itself. So a panel for a metric that only the
// sim has is found.
func TestExpressionsNameRealMetrics(t *testing.T) {
	metrics := known(t)
	all, err := expressions(configs)
	if err != nil {
		t.Fatal(err)
	}
	recorded := map[string]bool{}
	for _, path := range ruleFiles(configs) {
		rules, err := readRules(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rules {
			recorded[r.Record] = true
		}
	}
	for _, e := range all {
		if strings.HasPrefix(e.query, "job") { // a recorded series
			for _, name := range regexp.MustCompile(`\bjob(?:_model)?:[\w:]+`).FindAllString(e.query, -1) {
				if !recorded[name] {
					t.Errorf("%s: nothing records %s", e.where, name)
				}
			}
			continue
		}
		for _, name := range metricNames(e.query) {
			if !metrics[name] {
				t.Errorf("%s: there is no metric %s", e.where, name)
			}
		}
		if strings.Contains(e.query, "$") {
			t.Errorf("%s: a variable is left in %s", e.where, e.query)
		}
	}
}

// Each alert has a test of its name, an entry in docs/alerts.md and a link to it, and nothing else has.
func TestAlertsAreExplainedAndTested(t *testing.T) {
	rules, err := readRules(ruleFiles(configs)[1])
	if err != nil {
		t.Fatal(err)
	}
	text, page := read(t, ruleFiles(configs)[1]), read(t, "../../docs/alerts.md")
	tests := read(t, filepath.Join(configs, "prometheus", "alerts_test.yaml"))
	var alerts, explained, tested []string
	for _, r := range rules {
		alerts = append(alerts, r.Alert)
		if link := "runbook_url: docs/alerts.md#" + strings.ToLower(r.Alert) + "\n"; strings.Count(text, link) != 1 {
			t.Errorf("%s has no %s", r.Alert, link)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^### (Xpyd\w+)$`).FindAllStringSubmatch(page, -1) {
		explained = append(explained, m[1])
	}
	for _, m := range regexp.MustCompile(`(?m)^  - name: (\w+)$`).FindAllStringSubmatch(tests, -1) {
		tested = append(tested, m[1])
	}
	for what, names := range map[string][]string{"explained": explained, "tested": tested} {
		slices.Sort(names)
		if want := slices.Sorted(slices.Values(alerts)); !slices.Equal(names, want) {
			t.Errorf("the alerts are %q, %s are %q", want, what, names)
		}
	}
}

func TestConditionsAnswer0Or1(t *testing.T) {
	for expr, want := range map[string]string{
		`up{job=~"xpyd.*"} == 0`:                            `up{job=~"xpyd.*"} == bool 0`,
		`a > 14.4 * 0.001 and b >= 2`:                       `a > bool 14.4 * 0.001 and b >= bool 2`,
		`rate(x{outcome!="ok",path="a"}[5m]) / rate(y[5m])`: `rate(x{outcome!="ok",path="a"}[5m]) / rate(y[5m])`,
	} {
		if got := whether(expr); got != want {
			t.Errorf("%s: %s, want %s", expr, got, want)
		}
	}
}

// An expression without series, or that Prometheus refuses, fails the check by its name.
func TestMissingSeriesAreFound(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.FormValue("query") {
		case "has":
			_, _ = fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"0"]}]}}`)
		case "wrong":
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprint(w, `{"status":"error","errorType":"bad_data","error":"parse error"}`)
		default:
			_, _ = fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
		}
	}))
	defer s.Close()
	p := &Prometheus{&process.Process{}, s.URL}
	missing, err := withoutSeries(context.Background(), p, []expression{{"one", "has"}, {"two", "lacks"}})
	if err != nil || len(missing) != 1 || missing[0].where != "two" {
		t.Errorf("%v, %v", missing, err)
	}
	if err := noSeries(missing, 2); !strings.Contains(err.Error(), "1 of 2") || !strings.Contains(err.Error(), "two: lacks") {
		t.Error(err)
	}
	if _, err := withoutSeries(context.Background(), p, []expression{{"three", "wrong"}}); err == nil || !strings.Contains(err.Error(), "three") || !strings.Contains(err.Error(), "parse error") {
		t.Errorf("%v", err)
	}
}
