package main

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// written is a log's end that tells of each write.
type written struct {
	mu     sync.Mutex
	writes []string
	more   chan struct{}
}

func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes = append(w.writes, string(p))
	w.more <- struct{}{}
	return len(p), nil
}

func (w *written) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writes
}

func TestLogLinesAreWrittenTogether(t *testing.T) {
	w := &written{more: make(chan struct{}, 100)}
	b := newLogBuffer(w, 20*time.Millisecond)
	log := zerolog.New(b)
	log.Info().Msg("one")
	log.Info().Msg("two")
	if got := w.all(); len(got) != 0 {
		t.Fatalf("%q written before the time is over", got)
	}
	<-w.more
	if got := w.all(); len(got) != 1 || strings.Count(got[0], "\n") != 2 {
		t.Fatalf("%q, want both lines in one write", got)
	}
	log.Info().Msg("three")
	<-w.more // the timer starts again
}

func TestLogLineOfAWarningIsNotHeldBack(t *testing.T) {
	w := &written{more: make(chan struct{}, 100)}
	b := newLogBuffer(w, time.Hour)
	log := zerolog.New(b)
	log.Info().Msg("before")
	log.Warn().Msg("trouble")
	if got := w.all(); len(got) != 1 || !strings.Contains(got[0], "before") || !strings.Contains(got[0], "trouble") {
		t.Fatalf("%q, want both lines, in order", got)
	}
	log.Info().Msg(strings.Repeat("x", logBufferSize))
	if got := w.all(); len(got) != 2 {
		t.Fatalf("%d writes, want a full buffer written", len(got))
	}
	log.Info().Msg("last")
	b.flush()
	if got := w.all(); len(got) != 3 || !strings.Contains(got[2], "last") {
		t.Fatalf("%q, want the last line at the end", got)
	}
}

func TestLogFlushOffWritesEachLine(t *testing.T) {
	var w bytes.Buffer
	log, flush, err := newLogger(logConfig{Level: "info", Format: "json"}, &w)
	if err != nil {
		t.Fatal(err)
	}
	defer flush()
	log.Info().Msg("now")
	if !strings.Contains(w.String(), "now") {
		t.Fatal("the line waits although log.flush is 0")
	}
}
