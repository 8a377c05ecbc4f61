package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// upstreamRequest is one request towards a backend. Nothing of the client's head is
// in it but what fields holds, already filtered.
type upstreamRequest struct {
	method string
	path   string
	id     string    // X-Request-Id
	fields []byte    // complete header lines, each ended by CRLF
	body   [][]byte  // segments, written with one writev; nil for GET
	fresh  bool      // not over a connection that was kept
	end    time.Time // no deadline of the exchange is later; zero: no such limit
}

// exchange is one request and its response on one connection. One goroutine owns
// it; only interrupt may be called by others. The zero value is ready, and ready
// again after finish or drop; what interrupt has set lasts until reset.
type exchange struct {
	up     *upstream
	header fasthttp.ResponseHeader
	body   bodyDecoder
	wrote  time.Time // when the request was written
	// armed is the read deadline in force, so that it is moved at most once a second.
	armed time.Time
	end   time.Time // of the request that is under way

	mu    sync.Mutex // guards conn and limit against interrupt
	conn  *upstreamConn
	limit time.Time // when not zero, no deadline is later than this
}

// interrupt makes every read and write fail at the given moment, those of requests
// that follow included, until reset. A later call moves the moment.
func (x *exchange) interrupt(at time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.limit = at
	if x.conn != nil {
		_ = x.conn.SetDeadline(at)
	}
}

// resume takes an interrupt back; the next deadline is armed as if none had been.
func (x *exchange) resume() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.limit, x.armed = time.Time{}, time.Time{}
}

func (x *exchange) interrupted() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return !x.limit.IsZero()
}

// setDeadline arms reads and writes, never beyond the limit of an interrupt.
func (x *exchange) setDeadline(at time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.armed = at
	if !x.end.IsZero() && x.end.Before(at) {
		at = x.end
	}
	if !x.limit.IsZero() && x.limit.Before(at) {
		at = x.limit
	}
	_ = x.conn.SetDeadline(at)
}

// do sends the request and reads the response head. A request on a reused
// connection that fails before any byte came back is sent once more on a fresh one,
// but only when again allows it: a backend may have seen the first. After a failure
// the connection is still held, until finish or drop: P may yet answer on it.
func (x *exchange) do(u *upstream, req *upstreamRequest, deadline time.Time, again bool) error {
	if u == nil {
		return &upstreamError{stage: stageDial, silent: true, err: errRemoved}
	}
	connect := u.take
	if req.fresh {
		connect = u.dial
	}
	err := x.try(u, req, deadline, connect)
	var ue *upstreamError
	if again && errors.As(err, &ue) && ue.reused && ue.silent && !ue.timeout() && !x.interrupted() {
		x.drop()
		err = x.try(u, req, deadline, u.dial)
	}
	return err
}

func (x *exchange) try(u *upstream, req *upstreamRequest, deadline time.Time, connect func() (*upstreamConn, error)) error {
	x.wrote = time.Time{} // not that of an earlier request, where the dial fails
	c, err := connect()
	if err != nil {
		return &upstreamError{stage: stageDial, silent: true, err: err}
	}
	x.up, x.end = u, req.end
	x.mu.Lock()
	x.conn = c
	x.mu.Unlock()
	x.setDeadline(deadline)
	reused := c.reused
	writeErr := c.writeRequest(u.host, req)
	x.wrote = time.Now()
	if writeErr != nil {
		// The backend may have answered and closed before reading all of the body.
		if errors.Is(writeErr, os.ErrDeadlineExceeded) {
			return &upstreamError{stage: stageWrite, silent: true, reused: reused, err: writeErr}
		}
		x.setDeadline(time.Now().Add(time.Second))
	}
	if err := x.readHead(reused); err != nil {
		if writeErr != nil {
			return &upstreamError{stage: stageWrite, silent: true, reused: reused, err: writeErr}
		}
		return err
	}
	if writeErr != nil {
		x.body.close = true
	}
	return nil
}

const maxInterim = 8

func (x *exchange) readHead(reused bool) error {
	br := x.conn.br
	if _, err := br.Peek(1); err != nil {
		return &upstreamError{stage: stageHead, silent: true, reused: reused, err: err}
	}
	for range maxInterim {
		if err := x.header.Read(br); err != nil {
			return &upstreamError{stage: stageHead, reused: reused, err: fmt.Errorf("malformed response head: %w", plain(err))}
		}
		switch s := x.header.StatusCode(); {
		case s >= 200:
			return x.frame(s, reused)
		case s == fasthttp.StatusSwitchingProtocols:
			return &upstreamError{stage: stageHead, reused: reused, err: errors.New("status 101")}
		}
	}
	return &upstreamError{stage: stageHead, reused: reused, err: errors.New("too many interim responses")}
}

// plain hides the header text that fasthttp puts into its errors: it may be anything.
func plain(err error) error {
	switch {
	case errors.Is(err, fasthttp.ErrTimeout), errors.Is(err, os.ErrDeadlineExceeded):
		return os.ErrDeadlineExceeded
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return io.ErrUnexpectedEOF
	}
	return errors.New("not HTTP")
}

