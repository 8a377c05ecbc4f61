package daemon

import (
	"bytes"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// logBufferSize is how many bytes of lines are written together at most. A pipe takes that much in one
// piece, so that the lines of two processes do not mix, as at a hand-over.
const logBufferSize = 4096

// logFileBuffer is the same for a plain file, where a write of any size goes to the end in one piece.
const logFileBuffer = 32 << 10

// logQueueSize is how many bytes of lines wait for a reader that has stopped. It holds some 10,000
// lines of completions. Further lines are dropped and counted.
const logQueueSize = 4 << 20

// logKept is how many used pieces are kept for later lines.
const logKept = 16

// logEndTime is how long the process waits for its last lines to be written when it ends.
const logEndTime = time.Second

// logBuffer takes log lines, and one goroutine of its own writes them. So no goroutine that logs ever
// waits for the log, whose reader may have stopped or be gone. Lines are written together, because one
// system call for each line is a twentieth of what a short completion costs. A line of level warn or
// above goes out at once, with all lines that wait. The others wait for at most after. It is safe for
// concurrent use.
type logBuffer struct {
	w     io.Writer
	after time.Duration
	size  int  // the size of a piece, which is one write
	plain bool // lines for people, not JSON

	mu      sync.Mutex // held for no longer than a copy takes
	lines   []byte     // the piece that is being filled
	due     bool       // this piece must be written although it is not full
	full    []logPiece // pieces to be written, the oldest first
	free    [][]byte
	waiting int // bytes in lines and full
	timer   *time.Timer

	wake    chan struct{} // there is something to write
	stop    chan struct{} // closed by flush
	ended   chan struct{} // closed after the writer has written all
	once    sync.Once
	dropped atomic.Int64

	lost int  // the writer's own: dropped lines that the log has not reported
	torn bool // the writer's own: a write ended inside a line
}

// logPiece holds some lines, and how many lines found no room after them.
type logPiece struct {
	lines []byte
	over  int
}

// newLogBuffer starts the writer, which flush ends. With after 0 no line waits.
func newLogBuffer(w io.Writer, after time.Duration, plain bool) *logBuffer {
	b := &logBuffer{
		w: w, after: after, size: logBufferSize, plain: plain,
		wake: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{}),
	}
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			b.size = logFileBuffer
		}
	}
	b.timer = time.AfterFunc(after, b.expire)
	go b.run()
	return b
}

// Write takes lines without a level. They go out at once, because they may be of any level.
func (b *logBuffer) Write(line []byte) (int, error) { return b.WriteLevel(zerolog.NoLevel, line) }

// WriteLevel takes one line. It never waits and never fails. A line without room is counted.
func (b *logBuffer) WriteLevel(level zerolog.Level, line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting+len(line) > logQueueSize {
		b.drop()
		return len(line), nil
	}
	if len(b.lines)+len(line) > b.size {
		b.seal()
	}
	if len(b.lines) == 0 && b.after > 0 {
		b.timer.Reset(b.after)
	}
	b.lines = append(b.lines, line...)
	b.waiting += len(line)
	switch {
	case len(b.lines) >= b.size:
		b.seal()
	case level >= zerolog.WarnLevel || b.after == 0:
		b.due = true
		b.hurry()
	}
	return len(line), nil
}

// drop counts a line that is missing at this place. mu is held.
func (b *logBuffer) drop() {
	b.dropped.Add(1)
	b.seal()
	if len(b.full) == 0 {
		b.full = append(b.full, logPiece{})
		b.hurry()
	}
	b.full[len(b.full)-1].over++
}

// seal queues the piece that is being filled, and begins the next. mu is held.
func (b *logBuffer) seal() {
	if len(b.lines) == 0 {
		return
	}
	b.full = append(b.full, logPiece{lines: b.lines})
	if last := len(b.free) - 1; last >= 0 {
		b.lines, b.free = b.free[last], b.free[:last]
	} else {
		b.lines = make([]byte, 0, b.size)
	}
	b.hurry()
}

// expire runs when the oldest line has waited long enough.
func (b *logBuffer) expire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.due = true
	b.hurry()
}

// hurry wakes the writer, or tells it that there is more to write.
func (b *logBuffer) hurry() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// flush makes the writer write all that waits and then end. It waits up to logEndTime for that.
func (b *logBuffer) flush() {
	b.once.Do(func() { close(b.stop) })
	select {
	case <-b.ended:
	case <-time.After(logEndTime):
	}
}

// run writes until flush.
func (b *logBuffer) run() {
	defer close(b.ended)
	for stopping := false; !stopping; {
		select {
		case <-b.wake:
		case <-b.stop:
			stopping = true
			b.expire()
		}
		for p, ok := b.take(nil); ok; p, ok = b.take(p.lines) {
			b.write(p)
		}
	}
}

// take returns the next piece to be written. used is a piece that has been written.
func (b *logBuffer) take(used []byte) (p logPiece, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if 0 < cap(used) && cap(used) <= 2*b.size && len(b.free) < logKept {
		b.free = append(b.free, used[:0])
	}
	if len(b.full) == 0 && b.due {
		b.due = false
		b.seal()
	}
	if len(b.full) == 0 {
		return p, false
	}
	p = b.full[0]
	b.full = slices.Delete(b.full, 0, 1)
	b.waiting -= len(p.lines)
	return p, true
}

// write writes a piece, and reports the lines that were dropped before and after it.
func (b *logBuffer) write(p logPiece) {
	b.confess()
	if n, err := b.put(p.lines); err != nil {
		missed := bytes.Count(p.lines[n:], []byte{'\n'})
		b.lost += missed
		b.dropped.Add(int64(missed))
	}
	b.lost += p.over
	b.confess()
}

// confess writes how many lines are missing here as soon as it can.
func (b *logBuffer) confess() {
	if b.lost == 0 {
		return
	}
	if _, err := b.put(b.missing()); err == nil {
		b.lost = 0
	}
}

// missing returns the line about the lines that were dropped.
func (b *logBuffer) missing() []byte {
	var line bytes.Buffer
	var w io.Writer = &line
	if b.plain {
		w = consoleWriter(&line, true)
	}
	log := zerolog.New(w).With().Timestamp().Logger()
	log.Warn().Int("dropped", b.lost).Msg(strconv.Itoa(b.lost) + " log lines were dropped: the reader of the log was too slow, or failed")
	return line.Bytes()
}

// put writes whole lines, and returns how many bytes it wrote. After a part of a line it begins a new
// line.
func (b *logBuffer) put(lines []byte) (int, error) {
	if b.torn {
		if _, err := b.w.Write([]byte{'\n'}); err != nil {
			return 0, err
		}
		b.torn = false
	}
	if len(lines) == 0 {
		return 0, nil
	}
	n, err := b.w.Write(lines)
	b.torn = err != nil && n > 0 && lines[n-1] != '\n'
	return n, err
}
