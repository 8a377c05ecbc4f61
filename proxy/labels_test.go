package proxy

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Each name of a label's value is one that the metrics know.
func TestLabelsAreRegistered(t *testing.T) {
	l := labels()
	sets := map[string][]string{
		"reason": l.Reasons, "outcome": l.Outcomes, "path": l.Paths, "end": l.Ends, "orphan": l.OrphanReasons, "code": l.Codes,
	}
	found := map[string]int{}
	isLabel := regexp.MustCompile(`^(reason|outcome|path|end|orphan|code)[A-Z]`)
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(gotoken.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			for i, name := range spec.Names {
				m := isLabel.FindStringSubmatch(name.Name)
				if m == nil || i >= len(spec.Values) {
					continue
				}
				lit, ok := spec.Values[i].(*ast.BasicLit)
				if !ok || lit.Kind != gotoken.STRING {
					continue
				}
				value, err := strconv.Unquote(lit.Value)
				if found[m[1]]++; err != nil || !slices.Contains(sets[m[1]], value) {
					t.Errorf("%s: %s = %q is not in labels(): %v", file, name.Name, value, err)
				}
			}
			return true
		})
	}
	for set := range sets {
		if found[set] == 0 {
			t.Errorf("no constant of %s was found: the test proves nothing", set)
		}
	}
}
