package main

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// logBufferSize is how many bytes of lines are written together at most: what a pipe
// takes in one piece, so that the lines of two processes, as at a hand-over, do not mix.
const logBufferSize = 4096

// logFileBuffer is that of a plain file, where a write goes to the end in one piece
// whatever its size.
const logFileBuffer = 32 << 10

// logBuffer writes log lines together: one system call a line is a twentieth of what a
// short completion costs. A line of level warn or above goes out at once, with all that
// wait; the others wait for at most after. Safe for concurrent use.
type logBuffer struct {
	w     io.Writer
	after time.Duration
	size  int // from which on lines are written

	mu    sync.Mutex
	lines []byte
	timer *time.Timer
}

func newLogBuffer(w io.Writer, after time.Duration) *logBuffer {
	b := &logBuffer{w: w, after: after, size: logBufferSize}
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			b.size = logFileBuffer
		}
	}
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
	if len(b.lines)+len(line) > b.size {
		err = b.write()
	}
	if len(b.lines) == 0 {
		b.timer.Reset(b.after)
	}
	if b.lines = append(b.lines, line...); level >= zerolog.WarnLevel || len(b.lines) >= b.size {
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
