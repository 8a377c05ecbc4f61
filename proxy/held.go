package proxy

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/valyala/fasthttp"

	"xpyd/budget"
	"xpyd/netio"
	"xpyd/upstream"
)

// freeAnswer is what an answer may hold without a charge: sockets take as much from a
// client that does not read, and what is in flight bounds the rest.
const freeAnswer = maxPooledBuffer

var errNoRoom = fmt.Errorf("limits.answer_budget is spent: %w", upstream.ErrTooLarge)

// tooLargeToHold refuses an answer that can be neither held nor passed on, as only its end
// would tell where it ends. err is readHeld's. Its size is nobody's failure.
func tooLargeToHold(err error) *apiError {
	e := newError(fasthttp.StatusBadGateway, codeDecodeFailed, "", "decode backend sent an answer larger than limits.answer without a length").noRetry()
	if errors.Is(err, errNoRoom) {
		e = newError(fasthttp.StatusServiceUnavailable, codeOverloaded, "", "too many answer bytes are being held; try again").retryAfter(1)
	}
	e.blameless = true
	return e
}

// eventTooLarge: nobody's failure, and another round would end the same.
func eventTooLarge() *apiError {
	e := newError(fasthttp.StatusBadGateway, codeDecodeFailed, "", "decode backend sent an event larger than limits.answer").noRetry()
	e.blameless = true
	return e
}

// readHeld reads the rest of an answer into dst, charging held for its buffer once that is
// larger than freeAnswer. upstream.ErrTooLarge, with what was read in dst, is an answer beyond
// limits.answer, or by errNoRoom one that the budget has no room for. An engine's error is
// charged when it is written.
func (s *Server) readHeld(x *upstream.Exchange, dst []byte, of budget.Client, held *budget.Charge) ([]byte, error) {
	limit := s.cfg.Limits.Answer
	if x.Head.Status != fasthttp.StatusOK {
		return x.ReadAnswer(dst, limit)
	}
	room := min(limit, freeAnswer)
	for {
		var err error
		dst, err = x.ReadAll(dst, room)
		if !errors.Is(err, upstream.ErrTooLarge) || room == limit || x.Head.Length > limit {
			return dst, err
		}
		if room = 2 * room; x.Head.Length > 0 {
			room = x.Head.Length
		}
		room = min(room, limit)
		size := room + netio.InboxSize // what one read may bring beyond it
		if held.Raise(s.held, of, size) != budget.Granted {
			return dst, errNoRoom
		}
		dst = append(make([]byte, 0, size), dst...)
	}
}

// heldAnswer is an answer on its way to a client that may take its time: each piece has
// timeouts.write_stall, where fasthttp gives that to the whole.
type heldAnswer struct {
	s    *Server
	conn *netio.Conn
	buf  []byte
	held budget.Charge
}

// Read is never called: fasthttp is told to use WriteTo.
func (a *heldAnswer) Read([]byte) (int, error) { panic("BUG: held answer read as a plain stream") }

// SupportsBodyWriteTo tells fasthttp that WriteTo may take the place of Read.
func (a *heldAnswer) SupportsBodyWriteTo() bool { return true }

// WriteTo writes the answer to the client.
func (a *heldAnswer) WriteTo(w io.Writer) (int64, error) {
	out := &clientWriter{w: w, conn: a.conn, stall: a.s.cfg.Timeouts.WriteStall, armed: time.Now()}
	err := out.write(a.buf, out.armed)
	return out.n, err
}

// CloseWithError is fasthttp's last call for the response.
func (a *heldAnswer) CloseWithError(error) error {
	a.held.Lower(0)
	a.buf = nil
	return nil
}

// largeAnswer is an answer that is passed on as it comes.
type largeAnswer struct {
	heldAnswer
	x *upstream.Exchange // at what comes after buf
}

// WriteTo fails where the backend breaks off, so that the client gets no clean end.
func (a *largeAnswer) WriteTo(w io.Writer) (int64, error) {
	out := &clientWriter{
		w: w, chunked: a.x.Head.Length < 0, conn: a.conn, buffers: &a.s.buffers, stall: a.s.cfg.Timeouts.WriteStall, armed: time.Now(),
	}
	err := out.write(a.buf, out.armed)
	for err == nil {
		now := time.Now()
		a.x.Progress(now, passTimeout)
		var read error
		a.buf, read = a.x.Fill(a.buf[:0])
		if read != nil && !errors.Is(read, io.EOF) {
			return out.n, read
		}
		if err = out.write(a.buf, time.Now()); read != nil {
			break
		}
	}
	return out.n, err
}

// CloseWithError is fasthttp's last call for the response.
func (a *largeAnswer) CloseWithError(err error) error {
	a.x.Finish()
	return a.heldAnswer.CloseWithError(err)
}

// writeError answers with err. An engine's own text is held for the client like an answer;
// where there is no room for it, ours stands in its place.
func (s *Server) writeError(ctx *fasthttp.RequestCtx, of budget.Client, err *apiError) {
	text := err.Raw
	if len(text) <= freeAnswer {
		err.write(ctx)
		return
	}
	a := &heldAnswer{s: s, conn: ctx.Conn().(*netio.Conn), buf: text}
	if a.held.Raise(s.held, of, int64(len(text))) != budget.Granted {
		err.Raw = nil
		err.write(ctx)
		return
	}
	err.Raw = text[:0] // the head alone
	err.write(ctx)
	ctx.Response.SetBodyStream(a, len(text))
}
