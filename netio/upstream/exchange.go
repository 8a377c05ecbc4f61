package upstream

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"xpyd/netio"
	"xpyd/netio/tlsconf"
)

// Request is one request to a backend. Of the client's head, it has only the filtered lines in Fields.
type Request struct {
	Method string
	Path   string
	ID     string    // X-Request-Id
	Fields []byte    // complete header lines, each ended by CRLF
	Body   [][]byte  // the segments, which one writev writes; nil for GET
	Type   []byte    // Content-Type of Body; nil means JSON
	Fresh  bool      // do not use a kept connection
	Owes   bool      // the backend has work to do for it, see Client.Debt
	End    time.Time // no deadline of the exchange is later; zero means no such limit
}

// Exchange is one request and its response on one connection. One goroutine owns it, and others may
// only call Cut. The zero value is ready for use. An Exchange is ready again
// after Finish or Drop. A cut lasts until Uncut or Reset.
type Exchange struct {
	Head     Head      // the response's head, valid after Do or ReadHead has returned no error
	Wrote    time.Time // when the request was written; zero if no byte of it was
	Began    time.Time // when the first byte of its answer came; zero if none has
	Repeated bool      // the request was written twice, and the backend may have begun with the first
	TooLarge bool      // the answer was an error larger than the limit, see ReadAnswer

	up     *Client
	body   netio.BodyDecoder
	closes bool // the connection must not be used again
	owes   debtor

	mu   sync.Mutex // guards what follows; the owner reads conn and armed without it
	conn *conn
	// armed is the deadline that was last asked for. It lets Progress move it at most once a second.
	armed time.Time
	end   time.Time // the End of the request that is under way
	cuts  *cuts     // nil: it was never cut
	fires Cause     // the cause of the connection's deadline; 0 if that is no cut's
}

// Sent reports whether the backend was written to.
func (x *Exchange) Sent() bool { return !x.Wrote.IsZero() }

// Forget clears what an earlier request has left: Sent, Wrote, Began, Repeated and the status of its answer.
func (x *Exchange) Forget() {
	x.Wrote, x.Began, x.Repeated, x.Head.Status = time.Time{}, time.Time{}, false, 0
}

// Do sends the request and reads the response head. Each failure is an *Error. A nil client stands for
// a removed backend, and Do fails. If a request on a reused connection fails before any byte has come
// back, Do sends it once more on a fresh connection. It does so only if again allows it, because the
// backend may have seen the first request. After a failure, the exchange keeps the connection until
// Finish or Drop, because a late answer may arrive on it.
func (x *Exchange) Do(u *Client, req *Request, deadline time.Time, again bool) error {
	x.Forget()
	if u == nil {
		return &Error{Stage: StageDial, Silent: true, Err: ErrRemoved}
	}
	connect := u.take
	if req.Fresh {
		connect = u.dial
	}
	err := x.try(u, req, deadline, connect)
	for errors.Is(err, netio.ErrStale) { // nothing was written, so another connection is taken
		x.Drop()
		err = x.try(u, req, deadline, connect)
	}
	if err == nil || !again {
		return err
	}
	var ue *Error // it escapes, so it comes after the usual end
	if errors.As(err, &ue) && ue.Reused && ue.Silent && !ue.TimedOut() && x.CutBy() == 0 {
		return x.repeat(u, req, deadline, ue)
	}
	return err
}

func (x *Exchange) try(u *Client, req *Request, deadline time.Time, connect func() (*conn, error)) error {
	x.Wrote, x.Began = time.Time{}, time.Time{} // drops those of an earlier try, in case the dial fails
	c, err := connect()
	if err != nil {
		return &Error{Stage: StageDial, Silent: true, Err: err}
	}
	x.up = u
	x.begin(c, req.End, deadline)
	x.owes.begin(u, req)
	reused := c.reused
	var writeErr error
	x.Wrote, writeErr = c.writeRequest(u, req)
	if errors.Is(writeErr, netio.ErrStale) {
		return netio.ErrStale
	}
	if !x.Wrote.IsZero() && writeErr != nil {
		return &Error{Stage: StageHead, Silent: true, Reused: reused, Cause: x.cause(writeErr), Err: writeErr}
	}
	if writeErr != nil {
		if !errors.Is(writeErr, netio.ErrUnsent) {
			x.Wrote = time.Now()
		}
		// The backend may have answered and closed before reading all of the body.
		if errors.Is(writeErr, os.ErrDeadlineExceeded) {
			return &Error{Stage: StageWrite, Silent: true, Reused: reused, Cause: x.cause(writeErr), Err: writeErr}
		}
		x.SetDeadline(time.Now().Add(time.Second))
	}
	if err := x.readHead(reused); err != nil {
		if writeErr != nil {
			return &Error{Stage: StageWrite, Silent: true, Reused: reused, Err: writeErr}
		}
		return err
	}
	if writeErr != nil {
		x.closes = true
	}
	return nil
}

