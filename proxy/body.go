package proxy

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"xpyd/netio"
)

const (
	firstBody = 16 << 10 // a body's first buffer, unless less is announced
	bodyRate  = 64 << 10 // bytes a second that a slow upload must reach on top of timeouts.body
)

// bodyBuffer is one request body with its charge on the budget. Up to bodyPiece it lies in
// one buffer, which doubles as bytes really arrive; what is longer arrives in pieces, so that
// what is held follows what has come, and is made one when it is complete.
type bodyBuffer struct {
	b        []byte   // the body; of one that arrives in pieces, the last of them
	pieces   [][]byte // the full ones before it
	before   int64    // bytes in them
	charge   charge   // for the capacity of all of these
	complete bool     // read to its end: what follows on the connection is a new request
}

func (bb *bodyBuffer) size() int64 { return bb.before + int64(len(bb.b)) }

// grow makes room for at least one more byte, charging the new capacity before it is
// taken. want is the announced length, or −1.
func (bb *bodyBuffer) grow(s *Server, of clientID, want int64) refusal {
	full := int64(cap(bb.b))
	size := 2 * full
	switch {
	case full == 0 && want >= 0:
		size = bodySize(min(want, firstBody))
	case full == 0:
		size = firstBody
	case bb.before > 0 || full == bodyPiece:
		return bb.addPiece(s, of, want)
	}
	if r := bb.charge.raise(s.bodies, of, size); r != granted {
		return r
	}
	next := append(s.bodyPool.get(size), bb.b...)
	s.bodyPool.put(bb.b)
	bb.b = next
	return granted
}

// addPiece keeps the full piece and begins another.
func (bb *bodyBuffer) addPiece(s *Server, of clientID, want int64) refusal {
	size := int64(bodyPiece)
	if want >= 0 {
		size = bodySize(want - bb.size())
	}
	if r := bb.charge.raise(s.bodies, of, bb.charge.n+size); r != granted {
		return r
	}
	bb.before += int64(len(bb.b))
	bb.pieces = append(bb.pieces, bb.b)
	bb.b = s.bodyPool.get(size)
	return granted
}

// join makes one buffer of the pieces. One body at a time is held twice, uncharged: a
// budget that holds a body need not hold it twice.
func (bb *bodyBuffer) join(s *Server) {
	if bb.before == 0 {
		return
	}
	s.bodyPool.joining.Lock()
	bb.pieces = append(bb.pieces, bb.b)
	bb.b = bytes.Join(bb.pieces, nil)
	bb.dropPieces(s)
	s.bodyPool.joining.Unlock()
	bb.charge.lower(int64(cap(bb.b)))
}

func (bb *bodyBuffer) dropPieces(s *Server) {
	for _, p := range bb.pieces {
		s.bodyPool.put(p)
	}
	clear(bb.pieces)
	bb.pieces, bb.before = bb.pieces[:0], 0
}

// free gives buffer and charge back. Nothing may alias the body any more.
func (bb *bodyBuffer) free(s *Server) {
	bb.dropPieces(s)
	s.bodyPool.put(bb.b)
	bb.charge.lower(0)
	*bb = bodyBuffer{pieces: bb.pieces}
}

// errGone is a client that left before its answer was complete. It is counted
// and logged, never sent.
func errGone() *apiError {
	return newError(499, codeClientGone, "", "the client closed the connection or its sending side")
}

func (s *Server) tooLarge() *apiError {
	return newError(fasthttp.StatusRequestEntityTooLarge, codeBodyTooLarge, "", "request body is larger than "+strconv.FormatInt(s.cfg.Limits.Body, 10)+" bytes").noRetry()
}

// pace says until when more of a body must have come: bytes buy time, none is saved up
// beyond timeouts.body, and no silence is longer than timeouts.body_stall. So a body that
// stops is let go soon, however much of it has come.
type pace struct {
	limit, stall time.Duration
	until        time.Time // the bytes that have come last until then
}

// next is the moment after n more bytes; the first call begins.
func (p *pace) next(now time.Time, n int) time.Time {
	at := p.until.Add(time.Duration(n) * time.Second / bodyRate)
	if most := now.Add(p.limit); p.until.IsZero() || at.After(most) {
		at = most
	}
	p.until = at
	if silent := now.Add(p.stall); silent.Before(at) {
		return silent
	}
	return at
}

// readBody reads the whole request body of the client. The buffer follows the bytes that
// arrive, not the length that was announced. stop, when set, ends it: whoever sets it moves
// the connection's read deadline then.
func (s *Server) readBody(ctx *fasthttp.RequestCtx, conn *netio.Conn, of clientID, stop *atomic.Bool, bb *bodyBuffer) *apiError {
	want := int64(ctx.Request.Header.ContentLength()) // −1 when chunked
	src := ctx.RequestBodyStream()
	if src == nil {
		return newError(fasthttp.StatusBadRequest, codeInvalidJSON, "", "request body is empty; send a JSON object")
	}
	pace := pace{limit: s.cfg.Timeouts.Body, stall: s.cfg.Timeouts.BodyStall}
	for n := 0; ; {
		deadline := pace.next(time.Now(), n)
		_ = conn.SetReadDeadline(deadline)
		if stop.Load() { // after the deadline, which may just have taken the other one's place
			return shuttingDown()
		}
		if len(bb.b) == cap(bb.b) && bb.size() != want {
			if r := bb.grow(s, of, want); r != granted {
				return bodyRefused(r)
			}
		}
		var err error
		n, err = src.Read(bb.b[len(bb.b):cap(bb.b)])
		bb.b = bb.b[:len(bb.b)+n]
		if bb.size() > s.cfg.Limits.Body {
			return s.tooLarge()
		}
		if err != nil {
			if stop.Load() {
				return shuttingDown()
			}
			fault := bodyEnd(err, conn, want, bb.size(), !time.Now().Before(deadline))
			if bb.complete = fault == nil; bb.complete {
				bb.join(s)
			}
			return fault
		}
	}
}

func bodyRefused(r refusal) *apiError {
	if r == overShare {
		return newError(fasthttp.StatusTooManyRequests, codeClientLimit, "", "the request bodies of this client hold limits.client_share of limits.body_budget already; try again").retryAfter(1)
	}
	return newError(fasthttp.StatusServiceUnavailable, codeOverloaded, "", "too many request bytes are being held; try again").retryAfter(1)
}

// bodyEnd tells a complete body from a cut one. fasthttp reports a client that closes
// between two chunks as a plain end, so the socket is asked.
func bodyEnd(err error, conn *netio.Conn, want, got int64, late bool) *apiError {
	switch {
	case late: // not every one of fasthttp's errors tells that it was a timeout
		return newError(fasthttp.StatusRequestTimeout, codeRequestTimeout, "", "request body did not arrive in time")
	case errors.Is(err, io.EOF) && (got == want || want < 0 && !conn.Departed()):
		return nil // the deadline may lapse: fasthttp arms another one before it reads again
	// Broken framing is that, whether or not its client has left since.
	case !conn.Misframed() && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || conn.Departed()):
		return errGone()
	}
	return newError(fasthttp.StatusBadRequest, codeInvalidHTTP, "", "malformed request body framing")
}
