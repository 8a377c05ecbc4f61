package proxy

import (
	"errors"
	"io"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"xpyd/budget"
	"xpyd/fault"
	"xpyd/netio"
)

// bodyRate is the rate that an upload longer than timeouts.body must reach, in bytes a second.
const bodyRate = 64 << 10

func clientLimit() *fault.Error {
	return fault.NewError(fasthttp.StatusTooManyRequests, fault.CodeClientLimit, "", "this client has limits.client_in_flight requests already; wait for one to end").After(1)
}

func (s *Server) tooLarge() *fault.Error {
	return fault.NewError(fasthttp.StatusRequestEntityTooLarge, fault.CodeBodyTooLarge, "", "request body is larger than "+strconv.FormatInt(s.cfg.Limits.Body, 10)+" bytes").Final()
}

// pace says by when more of a body must have come. Bytes buy time, but no more than timeouts.body
// is ever left, and no silence may last longer than timeouts.body_stall. So a body that stops is
// given up soon, however much of it has come.
type pace struct {
	limit, stall time.Duration
	until        time.Time // the time that the bytes so far have bought ends then
}

// next returns the deadline after n more bytes have come. The first call starts the pace.
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

// readBody reads the client's whole request body. The buffer grows with the bytes that arrive and
// not with the announced length. stop ends the read once it is set. Whoever sets it then moves the
// connection's read deadline.
func (s *Server) readBody(ctx *fasthttp.RequestCtx, conn *netio.Conn, of budget.Client, stop *atomic.Bool, body *budget.Body) *fault.Error {
	want := int64(ctx.Request.Header.ContentLength()) // −1 when chunked
	src := ctx.RequestBodyStream()
	if src == nil {
		return fault.NewError(fasthttp.StatusBadRequest, fault.CodeInvalidJSON, "", "request body is empty; send a JSON object")
	}
	pace := pace{limit: s.cfg.Timeouts.Body, stall: s.cfg.Timeouts.BodyStall}
	for n := 0; ; {
		deadline := pace.next(time.Now(), n)
		_ = conn.SetReadDeadline(deadline)
		if stop.Load() { // checked after the deadline is set, which may have replaced the one that came with stop
			return fault.ErrStopped()
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
				return fault.ErrStopped()
			}
			fault := bodyEnd(err, conn, want, body.Size(), !time.Now().Before(deadline))
			if fault == nil {
				body.End(s.bodies)
			}
			return fault
		}
	}
}

func bodyRefused(r budget.Refusal) *fault.Error {
	if r == budget.OverShare {
		return fault.NewError(fasthttp.StatusTooManyRequests, fault.CodeClientLimit, "", "the request bodies of this client hold limits.client_share of limits.body_budget already; try again").After(1)
	}
	return fault.NewError(fasthttp.StatusServiceUnavailable, fault.CodeOverloaded, "", "too many request bytes are being held; try again").After(1)
}

// bodyEnd tells a complete body from one that was cut. fasthttp reports a client that closes
// between two chunks as a plain end, so bodyEnd asks the socket.
func bodyEnd(err error, conn *netio.Conn, want, got int64, late bool) *fault.Error {
	switch {
	case late: // some of fasthttp's errors do not say that they were timeouts
		return fault.NewError(fasthttp.StatusRequestTimeout, fault.CodeRequestTimeout, "", "request body did not arrive in time")
	case errors.Is(err, io.EOF) && (got == want || want < 0 && !conn.Departed()):
		return nil // the deadline may pass, because fasthttp sets another one before it reads again
	// Broken framing stays that error, whether or not the client has left since.
	case !conn.Misframed() && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || conn.Departed()):
		return fault.ErrGone()
	}
	return fault.NewError(fasthttp.StatusBadRequest, fault.CodeInvalidHTTP, "", "malformed request body framing")
}
