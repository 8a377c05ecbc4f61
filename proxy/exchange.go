package proxy

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"xpyd/netio"
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
// it; only interrupt and interruptBy may be called by others. The zero value is ready, and ready
// again after finish or drop; what interrupt has set lasts until reset.
type exchange struct {
	up     *upstream
	head   head
	body   netio.BodyDecoder
	closes bool      // the connection must not be used again
	wrote  time.Time // when the request was written
	large  bool      // the answer was an error larger than limits.answer: see readAnswer
	// repeated: the request was written twice, and the backend may have begun with the first.
	repeated bool
	// armed is the deadline last asked for, so that it is moved at most once a second.
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
	x.cut(at)
}

// interruptBy is interrupt, unless an earlier moment is set.
func (x *exchange) interruptBy(at time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.limit.IsZero() || at.Before(x.limit) {
		x.cut(at)
	}
}

// cut sets the limit. x.mu is held.
func (x *exchange) cut(at time.Time) {
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

// sent reports whether the backend was written to.
func (x *exchange) sent() bool { return !x.wrote.IsZero() }

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
	x.wrote, x.repeated = time.Time{}, false // not those of an earlier request
	if u == nil {
		return &upstreamError{stage: stageDial, silent: true, err: errRemoved}
	}
	connect := u.take
	if req.fresh {
		connect = u.dial
	}
	err := x.try(u, req, deadline, connect)
	for errors.Is(err, netio.ErrStale) { // nothing was written: there is another one, or a new one
		x.drop()
		err = x.try(u, req, deadline, connect)
	}
	var ue *upstreamError
	if again && errors.As(err, &ue) && ue.reused && ue.silent && !ue.timeout() && !x.interrupted() {
		return x.repeat(u, req, deadline, ue)
	}
	return err
}

func (x *exchange) try(u *upstream, req *upstreamRequest, deadline time.Time, connect func() (*upstreamConn, error)) error {
	x.wrote = time.Time{} // not that of an earlier try, where the dial fails
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
	var writeErr error
	x.wrote, writeErr = c.writeRequest(u.host, req)
	if errors.Is(writeErr, netio.ErrStale) {
		return netio.ErrStale
	}
	if !x.wrote.IsZero() && writeErr != nil {
		return &upstreamError{stage: stageHead, silent: true, reused: reused, err: writeErr}
	}
	if writeErr != nil {
		x.wrote = time.Now()
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
		x.closes = true
	}
	return nil
}

const maxInterim = 8

func (x *exchange) readHead(reused bool) error {
	c := x.conn
	for silent, interim := true, 0; interim < maxInterim; {
		n, err := x.head.parse(c.in.Unread)
		if err == nil && n == 0 {
			if err = c.More(&c.in); err == nil {
				silent = false
				continue
			}
			if !silent && errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
		}
		c.in.Use(n)
		switch {
		case err != nil:
			return &upstreamError{stage: stageHead, silent: silent, reused: reused, err: err}
		case x.head.status >= 200:
			x.frame()
			return nil
		case x.head.status == fasthttp.StatusSwitchingProtocols:
			return &upstreamError{stage: stageHead, reused: reused, err: errors.New("status 101")}
		}
		interim++
	}
	return &upstreamError{stage: stageHead, reused: reused, err: errors.New("too many interim responses")}
}

// frame settles where the body ends.
func (x *exchange) frame() {
	x.body, x.closes = netio.BodyDecoder{}, x.head.close
	switch n, status := x.head.length, x.head.status; {
	case status == fasthttp.StatusNoContent || status == fasthttp.StatusNotModified || n == 0:
		x.body.Ended = true
	case n > 0:
		x.body.Left = n
	case n == lengthChunked:
		x.body.Chunked = true
	default:
		x.closes, x.body.UntilEOF = true, true
	}
}

// wait returns once there are body bytes to fill with, or the body has ended.
func (x *exchange) wait() error {
	if x.body.Ended || len(x.conn.in.Unread) > 0 {
		return nil
	}
	if err := x.conn.More(&x.conn.in); err != nil {
		return x.cutOff(err)
	}
	return nil
}

// cutOff is what a failed read means for the body: nil if it has ended by it.
func (x *exchange) cutOff(err error) error {
	if errors.Is(err, io.EOF) {
		if x.body.UntilEOF {
			x.body.Ended = true
			return nil
		}
		err = io.ErrUnexpectedEOF
	}
	return &upstreamError{stage: stageBody, err: err}
}

// follow calls take whenever there is something to fill with, or the body has ended, and
// returns nil when take wants no more. take fills once, and must not end the exchange.
func (x *exchange) follow(take func() (more bool)) error {
	if (x.body.Ended || len(x.conn.in.Unread) > 0) && !take() {
		return nil
	}
	err := x.conn.Follow(&x.conn.in, take)
	if err == nil {
		return nil
	}
	if err = x.cutOff(err); err == nil {
		take()
	}
	return err
}

// fill appends the body bytes of one wake-up to dst: it reads from the socket once
// if nothing is buffered, else not at all. io.EOF (with or without bytes) only after
// the strict end of the framing.
func (x *exchange) fill(dst []byte) ([]byte, error) {
	if err := x.wait(); err != nil {
		return dst, err
	}
	if x.body.Ended {
		return dst, io.EOF
	}
	in := &x.conn.in
	n, dst, err := x.body.Decode(in.Unread, dst)
	in.Use(n)
	if err != nil {
		return dst, &upstreamError{stage: stageBody, err: err}
	}
	if x.body.Ended {
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

// readAnswer is readAll for an answer that is judged by its status first: where an error is
// larger than limit, that is all that is known of it, and large is set.
func (x *exchange) readAnswer(dst []byte, limit int64) ([]byte, error) {
	dst, err := x.readAll(dst, limit)
	if x.large = errors.Is(err, errTooLarge) && x.head.status != fasthttp.StatusOK; x.large {
		return dst[:0], nil
	}
	return dst, err
}

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
	if !x.body.Ended || x.closes || c.half || len(c.in.Unread) > 0 {
		_ = c.Close()
		return
	}
	x.up.put(c) // its deadline lapses unnoticed, or the next request moves it
}

// hungUp reports that the backend has closed or reset the connection, though the last read
// was interrupted before it could tell.
func (x *exchange) hungUp() bool { return x.conn != nil && x.conn.HungUp() }

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
	x.body = netio.BodyDecoder{}
	x.mu.Lock()
	x.limit = time.Time{}
	x.mu.Unlock()
}

// writeRequest writes head and body segments, with one system call where they fit; see
// Ask for what it returns.
func (c *upstreamConn) writeRequest(host string, req *upstreamRequest) (time.Time, error) {
	t := c.scratch.Lend()
	defer c.scratch.TakeBack(t)
	h := append(t.Head[:0], req.method...)
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
	t.Head = h
	t.Pieces = append(append(t.Pieces[:0], h), req.body...)
	return c.Ask(t, c.reused)
}

// isEventStream reports whether the response is server-sent events.
func (x *exchange) isEventStream() bool {
	return bytes.HasPrefix(x.head.contentType, []byte("text/event-stream"))
}
