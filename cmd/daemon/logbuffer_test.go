package daemon

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"xpyd/cmd/config"

	"github.com/rs/zerolog"
)

// written is the destination of a log that reports each write.
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
	b := newLogBuffer(w, 20*time.Millisecond, false)
	defer b.flush()
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
	b := newLogBuffer(w, time.Hour, false)
	log := zerolog.New(b)
	log.Info().Msg("before")
	log.Warn().Msg("trouble")
	<-w.more
	if got := w.all(); len(got) != 1 || !strings.Contains(got[0], "before") || !strings.Contains(got[0], "trouble") {
		t.Fatalf("%q, want both lines, in order", got)
	}
	log.Info().Msg(strings.Repeat("x", logBufferSize))
	<-w.more
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
	w := &written{more: make(chan struct{}, 100)}
	log, lines := newLogger(config.Log{Level: "info", Format: "json"}, w)
	defer lines.flush()
	log.Info().Msg("now")
	<-w.more // the line does not wait although log.flush is 0
	if got := w.all(); len(got) != 1 || !strings.Contains(got[0], "now") {
		t.Fatalf("%q written", got)
	}
}

// gated is the destination of a log that takes nothing until it is opened, and that may fail.
type gated struct {
	open    chan struct{}
	entered chan struct{} // holds a value for each write that has begun

	mu   sync.Mutex
	text strings.Builder
	fail func(p []byte) (int, error)
}

func newGated() *gated { return &gated{open: make(chan struct{}), entered: make(chan struct{}, 1000)} }

func (g *gated) Write(p []byte) (int, error) {
	g.entered <- struct{}{}
	<-g.open
	g.mu.Lock()
	defer g.mu.Unlock()
	n, err := len(p), error(nil)
	if g.fail != nil {
		n, err = g.fail(p)
	}
	g.text.Write(p[:n])
	return n, err
}

// Lines without room are dropped. The log says how many are missing, and where.
func TestLogThatIsFullDropsAndTells(t *testing.T) {
	for _, plain := range []bool{false, true} {
		g := newGated()
		b := newLogBuffer(g, 0, plain)
		line := func(s string) { _, _ = b.Write([]byte(s + "\n")) }
		line("first")
		<-g.entered // the writer is stuck
		big := strings.Repeat("x", logQueueSize/4-1)
		for range 7 {
			line(big) // four have room
		}
		if n := b.dropped.Load(); n != 3 {
			t.Errorf("%d lines dropped, want 3", n)
		}
		close(g.open)
		eventually(t, "written", func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			return strings.Contains(g.text.String(), "3 log lines were dropped")
		})
		line("last")
		b.flush()
		got := strings.Split(strings.TrimSpace(g.text.String()), "\n")
		if len(got) != 7 || got[0] != "first" || got[4] != big || got[6] != "last" {
			t.Fatalf("plain %v: %d lines", plain, len(got))
		}
		if json := strings.HasPrefix(got[5], `{"level":"warn","dropped":3,`); json == plain {
			t.Errorf("plain %v: %s", plain, got[5])
		}
	}
}

// Lines whose write fails count too, from the one that was cut off. The next line begins on a new line.
func TestLogWriteThatFails(t *testing.T) {
	g := newGated()
	close(g.open)
	b := newLogBuffer(g, time.Hour, false)
	g.fail = func(p []byte) (int, error) { g.fail = nil; return 6, errors.New("disk full") }
	_, _ = b.WriteLevel(zerolog.InfoLevel, []byte("one\n"))
	_, _ = b.WriteLevel(zerolog.InfoLevel, []byte("two\n"))
	_, _ = b.WriteLevel(zerolog.WarnLevel, []byte("three\n"))
	eventually(t, "told of", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return strings.Contains(g.text.String(), "2 log lines were dropped")
	})
	_, _ = b.Write([]byte("four\n"))
	b.flush()
	got := strings.Split(strings.TrimSpace(g.text.String()), "\n")
	if len(got) != 4 || got[0] != "one" || got[1] != "tw" || !strings.HasPrefix(got[2], "{") || got[3] != "four" {
		t.Errorf("%q", got)
	}
	if n := b.dropped.Load(); n != 2 {
		t.Errorf("%d lines dropped, want 2", n)
	}
}

// No line is split, and only a line that is too large itself makes a write larger than allowed.
func TestLogPieces(t *testing.T) {
	w := &written{more: make(chan struct{}, 100)}
	b := newLogBuffer(w, time.Hour, false)
	var want strings.Builder
	for _, n := range []int{1000, 2000, 1500, 5000, 100, 4095, 10} {
		line := strings.Repeat("x", n) + "\n"
		want.WriteString(line)
		_, _ = b.WriteLevel(zerolog.InfoLevel, []byte(line))
	}
	b.flush()
	var sizes []int
	for _, s := range w.all() {
		sizes = append(sizes, len(s))
	}
	if got := strings.Join(w.all(), ""); got != want.String() || !slices.Equal(sizes, []int{3002, 1501, 5001, 101, 4096, 11}) {
		t.Errorf("pieces of %d bytes", sizes)
	}
}

// BenchmarkLogLine measures a completion's line on its way to a file.
func BenchmarkLogLine(b *testing.B) {
	f, err := os.Create(b.TempDir() + "/log")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	lines := newLogBuffer(f, 100*time.Millisecond, false)
	line := []byte(strings.Repeat("x", 399) + "\n")
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		_, _ = lines.WriteLevel(zerolog.InfoLevel, line)
		for n%1000 == 0 && lines.behind() > logQueueSize/2 {
			runtime.Gosched()
		}
	}
	lines.flush()
	if n := lines.dropped.Load(); n > 0 {
		b.Errorf("%d lines dropped", n)
	}
}

func (b *logBuffer) behind() int { b.mu.Lock(); defer b.mu.Unlock(); return b.waiting }

// patience is far longer than anything here takes on a busy machine.
const patience = 20 * time.Second

// eventually polls until another goroutine has made ok true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not %s after %s", what, patience)
		}
	}
}
