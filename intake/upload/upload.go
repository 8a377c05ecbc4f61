// Package upload reads the bodies of clients' requests. It holds them to a pace, inflates those that
// are compressed, and charges all that it holds to the budget of bodies.
package upload

import (
	"errors"
	"io"
	"sync/atomic"
	"time"

	"xpyd/intake/budget"
	"xpyd/netio"
)

// rate is the rate that an upload longer than Terms.Time must reach, in bytes a second as they come
// from the client.
const rate = 64 << 10

// Terms are the bounds of every body. They never change.
type Terms struct {
	Time    time.Duration // for a body to arrive, plus 1 s for each 64 KiB; no more than this is ever left
	Stall   time.Duration // the longest silence inside a body
	Largest int64         // in bytes, after inflation
	Bodies  *budget.Bodies
}

// Source is where one body comes from.
type Source struct {
	Stream io.Reader // of fasthttp
	Conn   *netio.Conn
	Length int64 // as announced; −1 when chunked
	Coding Coding
	Client budget.Client // who is charged
	// Stop ends the read once it is set. Whoever sets it then moves the connection's read deadline.
	Stop *atomic.Bool
}

// Fault says why a body was not read to its end.
type Fault uint8

// Faults.
const (
	None       Fault = iota
	Stopped          // Source.Stop was set
	Late             // it did not come in time
	Gone             // the client left before the end
	Misframed        // the chunks or the length are wrong
	Miscoded         // it is not what Content-Encoding says
	WideWindow       // to inflate it takes more memory than a decoder may have
	TooLarge         // it is larger than Terms.Largest, as it came or inflated
	Spent            // the budget has no room
	OverShare        // the client holds its share of the budget
)

// Read reads a whole body. The buffer grows with the bytes that arrive, and with inflated bytes and not with what
// they might become. The announced length counts only where an idle buffer of that size is at hand.
func (t *Terms) Read(src Source, body *budget.Body) Fault {
	if src.Coding == Identity {
		w := newWire(t, src)
		return t.fill(&w, nil, src.Length, body)
	}
	w := newWire(t, src)
	return t.inflate(&w, body)
}

// fill reads from w, or from what inflates the bytes of w. want is the length of the body, or −1.
func (t *Terms) fill(w *wire, inflated io.Reader, want int64, body *budget.Body) Fault {
	for {
		if body.Full() && body.Size() != want {
			if r := body.Grow(t.Bodies, w.src.Client, want); r != budget.Granted {
				return refused(r)
			}
		}
		var n int
		var err error
		if inflated != nil {
			n, err = inflated.Read(body.Room())
		} else {
			n, err = w.Read(body.Room())
		}
		body.Came(n)
		if body.Size() > t.Largest {
			return TooLarge
		}
		if err == nil {
			continue
		}
		f := w.end(err)
		if f == None {
			body.End(t.Bodies)
		}
		return f
	}
}

func refused(r budget.Refusal) Fault {
	if r == budget.OverShare {
		return OverShare
	}
	return Spent
}

// wire reads the bytes as the client sends them, at the pace that the terms ask for.
type wire struct {
	src  Source
	pace pace
	most int64 // bytes of all reads; frames may hold nothing, however many come
	came int   // bytes of the last read, which buy time
	got  int64 // bytes of all reads
	err  error // of the last read; no read follows an error
	late bool  // the deadline of the last read had passed
}

func newWire(t *Terms, src Source) wire {
	return wire{src: src, most: t.Largest, pace: pace{limit: t.Time, stall: t.Stall}}
}

var (
	errStopped = errors.New("the process ends")
	errTooMuch = errors.New("the body is too large")
)

func (w *wire) Read(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	deadline := w.pace.next(time.Now(), w.came)
	_ = w.src.Conn.SetReadDeadline(deadline)
	if w.src.Stop.Load() { // checked after the deadline is set, which may have replaced the one that came with stop
		w.err = errStopped
		return 0, w.err
	}
	n, err := w.src.Stream.Read(p)
	w.came, w.got = n, w.got+int64(n)
	if err != nil {
		w.err, w.late = err, !time.Now().Before(deadline)
		if w.src.Stop.Load() {
			w.err = errStopped
		}
	}
	if w.got > w.most {
		w.err = errTooMuch
	}
	return n, w.err
}

// end says what the error of a read means for the body. The error may be that of a decoder.
func (w *wire) end(err error) Fault {
	if w.err != nil {
		if f := bodyEnd(w.err, w.src.Conn, w.src.Length, w.got, w.late); f != None || w.src.Coding == Identity {
			return f
		}
	}
	switch {
	case errors.Is(err, io.EOF) && w.err != nil:
		return None
	case windowTooWide(err):
		return WideWindow
	}
	return Miscoded
}

// bodyEnd tells a complete body from one that was cut. fasthttp reports a client that closes
// between two chunks as a plain end, so bodyEnd asks the socket.
func bodyEnd(err error, conn *netio.Conn, want, got int64, late bool) Fault {
	switch {
	case errors.Is(err, errStopped):
		return Stopped
	case errors.Is(err, errTooMuch):
		return TooLarge
	case late: // some of fasthttp's errors do not say that they were timeouts
		return Late
	case errors.Is(err, io.EOF) && (got == want || want < 0 && !conn.Departed()):
		return None // the deadline may pass, because fasthttp sets another one before it reads again
	// Broken framing stays that error, whether or not the client has left since.
	case !conn.Misframed() && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || conn.Departed()):
		return Gone
	}
	return Misframed
}

// pace says by when more of a body must have come. Bytes buy time, but no more than limit is ever
// left, and no silence may last longer than stall. So a body that stops is given up soon, however
// much of it has come.
type pace struct {
	limit, stall time.Duration
	until        time.Time // the time that the bytes so far have bought ends then
}

// next returns the deadline after n more bytes have come. The first call starts the pace.
func (p *pace) next(now time.Time, n int) time.Time {
	at := p.until.Add(time.Duration(n) * time.Second / rate)
	if most := now.Add(p.limit); p.until.IsZero() || at.After(most) {
		at = most
	}
	p.until = at
	if silent := now.Add(p.stall); silent.Before(at) {
		return silent
	}
	return at
}
