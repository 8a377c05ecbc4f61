package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"xpyd/kvparams"
	"xpyd/proxy"
	"xpyd/router"
)

// update rewrites the generated parts of the documents (make docs).
var update = flag.Bool("update", false, "rewrite the generated parts of README.md and configs/default.yaml")

func readText(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// section is what stands between the README's markers of that name.
func section(t *testing.T, text, name string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, "<!-- "+name+":begin -->\n")
	body, _, ok2 := strings.Cut(rest, "<!-- "+name+":end -->")
	if !ok || !ok2 {
		t.Fatalf("README.md has no section %s", name)
	}
	return body
}

// checkSection wants the section to be want, or writes it.
func checkSection(t *testing.T, name, want string) {
	t.Helper()
	text := readText(t, "README.md")
	got := section(t, text, name)
	if got == want {
		return
	}
	if !*update {
		t.Fatalf("the table %s of README.md is not that of the code; run make docs", name)
	}
	begin := "<!-- " + name + ":begin -->\n"
	text = strings.Replace(text, begin+got, begin+want, 1)
	if err := os.WriteFile("README.md", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func plainHelp(k key) string { return strings.ReplaceAll(k.help(), "`", "") }

func TestDocsConfigTable(t *testing.T) {
	var b strings.Builder
	b.WriteString("| key | type | default | meaning |\n|---|---|---|---|\n")
	for _, k := range configKeys() {
		def := ""
		if d := k.defaultText(); d != "" {
			def = "`" + d + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.path, k.unit(), def, plainHelp(k))
	}
	checkSection(t, "config", b.String())
}

// examplePools stand in default.yaml, as the pools alone have no default to run with.
var examplePools = map[string]string{"prefill": "http://127.0.0.1:8100", "decode": "http://127.0.0.1:8200"}

func TestDocsDefaultYAML(t *testing.T) {
	const path = "configs/default.yaml"
	if want := defaultYAML(); readText(t, path) != want {
		if !*update {
			t.Fatalf("%s is not what the code says; run make docs", path)
		}
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c, err := load(t, []string{"--config", path}, nil)
	if err != nil {
		t.Fatal(err)
	}
	file, _, err := readConfigFile(openFile, configKeys(), path)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range configKeys() {
		want := k.defaultText()
		if example, ok := examplePools[k.path]; ok {
			want = example
		}
		if _, ok := file[k.path]; !ok || k.text(c) != want {
			t.Errorf("%s is %q in the file (there: %v), want %q", k.path, k.text(c), ok, want)
		}
	}
}

func defaultYAML() string {
	var b strings.Builder
	b.WriteString(`# Every key of xpyd with its default; only the two pools are examples.
#   xpyd check --config configs/default.yaml
#   xpyd serve --config configs/default.yaml
# Flags (--timeouts-dial 2s) win over variables (XPYD_TIMEOUTS_DIAL=2s), variables over
# this file. Durations: 250ms, 1s, 5m. Sizes: bytes, KiB, MiB, GiB.
`)
	in := ""
	for _, k := range configKeys() {
		sect, name, nested := strings.Cut(k.path, ".")
		if !nested {
			sect, name = "", k.path
		}
		indent := ""
		if nested {
			indent = "  "
		}
		if nested && sect != in {
			fmt.Fprintf(&b, "\n%s:\n", sect)
		} else if !nested {
			b.WriteString("\n")
		}
		in = sect
		fmt.Fprintf(&b, "%s# %s\n%s%s: %s\n", indent, plainHelp(k), indent, name, yamlDefault(k))
	}
	return b.String()
}

func yamlDefault(k key) string {
	switch {
	case examplePools[k.path] != "":
		return fmt.Sprintf("[%q]", examplePools[k.path])
	case k.unit() == "list":
		var quoted []string
		for _, s := range k.def.([]string) {
			quoted = append(quoted, strconv.Quote(s))
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	case k.unit() == "string":
		return fmt.Sprintf("%q", k.defaultText())
	}
	return k.defaultText()
}

// rowNames are the `names` in the first column of a table.
func rowNames(table string) []string {
	var names []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(table, -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	return names
}

func checkRows(t *testing.T, what string, rows, code []string) {
	t.Helper()
	slices.Sort(code)
	for _, name := range code {
		if !slices.Contains(rows, name) {
			t.Errorf("README.md explains no %s %s", what, name)
		}
	}
	for i, name := range rows {
		if !slices.Contains(code, name) {
			t.Errorf("README.md explains the %s %s, which the code does not have", what, name)
		}
		if i > 0 && rows[i-1] == name {
			t.Errorf("README.md explains the %s %s twice", what, name)
		}
	}
}

func TestDocsErrorCodes(t *testing.T) {
	checkRows(t, "error code", rowNames(section(t, readText(t, "README.md"), "errors")), proxy.ErrorCodes())
}

// Reasons are labels of xpyd_decisions_total; those that are not kvparams' own are
// constants of the proxy.
func TestDocsReasons(t *testing.T) {
	var code []string
	for _, m := range regexp.MustCompile(`(?m)^\s+reason\w+\s+= "(\w+)"`).FindAllStringSubmatch(readText(t, "proxy/completion.go"), -1) {
		code = append(code, m[1])
	}
	if len(code) == 0 {
		t.Error("proxy/completion.go has no reasons in the form that this test knows")
	}
	for _, r := range router.DecideReasons() {
		if r != router.ReasonAlways { // the proxy's reasonNone
			code = append(code, r)
		}
	}
	for _, r := range kvparams.Reasons() {
		code = append(code, string(r))
	}
	checkRows(t, "reason", rowNames(section(t, readText(t, "README.md"), "reasons")), code)
}

var (
	metricCall = regexp.MustCompile(`m\.(counterVec|counterFunc|counter|histogramVec|gauge)\("(xpyd_\w+)", "([^"]+)"(.*)`)
	metricDesc = regexp.MustCompile(`NewDesc\("(xpyd_\w+)", "([^"]+)"(.*)`)
	metricOpts = regexp.MustCompile(`Name: "(xpyd_\w+)", Help: "([^"]+)"(.*)`)
	metricName = regexp.MustCompile(`"(xpyd_\w+)"`)
	labelName  = regexp.MustCompile(`"([a-z_]+)"`)
)

// TestDocsMetricTable reads the metrics where they are registered: a scrape would miss
// those that have no series yet.
func TestDocsMetricTable(t *testing.T) {
	source := readText(t, "metrics/metrics.go") + readText(t, "metrics/advice.go") + readText(t, "metrics/readiness.go")
	rows := map[string]string{}
	add := func(name, kind, help, rest string) {
		var labels []string
		for _, m := range labelName.FindAllStringSubmatch(rest, -1) {
			labels = append(labels, m[1])
		}
		rows[name] = fmt.Sprintf("| `%s` | %s | %s | %s |\n", name, kind, strings.Join(labels, ", "), help)
	}
	for _, m := range metricCall.FindAllStringSubmatch(source, -1) {
		add(m[2], strings.TrimSuffix(strings.TrimSuffix(m[1], "Vec"), "Func"), m[3], m[4])
	}
	for _, m := range metricDesc.FindAllStringSubmatch(source, -1) {
		kind := "gauge"
		if strings.HasSuffix(m[1], "_total") {
			kind = "counter"
		}
		add(m[1], kind, m[2], m[3])
	}
	for _, m := range metricOpts.FindAllStringSubmatch(source, -1) {
		add(m[1], "gauge", m[2], m[3])
	}
	for _, m := range metricName.FindAllStringSubmatch(source, -1) {
		if rows[m[1]] == "" {
			t.Errorf("metrics.go registers %s in a form that this test does not know", m[1])
		}
	}
	var b strings.Builder
	b.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		b.WriteString(rows[name])
	}
	checkSection(t, "metrics", b.String())
}

// TestDocsAdminPages: each member that the pages of the admin port may have stands in
// docs/admin.md, and nothing else.
func TestDocsAdminPages(t *testing.T) {
	members, told := map[string]bool{}, map[string]bool{}
	for _, file := range []string{"proxy/admin.go", "proxy/adminbackends.go", "proxy/adminadvice.go", "router/advice.go", "router/price.go"} {
		for _, m := range regexp.MustCompile(`json:"(\w+)`).FindAllStringSubmatch(readText(t, file), -1) {
			members[m[1]] = true
		}
	}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]+`) \\|").FindAllStringSubmatch(readText(t, "docs/admin.md"), -1) {
		for _, m := range regexp.MustCompile("`(?:[\\w…]+\\.)?(\\w+)`").FindAllStringSubmatch(row[1], -1) {
			told[m[1]] = true
		}
	}
	for name := range members {
		if !told[name] {
			t.Errorf("docs/admin.md does not explain %s", name)
		}
	}
	for name := range told {
		if !members[name] {
			t.Errorf("docs/admin.md explains %s, which no page has", name)
		}
	}
}

// TestDocsMakeTargets: what the documents tell people to run exists.
func TestDocsMakeTargets(t *testing.T) {
	makefile := readText(t, "Makefile")
	for _, doc := range []string{"README.md", "CONTRIBUTING.md", "SECURITY.md", ".ci/run"} {
		for _, m := range regexp.MustCompile("(?m)(?:^|`)make ([a-z0-9 -]+)").FindAllStringSubmatch(readText(t, doc), -1) {
			for _, target := range strings.Fields(m[1]) {
				if !strings.Contains(makefile, "\n"+target+":") {
					t.Errorf("%s says make %s, which the Makefile lacks", doc, target)
				}
			}
		}
	}
}
