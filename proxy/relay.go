package proxy

import (
	"errors"
	"io"
	"math/bits"
	"slices"
	"strconv"
	"time"

	"xpyd/intake/budget"
	"xpyd/kvparams"
	"xpyd/netio"
	"xpyd/netio/upstream"
	"xpyd/proxy/carry"
	"xpyd/proxy/fault"
	"xpyd/proxy/leg"
	"xpyd/router"
)

// relay carries D's events. buf holds bytes as they came. The bytes before ready are complete
// events that were classified and may be sent.
type relay struct {
	buf    []byte
	pooled *[]byte // to return buf with; nil while the stream waits without a buffer
	ready  int
	looked int // bytes after ready that were already searched for the end of an event

	usage   kvparams.Usage // the last one that came
	content int            // tokens of the answer, as far as its events show them
	waited  time.Duration  // for the client to read

	api      kvparams.API
	cached   int // P's cached_tokens for the usage event; −1 leaves the event as it is
	choices  int // choices that must finish
	finished int
	which    uint64 // of them; see kvparams.Event
	events   int
	sent     int64

	committed bool          // an event came that must not be lost
	done      bool          // the last event came; [DONE] alone proves nothing, as vLLM sends it after an error too
	broken    bool          // an error event, a malformed one or one of a failed choice came, or [DONE] came too early
	reported  bool          // an error event came
	expose    bool          // errors.expose_upstream
	foreign   bool          // the error event is D's own, and is before ready
	handle    bool          // D named blocks of its own, which no engine will ask for
	carry     *carry.Stream // of the ids in the events, or of a continuation; nil where there is neither

	out   *clientWriter
	lost  error // from a write: the client is gone
	cause error // from D or its connection
}

func (r *relay) start(api kvparams.API, cached, choices int, expose bool) {
	*r = relay{buf: r.buf[:0], pooled: r.pooled, api: api, cached: cached, choices: choices, expose: expose, usage: kvparams.NoUsage()}
}

// resume has the relay carry another D's events in the same stream.
func (r *relay) resume() {
	*r = relay{
		buf: r.buf[:0], pooled: r.pooled, api: r.api, cached: r.cached, choices: r.choices, expose: r.expose, usage: r.usage,
		carry: r.carry, out: r.out, content: r.content, waited: r.waited, events: r.events, handle: r.handle,
	}
}

// borrow gives the relay a buffer of the pool, and giveBack returns it.
func (r *relay) borrow(from *budget.Buffers) {
	r.pooled = from.Lend()
	r.buf = *r.pooled
}

func (r *relay) giveBack(to *budget.Buffers) {
	to.TakeBack(r.pooled, r.buf)
	r.pooled, r.buf = nil, nil
}

// scan classifies each complete event after ready once. It stops at [DONE] and at a broken stream.
func (r *relay) scan() {
	for !r.done && !r.broken {
		n := kvparams.NextEventFrom(r.buf[r.ready:], r.looked)
		if n == 0 {
			r.looked = len(r.buf) - r.ready
			return
		}
		r.looked = 0
		r.take(n)
	}
}

