package proxy

import (
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"xpyd/netio"
)

// rearm is how often the deadlines of a stream are moved on, and what is added to them
// for it.
const rearm = time.Second

// maxWrite keeps a slow but steady client inside timeouts.write_stall, and a chunk with
// its frame inside one raw write.
const maxWrite = netio.RawLimit - 16

// clientWriter is all that is ever written of an answer to a client.
type clientWriter struct {
	w       io.Writer // fasthttp's: after the head, and flushed with each write of a chunked answer
	chunked bool
	conn    *netio.Conn
	buffers *buffers
	stall   time.Duration
	stop    *atomic.Bool // the process ends now: there is stopGrace left, see ServerStopping; nil: it does not wait for this answer
	armed   time.Time
	n       int64
	failed  error // the first; what came after it would stand inside a chunk that was cut
}

// write sends p, giving up on a client that reads nothing for timeouts.write_stall.
// The deadline is moved at most once a second; fasthttp arms it for each response's
// start and for what is no completion.
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

// heed leaves the client little time where the process ends now. It comes after whatever
// else moves the deadline.
func (w *clientWriter) heed(now time.Time) {
	if w.stop != nil && w.stop.Load() {
		_ = w.conn.SetWriteDeadline(now.Add(stopGrace))
	}
}

// send goes through fasthttp, which has the head; each later chunk goes straight to the
// connection, as fasthttp holds nothing back then.
func (w *clientWriter) send(p []byte) (int, error) {
	if !w.chunked || w.n == 0 {
		return w.w.Write(p)
	}
	lent := w.buffers.lend()
	b := strconv.AppendInt(*lent, int64(len(p)), 16)
	b = append(append(append(b, "\r\n"...), p...), "\r\n"...)
	_, err := w.conn.Write(b)
	w.buffers.takeBack(lent, b)
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// buffers is the pool of what streams and answers are buffered in.
type buffers struct{ pool sync.Pool }

// maxPooledBuffer keeps the buffer of one large answer from living on.
const maxPooledBuffer = 64 << 10

// lend hands out an empty buffer, which comes back by takeBack.
func (b *buffers) lend() *[]byte {
	p, ok := b.pool.Get().(*[]byte)
	if !ok {
		p = new([]byte)
		*p = make([]byte, 0, relayBuffer)
	}
	return p
}

// takeBack takes what was lent, nil for nothing, with what it has grown to.
func (b *buffers) takeBack(lent *[]byte, buf []byte) {
	if lent != nil && cap(buf) <= maxPooledBuffer {
		*lent = buf[:0]
		b.pool.Put(lent)
	}
}

func (b *buffers) get(r *relay) {
	r.pooled = b.lend()
	r.buf = *r.pooled
}

func (b *buffers) put(r *relay) {
	b.takeBack(r.pooled, r.buf)
	r.pooled, r.buf = nil, nil
}

// untilClose writes an answer that ends with its connection: HTTP/1.0 knows no chunks. The
// head goes out with the first bytes after it.
type untilClose struct {
	conn *netio.Conn
	head []byte // still to be written
}

func (u *untilClose) Write(p []byte) (int, error) {
	if u.head == nil {
		return u.conn.Write(p)
	}
	first := append(u.head, p...)
	u.head = nil
	if _, err := u.conn.Write(first); err != nil {
		return 0, err
	}
	return len(p), nil
}

// answerUntilClose answers a client of HTTP/1.0 with what has no length. fasthttp would
// write chunks, so the answer is written here, inside the handler, and fasthttp writes none.
//
// Such a client takes any end of the connection for the end of the answer, but a reset. So
// the connection is one that resets as it closes, whatever closes it (the end of this
// process is such a thing too), until the whole answer has been written.
func (c *completion) answerUntilClose() {
	ctx, conn := c.ctx, c.conn
	c.ctx = nil
	ctx.SetConnectionClose()
	ctx.HijackSetNoResponse(true)
	ctx.Hijack(func(net.Conn) {}) // fasthttp closes the connection after it
	err := conn.SetLinger(0)
	if err == nil {
		_ = conn.SetWriteDeadline(time.Now().Add(c.s.cfg.Timeouts.WriteStall + rearm))
		_, err = c.WriteTo(&untilClose{conn: conn, head: ctx.Response.Header.Header()})
	}
	_ = c.CloseWithError(err) // gives c back
	if err == nil {
		err = conn.SetLinger(-1)
	}
	if err != nil {
		_ = conn.Close()
	}
}
