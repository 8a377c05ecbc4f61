package proxy

import (
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/valyala/fasthttp"

	"xpyd/intake/budget"
	"xpyd/kvparams"
	"xpyd/netio"
	"xpyd/netio/upstream"
	"xpyd/proxy/fault"
	"xpyd/proxy/leg"
)

// freeAnswer is how much an answer may hold without a charge. Sockets hold as much for a client that
// does not read, and the number of requests in flight bounds the sum.
const freeAnswer = budget.MaxPooled

// tooLargeToHold refuses an answer. err is readHeld's error.
func tooLargeToHold(err error) *fault.Error {
	return fault.ErrTooLargeToHold(errors.Is(err, leg.ErrNoRoom))
}

// readHeld reads the rest of an answer into dst. It charges held for the buffer when that becomes
// larger than freeAnswer. It returns upstream.ErrTooLarge, with dst as far as it was read, for an
// answer beyond limits.answer, and leg.ErrNoRoom for one that the budget has no room for. An engine's
// error is charged when it is written.
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
		size := room + netio.InboxSize // with what one read may bring beyond room
		if held.Raise(s.held, of, size) != budget.Granted {
			return dst, leg.ErrNoRoom
		}
		dst = append(make([]byte, 0, size), dst...)
	}
}

// writesItself is for an answer with a WriteTo. fasthttp is told to use that, and so never calls Read.
type writesItself struct{}

func (writesItself) Read([]byte) (int, error)  { panic("BUG: answer read as a plain stream") }
func (writesItself) SupportsBodyWriteTo() bool { return true }

// heldAnswer is an answer on its way to a client that may take its time. Each piece has
// timeouts.write_stall, which fasthttp would give to the whole answer.
type heldAnswer struct {
	writesItself
	s    *Server
	conn *netio.Conn
	buf  []byte
	held budget.Charge
}

// errPanicked is about an answer that broke off because xpyd panicked.
var errPanicked = errors.New("panic while the answer was written")

// shield runs a WriteTo. fasthttp calls it after the handler, where nobody else recovers.
func (s *Server) shield(w io.Writer, write func(w io.Writer) (int64, error)) (n int64, err error) {
	if !s.guard(func() { n, err = write(w) }) {
		err = errPanicked
	}
	return n, err
}

// WriteTo writes the answer to the client.
func (a *heldAnswer) WriteTo(w io.Writer) (int64, error) { return a.s.shield(w, a.write) }

func (a *heldAnswer) write(w io.Writer) (int64, error) {
	out := &clientWriter{w: w, conn: a.conn, stall: a.s.cfg.Timeouts.WriteStall, armed: time.Now()}
	err := out.write(a.buf, out.armed)
	return out.n, err
}

// CloseWithError is fasthttp's last call for the response.
func (a *heldAnswer) CloseWithError(err error) error {
	if err != nil {
		a.conn.Cut()
	}
	a.held.Lower(0)
	a.buf = nil
	return nil
}

// readWhole reads an answer that the client gets in one piece.
func (p *passing) readWhole() ([]byte, error) {
	buf, err := p.s.readHeld(&p.X, nil, p.client, &p.held)
	if err == nil && p.X.Head.Status < 300 && cutShort(&p.X, buf) {
		err = io.ErrUnexpectedEOF
	}
	return buf, err
}

// cutShort reports that an answer that has ended may be only a part. One without chunks and length ends like one that
// breaks off. So only what it ends with shows that it is whole: [DONE] in a stream, the last brace of JSON. Other
// types show nothing.
func cutShort(x *upstream.Exchange, body []byte) bool {
	switch {
	case !x.UntilClose():
		return false
	case x.IsEventStream():
		return !kvparams.EndsDone(body)
	}
	return x.IsJSON() && !json.Valid(body)
}

// largeAnswer is an answer that xpyd passes on as it comes. The exchange continues after buf.
type largeAnswer struct {
	writesItself
	p       *passing
	buf     []byte
	silence time.Duration // the longest between two pieces
	end     []byte        // the last bytes before buf, if only the end of the connection ends the answer
	tally   tally
}

// WriteTo fails if the backend breaks off, so that the client gets no clean end.
func (a *largeAnswer) WriteTo(w io.Writer) (int64, error) { return a.p.s.shield(w, a.write) }

func (a *largeAnswer) write(w io.Writer) (int64, error) {
	p, x := a.p, &a.p.X
	out := &clientWriter{
		w: w, chunked: x.Head.Length < 0, conn: p.conn, buffers: &p.s.buffers, stall: p.s.cfg.Timeouts.WriteStall, stop: &p.stop, armed: time.Now(),
	}
	err := out.write(a.buf, out.armed)
	for err == nil {
		a.tally.pass(p, a.buf)
		x.Progress(time.Now(), a.silence)
		if x.UntilClose() {
			a.end = kvparams.AppendEnd(a.end, a.buf)
		}
		var read error
		if a.buf, read = x.Fill(a.buf[:0]); errors.Is(read, io.EOF) && cutShort(x, a.end) {
			read = io.ErrUnexpectedEOF
		}
		if read != nil && !errors.Is(read, io.EOF) {
			f := p.broke(read)
			p.failed, p.verdict = f.Told, f.Outcome
			if p.slotless {
				p.Lease.Backend.AnswerFailed(f.Outcome)
			}
			return out.n, read
		}
		if err = out.write(a.buf, time.Now()); read != nil {
			a.tally.pass(p, a.buf)
			a.tally.end(p)
			break
		}
	}
	return out.n, err
}

// CloseWithError is fasthttp's last call for the response.
func (a *largeAnswer) CloseWithError(err error) error {
	if err != nil {
		a.p.conn.Cut()
	}
	if errors.Is(err, errPanicked) {
		a.p.failed = fault.ErrInternal()
	} else if err != nil && a.p.failed == nil {
		a.p.failed = fault.ErrGone() // the client left while xpyd wrote to it
	}
	a.p.s.guard(a.p.finish)
	a.buf = nil
	return nil
}

// writeError answers with err. An engine's own text is held for the client like an answer. If there is
// no room for it, the client gets xpyd's own text.
func (s *Server) writeError(ctx *fasthttp.RequestCtx, of budget.Client, err *fault.Error) {
	text := err.Raw
	if len(text) <= freeAnswer {
		err.Write(ctx)
		return
	}
	a := &heldAnswer{s: s, conn: ctx.Conn().(*netio.Conn), buf: text}
	if a.held.Raise(s.held, of, int64(len(text))) != budget.Granted {
		err.Raw = nil
		err.Write(ctx)
		return
	}
	err.Raw = text[:0] // the head alone
	err.Write(ctx)
	ctx.Response.SetBodyStream(a, len(text))
}