func (r *relay) take(n int) {
	ev := r.api.Classify(r.buf[r.ready : r.ready+n])
	if ev.Transfers() {
		if n = r.hide(n, ev); r.carry != nil {
			ev = r.api.Classify(r.buf[r.ready : r.ready+n])
		}
	}
	if ev.Kind != kvparams.EventError && !ev.Malformed && ev.Broken == 0 { // the client does not get the others
		r.finished += ev.Finished - bits.OnesCount64(r.which&ev.Which)
		r.which |= ev.Which
	}
	switch {
	case ev.Kind == kvparams.EventError:
		r.broken, r.reported = true, true
		if r.foreign = r.expose && !ev.Malformed && !r.carry.MayCarry(); !r.foreign {
			return // the client gets xpyd's own event, as D's may hold addresses or prompts
		}
	case ev.Malformed || ev.Broken > 0:
		r.broken = true
		return
	case ev.Kind == kvparams.EventDone:
		r.done = true
		if r.finished < r.choices {
			r.broken = r.committed // a client must not see a clean end
			return
		}
	case ev.Kind == kvparams.EventContent:
		r.content += ev.Tokens()
	}
	if r.carry != nil {
		var failed bool
		if n, failed = r.carryOn(n, ev); failed {
			r.broken = true
			return
		}
	}
	if joined := r.carry.Joined(); joined && ev.Kind == kvparams.EventUsage {
		r.usage = r.carry.Usage(ev.Usage)
	} else if !joined && (ev.Kind == kvparams.EventUsage || ev.Usage.Prompt > 0) {
		r.usage = ev.Usage
		if r.cached >= 0 && ev.Usage.Cached >= 0 {
			n = r.rewriteUsage(n)
		}
	}
	r.events++
	r.committed = r.committed || ev.Commits()
	r.ready += n
}

// carryOn keeps of the event of n bytes what its stream may be carried on with, and hides that from the client. An event of a
// continuation becomes one of the stream. It returns the new length of the event, and whether the
// continuation has failed with it.
func (r *relay) carryOn(n int, ev kvparams.Event) (_ int, failed bool) {
	if !r.carry.Joined() {
		r.buf, n = r.carry.Note(r.buf, r.ready, n, ev)
		return n, false
	}
	turned, failed := r.carry.Turn(r.buf[r.ready:r.ready+n], ev)
	if !failed {
		r.buf = slices.Replace(r.buf, r.ready, r.ready+n, turned...)
	}
	return len(turned), failed
}

// hide replaces D's own kv_transfer_params and ec_transfer_params in the event of n bytes by null, and
// returns the new length of the event.
func (r *relay) hide(n int, ev kvparams.Event) int {
	r.handle = r.handle || ev.Handle()
	hidden := ev.HideTransfers(r.buf[r.ready : r.ready+n])
	r.buf = slices.Replace(r.buf, r.ready, r.ready+n, hidden...)
	return len(hidden)
}

// rewriteUsage puts P's cached tokens into the event of n bytes, and returns the new length of the event.
func (r *relay) rewriteUsage(n int) int {
	figures, k := r.api.Figures(r.buf[r.ready:r.ready+n], r.cached)
	for _, f := range figures[:k] {
		var digits [20]byte
		d := strconv.AppendInt(digits[:0], int64(f.Value), 10)
		r.buf = slices.Replace(r.buf, r.ready+f.At, r.ready+f.End, d...)
		n += len(d) - (f.End - f.At)
	}
	return n
}

// keep drops the bytes that were sent and moves the rest to the front.
func (r *relay) keep() {
	r.buf = append(r.buf[:0], r.buf[r.ready:]...)
	r.ready = 0
}

// WriteTo writes the answer to the client. Each Write is one chunk and one flush. After an error,
// fasthttp breaks off the connection without a last chunk.
func (c *completion) WriteTo(w io.Writer) (n int64, err error) {
	_, closes := w.(*netio.UntilClose)
	// fasthttp has just set the deadline from its WriteTimeout.
	out := &clientWriter{
		w: w, chunked: c.d.size < 0 && !closes, conn: c.conn, buffers: &c.s.buffers, stall: c.s.cfg.Timeouts.WriteStall, stop: &c.stop, armed: time.Now(),
	}
	out.heed(out.armed)
	defer func() {
		if p := recover(); p != nil {
			c.s.panicked(p)
			c.failure, err = fault.ErrInternal(), errors.New("panic while relaying")
			if c.d.streamed && !c.d.relay.foreign {
				_ = out.write(c.failure.AppendEvent(nil, c.api, c.d.relay.events), time.Now())
			}
		}
	}()
	switch {
	case c.d.streamed:
		err = c.d.relayEvents(out)
	case c.d.large:
		err = c.d.relayLarge(out)
	default:
		err = c.d.writeWhole(out)
	}
	c.d.relay.sent = out.n
	if err != nil {
		c.conn.Cut()
	}
	return out.n, err
}

