package overlay

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"xpyd/internal/racetest"
)

const program = `package main

import "fmt"

type counter struct{ n int }

func (c *counter) add(more ...int) (sum int) {
	for _, n := range more {
		c.n += n
	}
	return c.n
}

func (c *counter) reset() { c.n = 0 }

func half(int) int { return 1 }

func caught() { _ = recover(); fmt.Print("caught ") }

func of[T any](v T) T { return v }

const unit = 1

func main() {
	defer caught()
	var c counter
	fmt.Print(c.add(1, 2), " ")
	c.reset()
	fmt.Print(c.add(unit), " ")
}
`

// One build holds every change, and the environment chooses one.
func TestSwitchesPlantOneChangeEach(t *testing.T) {
	racetest.SkipPure(t)
	x := module(t, map[string]string{"go.mod": "module program\n\ngo 1.26\n", "main.go": program})
	s := x.NewSwitches()
	for _, tc := range []struct {
		name, in, from, to string
		want               bool
	}{
		{"minus", "(*counter).add", "c.n += n", "c.n -= n", true},
		{"no1", "(*counter).add", "return c.n", "return 7", true},
		{"kept", "(*counter).reset", "c.n = 0", "_ = c", true},
		{"start", "main", "func main() {", "func main() { fmt.Print(\"first \");", true},
		{"head", "(*counter).reset", "func (c *counter) reset() {", "func (d *counter) reset() {c := d;", false},
		{"unnamed", "half", "return 1", "return 2", false},
		{"recovers", "caught", "caught ", "lost ", false},
		{"generic", "of", "return v", "return *new(T)", false},
		{"value", "unit", "1", "2", false},
		{"no", "half", "return 1", "return (", false},
	} {
		if got, err := s.Add(tc.name, tc.in, tc.from, tc.to); got != tc.want || err != nil {
			t.Errorf("%s: %v, error %v, want %v", tc.name, got, err, tc.want)
		}
	}
	binary := build(t, x, s)
	for name, want := range map[string]string{
		"": "3 1 caught ", "minus": "-3 -1 caught ", "no1": "7 7 caught ", "kept": "3 4 caught ", "start": "first 3 1 caught ", "another": "3 1 caught ",
	} {
		cmd := exec.Command(binary)
		cmd.Env = append(os.Environ(), Planted+"="+name)
		if got, err := cmd.CombinedOutput(); string(got) != want || err != nil {
			t.Errorf("%q planted: %q, error %v, want %q", name, got, err, want)
		}
	}
}

// build compiles the module with the switches.
func build(t *testing.T, x *Index, s *Switches) (binary string) {
	t.Helper()
	files, err := s.Files()
	if err != nil {
		t.Fatal(err)
	}
	file, err := Write(t.TempDir(), files)
	if err != nil {
		t.Fatal(err)
	}
	binary = filepath.Join(t.TempDir(), "program")
	cmd := exec.Command("go", "build", "-overlay", file, "-o", binary, ".")
	cmd.Dir = x.root
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return binary
}
