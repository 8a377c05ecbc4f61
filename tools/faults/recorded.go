package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// recorded judges the rows by a run of all tests, whose events go test -json has written to a file. Of a test
// that ran twice the second run counts.
func (b *bench) recorded(file string, rows []row) (matrixResult, error) {
	f, err := os.Open(file)
	if err != nil {
		return matrixResult{}, err
	}
	defer func() { _ = f.Close() }()
	seen := record{}
	if err := seen.read(f); err != nil {
		return matrixResult{}, fmt.Errorf("read %s: %w", file, err)
	}
	m := matrixResult{all: results{}}
	for _, t := range testsOf(rows) {
		dir, err := b.Index.TestDir(t)
		if err != nil {
			return matrixResult{}, fmt.Errorf("read the matrix: %w", err)
		}
		m.all[t] = seen.judge(dir, t)
		m.took += m.all[t].took
	}
	m.rows = judgeRows(rows, m.all)
	return m, nil
}

// record is what a run of many packages said: the events of each test with its subtests, by its package
// and name.
type record map[string][]string

func (r record) read(from io.Reader) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e struct {
			event
			Package string
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return err
		}
		if e.Test == "" {
			continue
		}
		key := keyOf(e.Package, e.Test)
		if e.Action == "run" && !strings.Contains(e.Test, "/") {
			r[key] = nil
		}
		r[key] = append(r[key], lines.Text())
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
func (r record) events(key, test string) []byte {
	var b bytes.Buffer
	for _, line := range r[key] {
		var e event
		if json.Unmarshal([]byte(line), &e) == nil && (e.Test == test || strings.HasPrefix(e.Test, test+"/")) {
			b.WriteString(line + "\n")
		}
	}
	return b.Bytes()
}

// judge gives the result of a test of the package in a directory.
func (r record) judge(dir, test string) result {
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