func (x *exchange) frame(status int, reused bool) error {
	if status > 599 {
		return &upstreamError{stage: stageHead, reused: reused, err: fmt.Errorf("status %d", status)}
	}
	x.body = bodyDecoder{close: x.header.ConnectionClose()}
	switch n := x.header.ContentLength(); {
	case status == fasthttp.StatusNoContent || status == fasthttp.StatusNotModified || n == 0:
		x.body.ended = true
	case n > 0:
		x.body.left = int64(n)
	case n == -1:
		x.body.chunked = true
	default:
		x.body.close, x.body.untilEOF = true, true
	}
	return nil
}

// wait returns once there are body bytes to fill with, or the body has ended.
func (x *exchange) wait() error {
	br := x.conn.br
	if x.body.ended || br.Buffered() > 0 {
		return nil
	}
	_, err := br.Peek(1)
	if err == nil {
		return nil
	}
	if errors.Is(err, io.EOF) {
		if x.body.untilEOF {
			x.body.ended = true
			return nil
		}
		err = io.ErrUnexpectedEOF
	}
	return &upstreamError{stage: stageBody, err: err}
}

// fill appends the body bytes of one wake-up to dst: it reads from the socket once
// if nothing is buffered, else not at all. io.EOF (with or without bytes) only after
// the strict end of the framing.
func (x *exchange) fill(dst []byte) ([]byte, error) {
	if err := x.wait(); err != nil {
		return dst, err
	}
	if x.body.ended {
		return dst, io.EOF
	}
	br := x.conn.br
	buf, _ := br.Peek(br.Buffered())
	n, dst, err := x.body.decode(buf, dst)
	_, _ = br.Discard(n)
	if err != nil {
		return dst, &upstreamError{stage: stageBody, err: err}
	}
	if x.body.ended {
		return dst, io.EOF
	}
	return dst, nil
}

// idle re-arms the deadline of a stream that goes on, at most once a second.
func (x *exchange) idle(now time.Time, d time.Duration) {
	// A second is added, so that what was armed a moment ago never cuts too early.
	if at := now.Add(d + time.Second); at.Sub(x.armed) > time.Second || at.Before(x.armed) {
		x.setDeadline(at)
		x.up.progress.Store(int64(now.Sub(x.up.born)))
	}
}

// readAll reads the rest of the body into dst. errTooLarge leaves what was read in dst.
func (x *exchange) readAll(dst []byte, limit int64) ([]byte, error) {
	for {
		var err error
		dst, err = x.fill(dst)
		if errors.Is(err, io.EOF) {
			return dst, nil
		}
		if err != nil {
			return dst, err
		}
		if int64(len(dst)) > limit {
			return dst, errTooLarge
		}
	}
}

var errTooLarge = errors.New("answer larger than limits.answer")

// halfClose tells the backend that nobody waits any more, and still lets an answer in
// that is on its way.
func (x *exchange) halfClose() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.conn != nil {
		_ = x.conn.CloseWrite()
		x.conn.half = true
	}
}

// finish gives the connection back to its pool if the response ended properly and
// within its framing, else closes it: an engine aborts when its client is gone.
func (x *exchange) finish() {
	c := x.release()
	if c == nil {
		return
	}
	if !x.body.ended || x.body.close || c.half || c.br.Buffered() > 0 {
		_ = c.Close()
		return
	}
	_ = c.SetDeadline(time.Time{})
	x.up.put(c)
}

// drop closes the connection at once.
func (x *exchange) drop() {
	if c := x.release(); c != nil {
		_ = c.Close()
	}
}

func (x *exchange) release() *upstreamConn {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := x.conn
	x.conn = nil
	return c
}

// reset makes the exchange ready for another request of the same or another client.
func (x *exchange) reset() {
	x.drop()
	x.up = nil
	x.header.Reset()
	x.body = bodyDecoder{}
	x.mu.Lock()
	x.limit = time.Time{}
	x.mu.Unlock()
}

// writeRequest writes head and body segments with one system call where they fit.
func (c *upstreamConn) writeRequest(host string, req *upstreamRequest) error {
	h := append(c.head[:0], req.method...)
	h = append(append(h, ' '), req.path...)
	h = append(append(h, " HTTP/1.1\r\nHost: "...), host...)
	h = append(append(h, "\r\nAccept-Encoding: identity\r\nX-Request-Id: "...), req.id...)
	if req.body != nil {
		n := 0
		for _, s := range req.body {
			n += len(s)
		}
		h = append(h, "\r\nContent-Type: application/json\r\nContent-Length: "...)
		h = strconv.AppendInt(h, int64(n), 10)
	}
	h = append(append(append(h, "\r\n"...), req.fields...), "\r\n"...)
	c.head = h
	c.iov = append(append(c.iov[:0], h), req.body...)
	c.vec = c.iov
	_, err := c.vec.WriteTo(c.TCPConn)
	clear(c.iov)
	return err
}

// isEventStream reports whether the response is server-sent events.
func (x *exchange) isEventStream() bool {
	return bytes.HasPrefix(x.header.ContentType(), []byte("text/event-stream"))
}
