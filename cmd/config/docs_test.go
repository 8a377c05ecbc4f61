package config

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"xpyd/internal/docs"
	"xpyd/kvparams"
)

// update rewrites the generated parts of the documents (make docs).
var update = flag.Bool("update", false, "rewrite the generated parts of docs/ and configs/default.yaml")

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
	docs.Check(t, "config", b.String(), *update)
}

// The table of connectors in docs/connectors.md says what kvparams.Standings says.
func TestDocsConnectors(t *testing.T) {
	var b strings.Builder
	b.WriteString("| `connector` | the engines' name | legs | what links them | how far it is tried | status |\n|---|---|---|---|---|---|\n")
	for _, s := range kvparams.Standings() {
		d, _ := kvparams.Lookup(s.Name)
		var names, tried []string
		for _, name := range s.Engines {
			names = append(names, "`"+name+"`")
		}
		if s.About != "" {
			names = append(names, s.About)
		}
		for _, how := range []kvparams.How{kvparams.Run, kvparams.Recorded, kvparams.Read} {
			var these []string
			for _, ran := range s.Tried {
				if ran.How == how {
					these = append(these, fmt.Sprintf("%s (%s)", ran.Release, strings.TrimPrefix(ran.Where+", "+ran.Date, ", ")))
				}
			}
			if len(these) > 0 {
				tried = append(tried, fmt.Sprintf("*%s* %s", how, strings.Join(these, ", ")))
			}
		}
		legs, status := "one after the other", ""
		if d.Concurrent() {
			legs = "at once"
		}
		if s.Experimental() {
			status = strings.TrimSuffix("experimental: "+s.Fault, ": ")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", s.Name, strings.Join(names, ", "), legs, s.Links, strings.Join(tried, "; "), status)
	}
	docs.Check(t, "connectors", b.String(), *update)
}

// examplePools are in default.yaml, because only the pools have no default to run with.
var examplePools = map[string]string{"prefill": "http://127.0.0.1:8100", "decode": "http://127.0.0.1:8200"}

func TestDocsDefaultYAML(t *testing.T) {
	const path = "../../configs/default.yaml"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := defaultYAML(); string(text) != want {
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
		for _, s := range strings.FieldsFunc(k.defaultText(), func(r rune) bool { return r == ',' }) {
			quoted = append(quoted, strconv.Quote(s))
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	case k.unit() == "string":
		return fmt.Sprintf("%q", k.defaultText())
	}
	return k.defaultText()
}
