package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"xpyd/tools/overlay"
)

const (
	// testTime is far longer than one test takes on a busy machine.
	testTime = 2 * time.Minute
)

// bench builds the test binaries and runs tests, each in a process of its own.
type bench struct {
	*overlay.Bench
	convert string // the program that turns a test's output into events
	rerun   bool   // see again
}

func newBench(ctx context.Context, rerun bool) (*bench, error) {
	convert, err := exec.CommandContext(ctx, "go", "tool", "-n", "test2json").Output()
	if err != nil {
		return nil, fmt.Errorf("find go tool test2json: %w", err)
	}
	b, err := overlay.NewBench("faults")
	return &bench{Bench: b, convert: strings.TrimSpace(string(convert)), rerun: rerun}, err
}

// binary is the test binary of the package in a directory.
func (b *bench) binary(dir string) string {
	return filepath.Join(b.Dir, strings.ReplaceAll(dir, "/", "-")+".test")
}

// build compiles the packages of the tests, each once.
func (b *bench) build(ctx context.Context, tests []string) error {
	built := map[string]bool{}
	for _, test := range tests {
		dir, err := b.Index.TestDir(test)
		if err != nil {
			return fmt.Errorf("read the matrix: %w", err)
		}
		if built[dir] {
			continue
		}
		built[dir] = true
		if err := b.Build(ctx, b.binary(dir), dir); err != nil {
			return err
		}
	}
	return nil
}

// all runs the tests, with env added to this process's own, and returns the result of each by name.
func (b *bench) all(ctx context.Context, tests, env []string) results {
	done := make(results, len(tests))
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, t := range tests {
		wg.Go(func() {
			r := b.try(ctx, t, env)
			mu.Lock()
			defer mu.Unlock()
			done[t] = r
		})
	}
	wg.Wait()
	return done
}

// mostAgain is how many failed tests get a second run. With more of them something is wrong.
const mostAgain = 3

// again runs each failed test a second time, when no other test runs. The second run counts. A test that
// has panicked stays failed.
func (b *bench) again(ctx context.Context, all results, env []string) {
	var tests []string
	for t, r := range all {
		if r.verdict != failed {
			continue
		}
		if tests = append(tests, t); len(tests) > mostAgain || strings.Contains(r.text, "\npanic: ") {
			return
		}
	}
	for _, t := range tests {
		first, second := all[t], b.try(ctx, t, env)
		second.again = true
		second.text = first.text + "\n== the second run:\n" + second.text
		all[t] = second
	}
}

func (b *bench) try(ctx context.Context, test string, env []string) result {
	dir, err := b.Index.TestDir(test)
	if err != nil {
		panic("BUG: a test that build has not found: " + err.Error())
	}
	cmd := exec.CommandContext(ctx, b.convert, "-t", b.binary(dir), "-test.v=test2json", "-test.count=1",
		"-test.timeout", testTime.String(), "-test.run", overlay.Pattern(test))
	cmd.Dir = filepath.Join(b.Root, dir) // go test does so too
	cmd.Env = append(os.Environ(), env...)
	output, took, err := b.Places.Run(ctx, cmd)
	r := judge(test, output, err)
	r.took = took
	return r
}
