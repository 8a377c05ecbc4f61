package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// whole runs all tests of the module, as go test does, and judges the rows by that one run. It
// prints what go test says of each package and of each test that fails.
func (b *bench) whole(ctx context.Context, rows []row, w io.Writer) (matrixResult, error) {
	start := time.Now()
	cmd := exec.CommandContext(ctx, "go", "test", "-vet=off", "-json", "./...")
	cmd.Dir, cmd.Stderr = b.root, os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return matrixResult{}, err
	}
	if err := cmd.Start(); err != nil {
		return matrixResult{}, fmt.Errorf("run all tests: %w", err)
	}
	seen := newRecord(w)
	readErr := seen.read(stdout)
	_, _ = io.Copy(io.Discard, stdout) // so that go test ends
	exit := cmd.Wait()
	all := results{}
	for _, t := range testsOf(rows) {
		dir, err := b.index.TestDir(t)
		if err != nil {
			return matrixResult{}, fmt.Errorf("read the matrix: %w", err)
		}
		all[t] = seen.judge(dir, t)
	}
	m := matrixResult{rows: judgeRows(rows, all), all: all, took: time.Since(start)}
	if exit == nil {
		exit = readErr
	}
	if exit != nil {
		exit = fmt.Errorf("run all tests: %w", exit)
	}
	return m, exit
}

// record is what one run of many packages said.
type record struct {
	w     io.Writer
	lines map[string][]string // the events of each test with its subtests, by its package and name
}

func newRecord(w io.Writer) *record { return &record{w: w, lines: map[string][]string{}} }

// packageEvent is one line of go test -json.
type packageEvent struct {
	event
	Package string
}

// read takes the events. It prints those of no test at once, and those of a test when that has failed.
func (r *record) read(from io.Reader) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e packageEvent
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			_, _ = fmt.Fprintln(r.w, lines.Text())
			continue
		}
		if e.Test == "" {
			if e.Output != "PASS\n" {
				_, _ = io.WriteString(r.w, e.Output)
			}
			continue
		}
		key := keyOf(e.Package, e.Test)
		r.lines[key] = append(r.lines[key], lines.Text())
		if e.Action == "fail" && !strings.Contains(e.Test, "/") {
			_, _ = io.WriteString(r.w, judge(e.Test, r.events(key, e.Test), nil).text)
		}
	}
	return lines.Err()
}

// keyOf names a test without its subtests. The module's name is left out, as in the index.
func keyOf(pkg, test string) string {
	top, _, _ := strings.Cut(test, "/")
	_, dir, _ := strings.Cut(pkg, "/")
	return dir + " " + top
}

// events are those of a test and of its subtests, as a run of it alone has them.
func (r *record) events(key, test string) []byte {
	var b bytes.Buffer
	for _, line := range r.lines[key] {
		var e event
		if json.Unmarshal([]byte(line), &e) == nil && (e.Test == test || strings.HasPrefix(e.Test, test+"/")) {
			b.WriteString(line + "\n")
		}
	}
	return b.Bytes()
}

// judge gives the result of a test of the package in a directory.
func (r *record) judge(dir, test string) result {
	events := r.events(keyOf("module/"+dir, test), test)
	res := judge(test, events, nil)
	for line := range bytes.Lines(events) {
		var e struct {
			Test    string
			Elapsed float64
		}
		if json.Unmarshal(line, &e) == nil && e.Test == test {
			res.took = max(res.took, time.Duration(e.Elapsed*float64(time.Second)))
		}
	}
	return res
}
