package proxy

import (
	"io"
	"strconv"
	"sync/atomic"
	"time"

	"xpyd/intake/budget"
	"xpyd/netio"
)

// rearm is the least time between two moves of a stream's deadline. Deadlines are later by this
// time to make up for it.
const rearm = time.Second

// maxWrite is the most bytes of one write. It keeps a slow but steady client inside
// timeouts.write_stall, and a chunk with its frame inside one raw write.
const maxWrite = netio.RawLimit - 16

// clientWriter writes an answer to a client. No other code writes any part of it.
type clientWriter struct {
	w       io.Writer // of fasthttp, which has the head; each write of a chunked answer flushes it
	chunked bool
	conn    *netio.Conn
	buffers *budget.Buffers
	stall   time.Duration
	stop    *atomic.Bool // the process ends and stopGrace is left, see ServerStopping; nil if it does not wait for this answer
	armed   time.Time
	n       int64
	failed  error // the first error; bytes written after it would be inside a chunk that was cut
}

// write sends p. It gives up on a client that reads nothing for timeouts.write_stall. The deadline
// is moved at most once a second. fasthttp sets it for the start of each response, and for
// responses that are not completions.
func (w *clientWriter) write(p []byte, now time.Time) error {
	for len(p) > 0 && w.failed == nil {
		if now.Sub(w.armed) > rearm {
			w.armed = now
			_ = w.conn.SetWriteDeadline(now.Add(w.stall + rearm))
			w.heed(now)
		}
		n, err := w.send(p[:min(len(p), maxWrite)])
		w.n += int64(n)
		w.failed = err
		if p = p[n:]; len(p) > 0 {
			now = time.Now()
		}
	}
	return w.failed
}

// heed leaves the client only stopGrace if the process ends now. It must come after every other
// move of the deadline.
func (w *clientWriter) heed(now time.Time) {
	if w.stop != nil && w.stop.Load() {
		_ = w.conn.SetWriteDeadline(now.Add(stopGrace))
	}
}

// send writes through fasthttp, which has the head. After the first chunk fasthttp holds nothing
// back, so each later chunk goes straight to the connection.
func (w *clientWriter) send(p []byte) (int, error) {
	if !w.chunked || w.n == 0 {
		return w.w.Write(p)
	}
	lent := w.buffers.Lend()
	b := strconv.AppendInt(*lent, int64(len(p)), 16)
	b = append(append(append(b, "\r\n"...), p...), "\r\n"...)
	_, err := w.conn.Write(b)
	w.buffers.TakeBack(lent, b)
	if err != nil {
		return 0, err
	}
	return len(p), nil
}
