package soak

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"xpyd/sim"
	"xpyd/tools/tally"
)

// proxyLog reads the log of all processes of the proxy from one pipe. It looks for what must not be
// there, keeps the last part in a file, and passes on where the processes serve.
type proxyLog struct {
	path    string
	key     string
	tally   *counts
	verdict *tally.Verdict
	words   map[string]bool  // in the engines' texts
	down    func(url string) // called for each backend that the proxy takes down
	also    func([]byte)     // called for each line; may be nil

	ejections ejections
	badCerts  atomic.Int64 // lines that say that a certificate could not be used

	pipe    *os.File // the write end, for the first process; closed here once that process has it
	serving chan serving
	read    sync.WaitGroup
}

// logKept bounds the file. The part before it is in a second file of that size.
const logKept = 32 << 20

func newProxyLog(dir, key string, t *counts, v *tally.Verdict, down func(url string)) (*proxyLog, error) {
	l := &proxyLog{
		path: filepath.Join(dir, "proxy.log"), key: key, tally: t, verdict: v, words: map[string]bool{}, down: down, serving: make(chan serving, 4),
		ejections: ejections{now: map[string]ejection{}, most: map[string]int{}, alone: func() bool { return true }},
	}
	for word := range strings.FieldsSeq(sim.Text("words", 2000)) {
		l.words[word] = true
	}
	in, out, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("read the proxy's log: %w", err)
	}
	l.pipe = out
	l.read.Go(func() { l.follow(in) })
	return l, nil
}

// close waits until the last process has closed its end.
func (l *proxyLog) close() {
	_ = l.pipe.Close() // already closed if a process was started
	l.read.Wait()
}

// servingBound is how long a process may take before it serves.
const servingBound = 15 * time.Second

func (l *proxyLog) awaitServing(ctx context.Context) (serving, error) {
	select {
	case s := <-l.serving:
		return s, nil
	case <-ctx.Done():
		return serving{}, ctx.Err()
	case <-time.After(servingBound):
		return serving{}, errors.New("no process of the proxy said that it serves within 15 s")
	}
}

// follow ends when no process has the pipe open.
func (l *proxyLog) follow(in *os.File) {
	defer func() { _ = in.Close() }()
	lines := bufio.NewReaderSize(in, 64<<10)
	file, size := io.WriteCloser(nil), logKept
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			if size += len(line); size > logKept {
				file, size = l.turn(file), len(line)
			}
			if file != nil {
				_, _ = file.Write(line) // a copy for people, which the checks do not need
			}
			l.check(line)
		}
		if err != nil {
			if file != nil {
				_ = file.Close()
			}
			return
		}
	}
}

// turn begins a new file. It returns nil if there can be none.
func (l *proxyLog) turn(old io.WriteCloser) io.WriteCloser {
	if old != nil {
		_ = old.Close()
		_ = os.Rename(l.path, l.path+".1")
	}
	f, err := os.Create(l.path)
	if err != nil {
		l.verdict.Breach(invHarness, "no file for the proxy's log", "%v", err)
		return nil
	}
	return f
}

func (l *proxyLog) check(line []byte) {
	l.tally.in(time.Now(), func(s *second) { s.lines++ })
	switch {
	case bytes.Contains(line, []byte(secret)):
		l.verdict.Breach(invLogs, "a prompt in the log", "a line of %d bytes", len(line))
	case bytes.Contains(line, []byte(l.key)):
		l.verdict.Breach(invLogs, "a key in the log", "a line of %d bytes", len(line))
	case bytes.IndexByte(line, '\r') >= 0:
		l.verdict.Breach(invLogs, "a raw CR in the log", "%.200q", line)
	case !json.Valid(line):
		l.verdict.Breach(invLogs, "a line that is no JSON", "%.2000q", line)
	case l.tellsText(line):
		l.verdict.Breach(invLogs, "a completion in the log", "a line of %d bytes", len(line))
	}
	if l.also != nil {
		l.also(line)
	}
	switch {
	case bytes.Contains(line, []byte(`"message":"serving"`)):
		l.says(line)
	case bytes.Contains(line, []byte(`"state":"down"`)):
		var state struct{ Backend string }
		if json.Unmarshal(line, &state) == nil {
			l.down(state.Backend)
		}
	case bytes.Contains(line, []byte(`"message":"pools reloaded"`)), bytes.Contains(line, []byte(`"state_file":`)):
		l.ejections.forget() // some may have ended early, as the pools have changed
	case bytes.Contains(line, []byte(`"message":"prefill engine has restarted"`)):
		var engine struct{ Prefill string }
		if json.Unmarshal(line, &engine) == nil {
			l.ejections.renewed(engine.Prefill)
		}
	case bytes.Contains(line, []byte(`"message":"certificates not reloaded`)):
		l.badCerts.Add(1)
	case bytes.Contains(line, []byte(`"message":"backend ejected"`)):
		var e ejection
		if json.Unmarshal(line, &e) == nil {
			l.ejections.add(e, l.verdict)
		}
	}
}

// says passes on where a process serves.
func (l *proxyLog) says(line []byte) {
	var s serving
	if err := json.Unmarshal(line, &s); err != nil || s.Listen == "" {
		return
	}
	l.ejections.forget() // a new process does not know those of the old one
	select {
	case l.serving <- s:
	default:
		l.verdict.Breach(invHarness, "a process that nobody started", "it serves on %s", s.Listen)
	}
}

// tellsText looks for four consecutive words of the engines.
func (l *proxyLog) tellsText(line []byte) bool {
	row := 0
	return slices.ContainsFunc(strings.Fields(string(line)), func(word string) bool {
		if !l.words[word] {
			row = 0
			return false
		}
		row++
		return row == 4
	})
}
