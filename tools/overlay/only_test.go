package overlay

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"xpyd/internal/racetest"
)

// The compiler is the judge of whether anything that is needed is gone, or an import is left over.
func TestOnlyWhatATestNeedsIsCompiled(t *testing.T) {
	racetest.SkipPure(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module m\n\ngo 1.26\n",
		"m.go":   "package m\n\ntype T struct{}\n",
		"inside_test.go": `package m

import "testing"

func (T) Inside() int { return helped() }

func helped() int { return 1 }

func TestOther(t *testing.T) {}
`,
		"a_test.go": `package m_test

import (
	"bytes"
	"strings"
	"testing"

	"m"
)

type rig struct{ b strings.Builder }

func (r *rig) write() { r.b.WriteString(word) }

const word, unnamed = "a", "b"

// TestKept is kept.
func TestKept(t *testing.T) {
	var r rig
	r.write()
	bytes := m.T{}
	if bytes.Inside() != 1 {
		t.Error(r.b.String())
	}
}

// TestGone is not.
func TestGone(t *testing.T) {
	missing(bytes.MinRead, alone())
}
`,
		"b_test.go": `package m_test

import "testing"

func alone() int { return missing }

func TestGoneToo(t *testing.T) { alone() }
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	only, err := Only(dir, "TestKept")
	if err != nil {
		t.Fatal(err)
	}
	a, b := string(only[filepath.Join(dir, "a_test.go")]), only[filepath.Join(dir, "b_test.go")]
	if strings.Contains(a, "TestGone") || !strings.Contains(a, "TestKept is kept") || strings.Count(a, "\n") != 30 || b != nil || len(only) != 3 {
		t.Errorf("%s\n%s", a, b)
	}
	file, err := Write(filepath.Join(dir, "changed"), only)
	if err != nil {
		t.Fatal(err)
	}
	run := exec.Command("go", "test", "-vet=off", "-v", "-overlay", file, ".")
	run.Dir = dir
	run.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if output, err := run.CombinedOutput(); err != nil || !strings.Contains(string(output), "--- PASS: TestKept") {
		t.Errorf("%v\n%s", err, output)
	}
}