// CloseWithError is the last call of fasthttp for the response.
func (c *completion) CloseWithError(err error) error {
	c.finish(err)
	return nil
}

func (d *decodeLeg) writeWhole(out *clientWriter) error {
	for _, seg := range d.out {
		if err := out.write(seg, time.Now()); err != nil {
			return d.clientLeft(err)
		}
	}
	return nil
}

// relayLarge passes on an answer that is too large to be held. Only its framing is checked, which
// alone shows whether the answer was cut. What D says of transfers is hidden on the way.
func (d *decodeLeg) relayLarge(out *clientWriter) error {
	buf, x := d.relay.buf, &d.X
	var hider kvparams.Hider
	defer func() { d.relay.handle, d.relay.usage = hider.Handle(), hider.Usage() }()
	for {
		n := hider.Hide(buf)
		if err := out.write(buf[:n], time.Now()); err != nil {
			return d.clientLeft(err)
		}
		x.Progress(time.Now(), d.c.s.bound().Timeouts.StreamIdle) // the write may have waited for the client
		var err error
		buf, err = x.Fill(append(buf[:0], buf[n:]...))
		d.relay.buf = buf
		if errors.Is(err, io.EOF) {
			hider.Hide(buf)
			if err := out.write(buf, time.Now()); err != nil {
				return d.clientLeft(err)
			}
			d.endAnswer(router.OK, fault.CodeNone)
			return nil
		}
		if err != nil {
			_, err = d.streamBroke(nil, err)
			return err
		}
	}
}

// relayEvents relays the stream. Each wake-up is one read and one write, of complete events only.
func (d *decodeLeg) relayEvents(out *clientWriter) error {
	r := &d.relay
	r.out = out
	for {
		if d.sendEvents() {
			if err := d.X.Follow(&d.c.conn.Socket, d.passOn); err != nil {
				r.cause = err
			}
		}
		broke := r.cause
		switch {
		case r.cause != nil && (!r.done || r.broken):
		case r.lost != nil:
			return d.clientLeft(r.lost)
		case r.broken:
			broke = errBrokenStream
		default:
			d.streamEnded()
			d.endStream()
			return nil
		}
		if goesOn, err := d.streamBroke(out, broke); !goesOn {
			return err
		}
	}
}

// passOn takes what has come from D and sends the complete events in it. It reports whether the stream goes on.
func (d *decodeLeg) passOn() (more bool) {
	d.relay.cause = d.takeEvents()
	return d.sendEvents()
}

// sendEvents writes what may be sent, and reports whether the stream goes on. If the stream has
// failed, the client still gets the complete events that came before the failure. A stream between
// two events holds no buffer.
func (d *decodeLeg) sendEvents() (more bool) {
	c := d.c
	r := &d.relay
	now := time.Now()
	if r.ready > 0 {
		r.lost = r.out.write(r.buf[:r.ready], now)
		begun := now
		now = time.Now()                                     // it may have waited for the client, and D's silence counts from here
		if took := now.Sub(begun); took > time.Millisecond { // less is the write itself
			r.waited += took
		}
		if r.lost != nil {
			return false
		}
		if c.times.first.IsZero() {
			c.times.first = now
		}
		r.keep()
	}
	if r.cause != nil || r.broken || r.done {
		return false
	}
	if len(r.buf) == 0 {
		r.giveBack(&c.s.buffers)
		d.held.Lower(0)
	}
	d.X.Progress(now, c.s.bound().Timeouts.StreamIdle)
	return true
}