// begin takes a connection for a request. The body of an earlier answer is forgotten: Finish would take
// its end for that of the answer that is now waited for, and keep a connection on which that still comes.
func (x *Exchange) begin(c *conn, end, deadline time.Time) {
	x.body = netio.BodyDecoder{}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.conn, x.end = c, end
	x.setDeadline(deadline)
}

// repeat sends the request once more over a fresh connection, after the failure first. If the dial
// fails, the backend has most likely died, perhaps of this request. Then repeat returns first, because
// the error of a dial would let the request go on as if no backend had had it.
func (x *Exchange) repeat(u *Client, req *Request, deadline time.Time, first *Error) error {
	wrote := x.Wrote
	x.Drop()
	err := x.try(u, req, deadline, u.dial)
	if IsDial(err) && !IsLocal(err) {
		x.Wrote = wrote
		return first
	}
	x.Repeated = x.Sent() && first.Stage == StageHead // otherwise the backend never had all of the first
	return err
}

// maxInterim bounds the 1xx answers before the final one.
const maxInterim = 8

// ReadHead continues to read a head that Do has given up. With a later deadline, it may still arrive.
func (x *Exchange) ReadHead() error { return x.readHead(false) }

func (x *Exchange) readHead(reused bool) error {
	c := x.conn
	for silent, interim := true, 0; interim < maxInterim; {
		if x.Began.IsZero() && len(c.in.Unread) > 0 {
			x.Began = time.Now()
		}
		n, err := x.Head.parse(c.in.Unread)
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
			return &Error{Stage: StageHead, Silent: silent, Reused: reused, Cause: x.cause(err), Err: tlsconf.Explain(err)}
		case x.Head.Status >= 200:
			x.frame()
			x.owes.headCame(x)
			return nil
		case x.Head.Status == http.StatusSwitchingProtocols:
			return &Error{Stage: StageHead, Reused: reused, Err: errors.New("status 101")}
		}
		interim++
		x.Began = time.Time{} // an interim answer says nothing of the work
	}
	return &Error{Stage: StageHead, Reused: reused, Err: errors.New("too many interim responses")}
}

// frame determines where the body ends.
func (x *Exchange) frame() {
	x.body, x.closes = netio.BodyDecoder{}, x.Head.close
	switch n, status := x.Head.Length, x.Head.Status; {
	case status == http.StatusNoContent || status == http.StatusNotModified || n == 0:
		x.body.Ended = true
	case n > 0:
		x.body.Left = n
	case n == LengthChunked:
		x.body.Chunked = true
	default:
		x.closes, x.body.UntilEOF = true, true
	}
}

// wait returns when there are body bytes for Fill, or the body has ended.
func (x *Exchange) wait() error {
	if x.body.Ended || len(x.conn.in.Unread) > 0 {
		return nil
	}
	if err := x.conn.More(&x.conn.in); err != nil {
		return x.cutOff(err)
	}
	return nil
}

// cutOff returns what a failed read means for the body. It is nil if the body ended with it.
func (x *Exchange) cutOff(err error) error {
	if errors.Is(err, io.EOF) {
		if x.body.UntilEOF {
			x.body.Ended = true
			return nil
		}
		err = io.ErrUnexpectedEOF
	}
	return &Error{Stage: StageBody, Cause: x.cause(err), Err: err}
}

// Follow calls take whenever there is something for Fill, or the body has ended. It returns nil when
// take wants no more. take calls Fill once and must not end the exchange. to is what take writes to; it
// may be nil.
func (x *Exchange) Follow(to *netio.Socket, take func() (more bool)) error {
	if (x.body.Ended || len(x.conn.in.Unread) > 0) && !take() {
		return nil
	}
	err := x.conn.Follow(x.up.loops, to, &x.conn.in, take)
	if err == nil {
		return nil
	}
	if err = x.cutOff(err); err == nil {
		take()
	}
	return err
}

// Fill appends the body bytes of one wake-up to dst. It reads from the socket once, and only if
// nothing is buffered. It returns io.EOF (with or without bytes) only after the strict end of the
// framing.
func (x *Exchange) Fill(dst []byte) ([]byte, error) {
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
		return dst, &Error{Stage: StageBody, Err: err}
	}
	if x.body.Ended {
		return dst, io.EOF
	}
	return dst, nil
}

