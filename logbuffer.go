package main

import (
	"errors"
	"io"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// logBufferSize is how many bytes of lines are written together at most: what a pipe
// takes in one piece, so that the lines of two processes, as at a hand-over, do not mix.
const logBufferSize = 4096

// logBuffer writes log lines together: one system call a line is a twentieth of what a
// short completion costs. A line of level warn or above goes out at once, with all that
// wait; the others wait for at most after. Safe for concurrent use.
type logBuffer struct {
	w     io.Writer
	after time.Duration

	mu    sync.Mutex
	lines []byte
	timer *time.Timer
}

func newLogBuffer(w io.Writer, after time.Duration) *logBuffer {
	b := &logBuffer{w: w, after: after}
	b.timer = time.AfterFunc(after, b.flush)
	return b
}

// Write takes lines of no level.
func (b *logBuffer) Write(line []byte) (int, error) { return b.WriteLevel(zerolog.NoLevel, line) }

// WriteLevel takes one line. The error is that of what it had to write.
func (b *logBuffer) WriteLevel(level zerolog.Level, line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var err error
	if len(b.lines)+len(line) > logBufferSize {
		err = b.write()
	}
	if len(b.lines) == 0 {
		b.timer.Reset(b.after)
	}
	if b.lines = append(b.lines, line...); level >= zerolog.WarnLevel || len(b.lines) >= logBufferSize {
		err = errors.Join(err, b.write())
	}
	return len(line), err
}

// flush writes what waits.
func (b *logBuffer) flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	_ = b.write() // nobody is left to be told
}

// write empties the buffer. mu is held.
func (b *logBuffer) write() error {
	if len(b.lines) == 0 {
		return nil
	}
	_, err := b.w.Write(b.lines)
	b.lines = b.lines[:0]
	return err
}