// takeEvents reads once from D and classifies the events that came. [DONE] or a broken event is
// the end of the stream, and an end before them is an error.
func (d *decodeLeg) takeEvents() error {
	c := d.c
	r := &d.relay
	if r.pooled == nil {
		r.borrow(&c.s.buffers)
	}
	err := d.fillEvents()
	r.cached = c.cachedTokens()
	r.scan()
	if errors.Is(err, io.EOF) {
		if r.done || r.broken {
			return nil
		}
		return io.ErrUnexpectedEOF
	}
	if err == nil && int64(len(r.buf)) > c.s.cfg.Limits.Answer {
		return upstream.ErrTooLarge
	}
	return err
}

// fillEvents reads once from D. What has come of an event stays in the buffer until all of it has, so it is charged like a
// whole answer: what the buffer takes beyond freeAnswer, before it takes it.
func (d *decodeLeg) fillEvents() (err error) {
	r := &d.relay
	if len(r.buf)+netio.InboxSize > freeAnswer {
		size := cap(r.buf)
		if size-len(r.buf) < netio.InboxSize { // what one read may bring
			size = 2 * max(size, freeAnswer)
		}
		if d.held.Raise(d.c.s.held, d.c.client, int64(size)) != budget.Granted {
			return leg.ErrNoRoom
		}
		if size > cap(r.buf) {
			r.buf = append(make([]byte, 0, size), r.buf...)
		}
	}
	r.buf, err = d.X.Fill(r.buf)
	return err
}

var errBrokenStream = errors.New("stream ended without a finished answer")

// endStream reads D's last chunk, so that the connection to D can be used again.
func (d *decodeLeg) endStream() {
	x := &d.X
	x.SetDeadline(time.Now().Add(time.Second))
	_, _ = x.ReadAll(d.relay.buf[:0], budget.FirstBuffer)
	d.endAnswer(router.OK, fault.CodeNone)
}

// breakPause is the time between the error event of a stream and the end of its connection. The
// streams of fetch (Node, browsers) drop unread data when their transfer breaks.
const breakPause = 50 * time.Millisecond

// streamBroke ends an answer that has begun, unless another D goes on with it. If out is not nil, the client first gets one
// error event. Then the connection breaks off. There is never a [DONE] or a clean end.
func (d *decodeLeg) streamBroke(out *clientWriter, err error) (goesOn bool, _ error) {
	c := d.c
	b := d.Lease.Backend
	f := fault.Fault{Leg: fault.Decode, At: fault.InStream, Cause: d.streamCause(err)}
	if f.Cause == fault.Gone {
		return false, d.clientLeft(err)
	}
	var told *fault.Error
	switch f.Cause {
	case fault.TooLarge:
		told = fault.ErrEventTooLarge()
	case fault.NoRoom:
		told = fault.ErrTooLargeToHold(true)
	}
	failed := c.fail(b, f, told)
	if f.Cause == fault.Timeout {
		c.s.engines.Stalled(b)
	}
	if out != nil {
		switch how := (carrier{c}).carry(f, failed); {
		case how == carriedOn:
			return true, nil
		case how == carriedToEnd:
			return false, nil
		case c.gone():
			return false, d.clientLeft(err)
		}
	}
	if c.failure = failed.Told; f.Cause != fault.Stopped && f.Cause != fault.Overdue { // otherwise xpyd itself cut the stream
		c.failure.Log = err.Error()
	}
	if ended := c.interrupted(); ended != nil { // while another D was to go on
		c.failure = ended
	} else if c.carried != nil && c.overdue() {
		c.failure = fault.ErrDeadline()
	}
	if out != nil && !d.relay.foreign {
		_ = out.write(c.failure.AppendEvent(nil, c.api, d.relay.events), time.Now())
	}
	d.endAnswer(failed.Outcome, failed.Code)
	if out != nil && out.failed == nil {
		time.Sleep(c.s.breakPause)
	}
	return false, c.failure
}

// clientLeft ends a stream whose client is gone or has stopped reading. D aborts when its
// connection closes.
func (d *decodeLeg) clientLeft(cause error) error {
	d.c.leave()
	d.c.failure = fault.ErrGone()
	d.endAnswer(router.ClientGone, fault.CodeNone)
	return cause
}