// FirstBytes waits for the begin of a body, or for its end. Until then its reader has nothing of the
// answer, and a backend that breaks off can still be told as an error.
func (x *Exchange) FirstBytes() (buf []byte, err error) {
	for len(buf) == 0 && err == nil {
		buf, err = x.Fill(buf)
	}
	if errors.Is(err, io.EOF) {
		err = nil // whoever reads on finds the end again
	}
	return buf, err
}

// HalfClose closes the sending side, so that the backend stops its work on the request. The exchange
// can still read an answer that is on its way.
func (x *Exchange) HalfClose() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.conn != nil {
		_ = x.conn.CloseWrite()
		x.conn.half = true
	}
}

// Finish gives the connection back to its pool if the response ended properly and within its framing.
// Otherwise it closes the connection, so that the engine aborts the request.
func (x *Exchange) Finish() {
	c := x.release()
	if c == nil {
		return
	}
	if !x.body.Ended || x.closes || c.half || len(c.in.Unread) > 0 {
		_ = c.Close()
		return
	}
	x.up.put(c) // its deadline passes without effect, or the next request moves it
}

// HungUp reports that the backend has closed or reset the connection. A cut may have ended the last
// read before it could notice.
func (x *Exchange) HungUp() bool { return x.conn != nil && x.conn.HungUp() }

// Linger is Drop for a request that has failed of err, a deadline, and that the backend must not abort yet. The connection
// stays open in the background until the first byte of the answer's body comes, for d at most. Then Linger calls ended.
// guard runs what is in the background, because nobody else would recover from a panic there.
func (x *Exchange) Linger(err *Error, d time.Duration, guard func(func()) bool, ended func()) {
	rest := &Exchange{up: x.up, body: x.body}
	if rest.conn = x.release(); rest.conn == nil {
		ended()
		return
	}
	rest.SetDeadline(time.Now().Add(d))
	go guard(func() {
		defer ended()
		defer rest.Drop()
		if err.Stage == StageBody || rest.ReadHead() == nil {
			_, _ = rest.FirstBytes()
		}
	})
}

// Drop closes the connection at once.
func (x *Exchange) Drop() {
	if c := x.release(); c != nil {
		_ = c.Close()
	}
}

func (x *Exchange) release() *conn {
	x.owes.end(false)
	x.mu.Lock()
	defer x.mu.Unlock()
	c := x.conn
	x.conn = nil
	return c
}

// Reset makes the exchange ready for another request, with the same client or another one.
func (x *Exchange) Reset() {
	x.Drop()
	x.up = nil
	x.body = netio.BodyDecoder{}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.cuts = nil
}

// writeRequest writes head and body segments, with one system call if they fit. It returns what Ask
// returns.
func (c *conn) writeRequest(u *Client, req *Request) (time.Time, error) {
	t := c.scratch.Lend()
	defer c.scratch.TakeBack(t)
	h := append(t.Head[:0], req.Method...)
	h = append(append(append(h, ' '), u.prefix...), req.Path...)
	h = append(append(h, " HTTP/1.1\r\nHost: "...), u.host...)
	h = append(append(h, "\r\nAccept-Encoding: identity\r\nX-Request-Id: "...), req.ID...)
	if req.Body != nil {
		n := 0
		for _, s := range req.Body {
			n += len(s)
		}
		h = append(h, "\r\nContent-Type: "...)
		if req.Type == nil {
			h = append(h, "application/json"...)
		}
		h = append(append(h, req.Type...), "\r\nContent-Length: "...)
		h = strconv.AppendInt(h, int64(n), 10)
	}
	h = append(append(append(append(h, "\r\n"...), u.fields...), req.Fields...), "\r\n"...)
	t.Head = h
	t.Pieces = append(append(t.Pieces[:0], h), req.Body...)
	return c.Ask(t, c.reused)
}

// UntilClose reports that the body has no length and no chunks, and so ends with the connection.
func (x *Exchange) UntilClose() bool { return x.body.UntilEOF }

// IsEventStream reports whether the response is server-sent events.
func (x *Exchange) IsEventStream() bool { return netio.EqualFold(x.Head.media(), "text/event-stream") }

// IsJSON reports whether the response is one JSON text.
func (x *Exchange) IsJSON() bool {
	media := x.Head.media()
	return netio.EqualFold(media, "application/json") || bytes.HasSuffix(media, []byte("+json"))
}
