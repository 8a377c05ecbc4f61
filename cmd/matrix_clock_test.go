package cmd

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// wallClock lists where a file makes or uses a time.Time without its monotonic reading. What is computed
// from that changes when the clock is set.
func wallClock(fset *token.FileSet, file *ast.File) (found []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, _ := sel.X.(*ast.Ident)
		switch sel.Sel.Name {
		case "Date", "Parse", "ParseInLocation":
			if x != nil && x.Name == "time" {
				found = append(found, fset.Position(call.Pos()).String()+": "+sel.Sel.Name)
			}
		case "Unix", "UnixMilli", "UnixMicro", "UnixNano", "UTC", "Local", "AddDate", "Truncate", "Round":
			if x == nil || x.Name == "time" || !imports(file, x.Name) {
				found = append(found, fset.Position(call.Pos()).String()+": "+sel.Sel.Name)
			}
		}
		return true
	})
	return found
}

func imports(file *ast.File, name string) bool {
	return slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool {
		path := strings.Trim(i.Path.Value, `"`)
		return path[strings.LastIndexByte(path, '/')+1:] == name
	})
}

// T25: nothing on a request's path is computed from the wall clock.
func TestNothingIsComputedFromTheWallClock(t *testing.T) {
	const wrong = `package x
import ("time"; "net/url")
func f(t, u time.Time) { _ = t.UTC().Sub(u); _ = t.Round(0); _ = time.Unix(t.Unix(), 0).Add(1); _, _ = url.Parse(""); _, _ = time.Parse("", ""); _ = time.Since(t) }`
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "wrong.go", wrong, 0)
	if err != nil {
		t.Fatal(err)
	}
	if found := wallClock(fset, file); len(found) != 5 {
		t.Fatalf("in a file with five uses these are found: %q", found)
	}
	for _, dir := range []string{".", "cmd", "cmd/config", "cmd/daemon", "engines", "engines/handoff", "engines/kvevents", "engines/progress", "proxy", "proxy/carry", "proxy/fault", "proxy/encode", "proxy/leg", "router", "router/prefix", "router/price", "router/way", "kvparams", "metrics", "netio", "netio/upstream"} {
		dir = filepath.Join("..", dir)
		files, err := fs.Glob(os.DirFS(dir), "*.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", dir, len(files), err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(fset, dir+"/"+name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, use := range wallClock(fset, file) {
				t.Errorf("%s loses the monotonic reading of a time", use)
			}
		}
	}
}
