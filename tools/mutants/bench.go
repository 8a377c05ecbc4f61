package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"xpyd/tools/overlay"
)

// mutant is one fault. The Go text old occurs once in the declaration in, which is named as (*T).f,
// T.f or f, with the package's name in front if two packages have one of that name. new takes its
// place. test must then fail. It is a test's name with its subtests after slashes, as -v prints it.
// Without a test, the change alters nothing, and all named tests of the package must pass.
type mutant struct {
	name, in, old, new string
	test               string
}

func (m mutant) control() bool { return m.test == "" }

// verdict is what became of a mutant.
type verdict string

const (
	killed   verdict = "killed"   // the named test failed
	survived verdict = "survived" // it passed, or there is no such test
	stale    verdict = "stale"    // old does not occur exactly once in the function
	noBuild  verdict = "no build" // proves nothing about tests
	hung     verdict = "hung"     // no test failed before the time was up
	dead     verdict = "dead"     // a control under which a test fails
)

func (m mutant) expected() verdict {
	if m.control() {
		return survived
	}
	return killed
}

type result struct {
	m       mutant
	verdict verdict
	output  string        // of what gave the verdict
	took    time.Duration // the test
	own     bool          // in a build of its own
}

// These are the times of one run of a test, and of all that are named of a package. They are far
// longer than a busy machine needs, because a test that is still running then has proved nothing.
const (
	testTimeout    = time.Minute
	packageTimeout = 5 * time.Minute
)

func (m mutant) timeout() time.Duration {
	if m.control() {
		return packageTimeout
	}
	return testTimeout
}

// bench plants mutants, several at a time.
type bench struct {
	*overlay.Bench
	chosen []mutant          // what is tried
	rerun  bool              // a control may fail once
	shared map[string]string // test binaries that have many mutants, by the name of each that is there
}

func newBench() (*bench, error) {
	b, err := overlay.NewBench("mutants")
	return &bench{Bench: b}, err
}

// all returns the results in the order of list, which begins with the controls. These must pass, so they
// have the machine to themselves. The places of the bench keep the others from taking each other's processors,
// because a test that fails for want of one counts as one that has found its mutant.
func (b *bench) all(ctx context.Context, list []mutant) []result {
	n := 0
	for n < len(list) && list[n].control() {
		n++
	}
	return append(b.some(ctx, list[:n], 0), b.some(ctx, list[n:], n)...)
}

// some tries a part of the list, from the index first on.
func (b *bench) some(ctx context.Context, list []mutant, first int) []result {
	results := make([]result, len(list))
	var wg sync.WaitGroup
	for i, m := range list {
		wg.Go(func() { results[i] = b.judge(ctx, filepath.Join(b.Dir, fmt.Sprint(first+i)), m) })
	}
	wg.Wait()
	return results
}

// judge tries a mutant in the build that it shares. A control stays there, because it speaks for that
// build. A mutant that is not found there gets a build of its own before it counts as such.
func (b *bench) judge(ctx context.Context, dir string, m mutant) result {
	p, err := b.plant(m)
	if err != nil {
		return result{m: m, verdict: stale, output: err.Error()}
	}
	if binary := b.shared[m.name]; binary != "" {
		if r := b.test(ctx, binary, m, p); r.verdict == m.expected() || m.control() {
			return r
		}
	}
	files, err := overlay.Only(filepath.Join(b.Root, p.tests), b.named(m, p.tests)...)
	if err != nil {
		return result{m: m, verdict: noBuild, output: err.Error()}
	}
	files[filepath.Join(b.Root, p.file)] = p.changed
	binary, err := b.build(ctx, dir, p.tests, files)
	if err != nil {
		return result{m: m, verdict: noBuild, output: err.Error()}
	}
	defer func() { _ = os.Remove(binary) }()
	r := b.test(ctx, binary, m, p)
	r.own = true
	return r
}

// build compiles the tests of a package with changed files, in dir.
func (b *bench) build(ctx context.Context, dir, tests string, files map[string][]byte) (binary string, err error) {
	file, err := overlay.Write(dir, files)
	if err != nil {
		return "", err
	}
	binary = filepath.Join(dir, "test")
	// The binary is not debugged, and leaving out what debuggers need saves a third of the work. A
	// mutant need not please vet.
	return binary, b.Build(ctx, binary, tests, "-vet=off", "-ldflags=-s -w", "-overlay", file)
}

// test runs the mutant's tests. A binary that has other mutants too plants the one that is named.
func (b *bench) test(ctx context.Context, binary string, m mutant, p planted) result {
	r := result{m: m}
	for range b.runs(m) {
		test := exec.CommandContext(ctx, binary, "-test.timeout", m.timeout().String(), "-test.run", b.pattern(m, p.tests))
		test.Dir = filepath.Join(b.Root, p.tests) // go test does so too
		test.Env = append(os.Environ(), overlay.Planted+"="+switchName(m.name))
		output, took, err := b.Places.Run(ctx, test)
		r.verdict, r.output, r.took = m.read(string(output), err), r.output+string(output), r.took+took
		if m.control() == (r.verdict == survived) {
			break
		}
	}
	return r
}

// runs is how often the test may pass before its mutant has survived. Some faults show only when two
// threads meet in one order, and a busy machine can have them meet in the other. The tests of a control
// must pass, at the second time at the latest if they may fail once.
func (b *bench) runs(m mutant) int {
	switch {
	case !m.control():
		return 3
	case b.rerun:
		return 2
	}
	return 1
}

// planted is a mutant's change.
type planted struct {
	file    string // relative to the root, as is tests
	changed []byte
	tests   string // directory of the package whose tests are to find it
}

// plant makes the change, if its place occurs exactly once.
func (b *bench) plant(m mutant) (p planted, err error) {
	if p.file, p.changed, err = b.Index.Change(m.in, m.old, m.new); err != nil {
		return p, err
	}
	if m.control() {
		p.tests = filepath.Dir(p.file)
		return p, nil
	}
	p.tests, err = b.Index.TestDir(m.test)
	return p, err
}

// pattern is the -test.run of the mutant's tests.
func (b *bench) pattern(m mutant, dir string) string {
	if !m.control() {
		return overlay.Pattern(m.test)
	}
	return "^(" + strings.Join(b.named(m, dir), "|") + ")$"
}

// named are the tests that run, without subtests. For a control they are those of the chosen mutants
// which tests of its package find. These tests must pass if nothing is wrong.
func (b *bench) named(m mutant, dir string) []string {
	if !m.control() {
		top, _, _ := strings.Cut(m.test, "/")
		return []string{top}
	}
	var named []string
	for _, other := range b.chosen {
		top, _, _ := strings.Cut(other.test, "/")
		if at, err := b.Index.TestDir(top); err == nil && at == dir && !slices.Contains(named, top) {
			named = append(named, top)
		}
	}
	return named
}

// read turns the end of a test binary into a verdict. Only a failure that a test reports, or a
// panic of the code under it, kills. A time-out does not.
func (m mutant) read(output string, err error) verdict {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return survived
	case m.control():
		return dead
	case strings.Contains(output, "panic: test timed out"), !errors.As(err, &exit):
		return hung
	}
	top, _, _ := strings.Cut(m.test, "/")
	if strings.Contains(output, "--- FAIL: "+top+" ") || strings.HasPrefix(output, "panic: ") || strings.Contains(output, "\npanic: ") {
		return killed
	}
	return hung
}
