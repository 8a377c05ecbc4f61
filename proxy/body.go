package proxy

import (
	"errors"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

const (
	firstBody  = 16 << 10 // a body's first buffer; it doubles as bytes really arrive
	pooledBody = 1 << 20  // larger buffers are left to the garbage collector
	bodyRate   = 64 << 10 // bytes a second that a slow upload must reach on top of timeouts.body
)

// budget bounds the request bytes that all completions together hold in memory.
type budget struct {
	limit int64
	used  atomic.Int64
	pool  sync.Pool // of *[]byte, up to pooledBody each
}

func (b *budget) take(n int64) bool {
	if b.used.Add(n) > b.limit {
		b.used.Add(-n)
		return false
	}
	return true
}

func (b *budget) give(n int64) { b.used.Add(-n) }

func (b *budget) inUse() float64 { return float64(b.used.Load()) }

// bodyBuffer is one request body with its charge on the budget.
type bodyBuffer struct {
	b        []byte
	pooled   *[]byte // what b came from; nil where it was made
	charged  int64
	complete bool // read to its end: what follows on the connection is a new request
}

// grow makes room for at least one more byte, charging the new capacity before it is
// taken. want is the announced length, or −1.
func (bb *bodyBuffer) grow(bg *budget, want int64) bool {
	size := max(firstBody, 2*int64(cap(bb.b)))
	if want >= 0 {
		size = min(size, max(want, 1))
	}
	if !bg.take(size - bb.charged) {
		return false
	}
	bb.charged = size
	if bb.b == nil && size <= pooledBody {
		if p, ok := bg.pool.Get().(*[]byte); ok && int64(cap(*p)) >= size && int64(cap(*p)) <= 4*size {
			bb.pooled, bb.b = p, (*p)[:0]
			return true
		}
	}
	next := make([]byte, len(bb.b), size)
	copy(next, bb.b)
	bb.b = next
	return true
}

// free gives buffer and charge back. Nothing may alias the body any more.
func (bb *bodyBuffer) free(bg *budget) {
	if bb.b != nil && cap(bb.b) <= pooledBody {
		if bb.pooled == nil {
			bb.pooled = new([]byte)
		}
		*bb.pooled = bb.b[:0]
		bg.pool.Put(bb.pooled)
	}
	bg.give(bb.charged)
	*bb = bodyBuffer{}
}

// errGone is a client that left before its answer was complete. It is counted
// and logged, never sent.
func errGone() *apiError {
	return newError(499, codeClientGone, "", "the client closed the connection or its sending side")
}

func (s *Server) tooLarge() *apiError {
	return newError(fasthttp.StatusRequestEntityTooLarge, codeBodyTooLarge, "", "request body is larger than "+strconv.FormatInt(s.cfg.Limits.Body, 10)+" bytes").noRetry()
}

// readBody reads the whole request body. The buffer follows the bytes that arrive,
// not the length that was announced.
func (s *Server) readBody(ctx *fasthttp.RequestCtx, conn *clientConn, bb *bodyBuffer) *apiError {
	want := int64(ctx.Request.Header.ContentLength()) // −1 when chunked
	src := ctx.RequestBodyStream()
	if src == nil {
		return newError(fasthttp.StatusBadRequest, codeInvalidJSON, "", "request body is empty; send a JSON object")
	}
	start := time.Now()
	var deadline time.Time
	for {
		// Each 64 KiB that arrive buy another second.
		at := start.Add(s.cfg.Timeouts.Body + time.Duration(len(bb.b)/bodyRate)*time.Second)
		if at.After(deadline) {
			deadline = at
			_ = conn.SetReadDeadline(deadline)
		}
		if len(bb.b) == cap(bb.b) && int64(len(bb.b)) != want {
			if !bb.grow(&s.budget, want) {
				return newError(fasthttp.StatusServiceUnavailable, codeOverloaded, "", "too many request bytes are being held; try again").retryAfter(1)
			}
		}
		n, err := src.Read(bb.b[len(bb.b):cap(bb.b)])
		bb.b = bb.b[:len(bb.b)+n]
		if int64(len(bb.b)) > s.cfg.Limits.Body {
			return s.tooLarge()
		}
		if err != nil {
			fault := bodyEnd(err, conn, want, int64(len(bb.b)), !time.Now().Before(deadline))
			bb.complete = fault == nil
			return fault
		}
	}
}

// bodyEnd tells a complete body from a cut one. fasthttp reports a client that closes
// between two chunks as a plain end, so the socket is asked.
func bodyEnd(err error, conn *clientConn, want, got int64, late bool) *apiError {
	switch {
	case late: // not every one of fasthttp's errors tells that it was a timeout
		return newError(fasthttp.StatusRequestTimeout, codeRequestTimeout, "", "request body did not arrive in time")
	case errors.Is(err, io.EOF) && (got == want || want < 0 && !hungUp(conn.fd)):
		return nil // the deadline may lapse: fasthttp arms another one before it reads again
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), hungUp(conn.fd):
		return errGone()
	}
	return newError(fasthttp.StatusBadRequest, codeInvalidHTTP, "", "malformed request body framing")
}
