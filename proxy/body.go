package proxy

import (
	"errors"
	"io"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"xpyd/budget"
	"xpyd/netio"
)

// bodyRate is what a slow upload must reach on top of timeouts.body, in bytes a second.
const bodyRate = 64 << 10

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
func (s *Server) readBody(ctx *fasthttp.RequestCtx, conn *netio.Conn, of budget.Client, stop *atomic.Bool, body *budget.Body) *apiError {
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
		if body.Full() && body.Size() != want {
			if r := body.Grow(s.bodies, of, want); r != budget.Granted {
				return bodyRefused(r)
			}
		}
		var err error
		n, err = src.Read(body.Room())
		body.Came(n)
		if body.Size() > s.cfg.Limits.Body {
			return s.tooLarge()
		}
		if err != nil {
			if stop.Load() {
				return shuttingDown()
			}
			fault := bodyEnd(err, conn, want, body.Size(), !time.Now().Before(deadline))
			if fault == nil {
				body.End(s.bodies)
			}
			return fault
		}
	}
}

func bodyRefused(r budget.Refusal) *apiError {
	if r == budget.OverShare {
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
