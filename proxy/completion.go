package proxy

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"xpyd/engines/handoff"
	"xpyd/intake/budget"
	"xpyd/intake/heads"
	"xpyd/intake/limits"
	"xpyd/kvparams"
	"xpyd/metrics/trace"
	"xpyd/netio"
	"xpyd/proxy/encode"
	"xpyd/proxy/fault"
	"xpyd/proxy/leg"
	"xpyd/router"
)

// maxRounds bounds how often prefill and decode are started for one request.
const maxRounds = 2

// completion is one request from its head to its last byte. Its steps, in order:
//
//	admit      this file: counts the client, reads and scans the body
//	plan       plan.go: split or not, and a slot of a decode backend
//	encode     encode.go, package encode: the legs for images and audio, if there are any
//	prefill    prefill.go: the first leg; package handoff: the handle that it gave
//	decode     decode.go: the second leg, until the client may have its answer
//	relay      relay.go, writer.go: the answer, as it comes
//	finish     finish.go: the one end, with the metrics and the log line
//
// Each leg is made of attempts (package leg), one for each engine that it asks. cuts.go has the events that may cut them
// meanwhile. A leg that fails reports a fault (faults.go), and fault.Classify judges it.
//
// The goroutine of the client's connection owns the completion and carries it through both legs. The
// watcher only reports that the client has left or that the process ends. Completions are pooled, so
// nothing of one outlives finish, and what goes on in the background has nothing of it.
type completion struct {
	writesItself
	s     *Server
	watch netio.Watch
	incoming
	interrupts
	choice
	tries

	// encoding is the encode stage; nil unless the request has had one.
	encoding atomic.Pointer[encode.Run]
	p        prefillLeg
	d        decodeLeg
	handoff  handoff.Handoff
	carried  *carried // nil until a stream may be carried on

	failure *fault.Error
	erred   bool // the client gets failure in place of an answer
	times   times
	trace   trace.Request
}

// incoming is what came with the request, and whose it is.
type incoming struct {
	ctx     *fasthttp.RequestCtx // until the handler returns
	conn    *netio.Conn
	api     kvparams.API
	asks    kvparams.API  // that of the legs: the same, or that of completions once the stream was carried on
	id      string        // the client's or a fresh one; the client gets it back
	target  string        // the path of both legs, with the client's query
	fields  []byte        // header lines for both legs
	client  budget.Client // counted while the completion lives
	use     limits.Use    // of the key
	model   []byte        // a copy, because the body is gone before xpyd writes the log line
	body    budget.Body
	*asking     // nil once the completion sends no more requests to backends
	tokens  int // tokens of the prompt; an estimate unless the client sent ids
	bill    bill
}

// choice is the way of the completion through the pools.
type choice struct {
	snap     *router.Snapshot
	speaks   atomic.Pointer[router.Backend] // the D of this round; the watcher reads it too
	path     path
	reason   fault.Reason
	chosen   bool // choosePath has run
	degraded bool // counts against decode_only.max_share, whichever D has it
}

// tries is what the completion has tried so far.
type tries struct {
	round    round
	legID    string // of the last pair of legs, the same on both
	reached  bool   // a backend has had a byte of it, so the path is fixed and counts
	retrying bool   // holds a share of the retry budget
	moved    bool   // a leg failed because health checks took a backend down, so the next retry is free
	// broken counts the engines that broke off over the request. See deadly.
	broken atomic.Int32
}

// asking is what only the requests of the legs need. A completion has it until its answer begins, or until a
// prefill leg beside decode's has ended.
type asking struct {
	req          kvparams.Request
	pSegs, dSegs kvparams.Segments // the bodies of both legs
}

// round is what belongs to one round: a prefill and a decode. The next one begins with a new value.
type round struct {
	n        int  // from 1; 0 before the first
	prefills int  // P that have failed in it, without those that refused the connection
	again    bool // a P has failed in it, and another was asked
	suspect  bool // a D failed with the handle of the last round's P, which is in tried for this
}

// times are the moments from which the log and the metrics are made.
type times struct {
	start     time.Time
	end       time.Time     // the completion ends by then, whatever it is doing
	prefilled time.Time     // P's answer was complete
	handed    time.Time     // D's request was written
	first     time.Time     // the first byte of a token was written to the client
	prefill   time.Duration // of the last prefill leg
	queued    time.Duration // spent in queues, in all
	dequeued  time.Time     // the last of these waits ended
}

// complete serves one completion. Everything before the client's first byte happens in here. After
// that fasthttp calls WriteTo for the bytes and CloseWithError at the end.
func (s *Server) complete(ctx *fasthttp.RequestCtx, api kvparams.API, of *limits.Account) {
	c := s.idle.completions.Get().(*completion)
	c.begin(ctx, api, of)
	defer func() {
		if p := recover(); p != nil {
			c.failure = fault.ErrInternal()
			c.finish(nil)
			panic(p) // handle answers, counts and logs it
		}
	}()
	s.watch.Add(&c.watch, c.conn, c) // before the body, because the process may end during the upload
	err := c.admit()
	if err == nil {
		if err = c.interrupted(); err == nil {
			err = c.run()
		}
	}
	if err != nil || c.gone() { // a leg may have been held after it left, and it may have closed only its write side
		reply{c}.answerError(err)
		return
	}
	reply{c}.answer()
}

// begin sets up a completion from the pool for a request. It finds nothing of another one there, see clear.
func (c *completion) begin(ctx *fasthttp.RequestCtx, api kvparams.API, of *limits.Account) {
	c.s.live.Add(1)
	c.ctx, c.api, c.asks = ctx, api, api
	c.conn = ctx.Conn().(*netio.Conn)
	now := time.Now()
	c.times = times{start: now, end: now.Add(c.s.bound().Timeouts.Request)}
	c.id = heads.RequestID(ctx.Request.Header.Peek("X-Request-Id"))
	c.target = api.Path()
	if _, query := heads.CutQuery(ctx.Request.Header.RequestURI()); query != nil {
		c.target += string(query)
	}
	c.use, c.client = limits.Use{Account: of}, c.s.clientOf(of, c.conn)
	c.asking = c.s.idle.asking.Get().(*asking)
	c.req.Deny = c.s.strip(&ctx.Request.Header, of)
	c.req.FindMedia = c.s.router.Snapshot().Pooled(router.Encode)
	c.fields = c.s.forward.Append(c.fields, &ctx.Request.Header)
	c.beginTrace()
	c.handoff = c.s.handoffs.Handoff()
}

// admit counts the client, then reads and scans the body. No backend knows of the request so far.
func (c *completion) admit() *fault.Error {
	if err := c.s.begin(&c.use, c.client, c.times.start); err != nil {
		c.client = budget.Client{}
		return err
	}
	wait, err := c.s.patience(&c.ctx.Request.Header)
	if err != nil {
		return err
	}
	c.times.end = c.times.start.Add(wait)
	if err := c.s.readBody(c.ctx, c.conn, c.client, &c.stop, &c.body); err != nil {
		return err
	}
	c.s.strip(&c.ctx.Request.Header, c.use.Account) // again, as fasthttp adds the fields behind a chunked body
	if err := c.req.Parse(c.api, c.body.Bytes()); err != nil {
		return fault.BadBody(err)
	}
	model := c.req.Model()
	c.model = append(c.model, model[:min(len(model), loggedModel)]...)
	c.trace.SetModel(c.model)
	if err := c.s.permit(&c.use, model); err != nil {
		return err
	}
	if err := c.saltPrompt(); err != nil {
		return err
	}
	c.tokens, _ = c.req.PromptTokens(c.s.router.TokenBytes(), c.s.router.MediaTokens())
	c.bill = billOf(&c.req)
	return c.s.charge(&c.use, c.bill.prompt, time.Now())
}

// loggedModel is how much of a model's name the log and the metrics show, in bytes. The client gave it.
const loggedModel = 256

// run tries rounds of prefill and decode until one is answered or nothing more may be tried. nil: an answer is ready.
func (c *completion) run() *fault.Error {
	if err := c.awaitOrphans(); err != nil {
		return err
	}
	if err := c.plan(); err != nil {
		return err
	}
	if c.s.cfg.Carry.Max > 0 {
		if c.carried == nil {
			c.carried = new(carried)
		}
		c.carried.Begin(&c.s.carries, &c.req, heads.RefusesCarry(&c.ctx.Request.Header))
		c.carried.place.priority = c.req.Priority()
	}
	for {
		c.round = round{n: c.round.n + 1}
		f := c.tryRound()
		if f == nil {
			return nil
		}
		if f.Retry == fault.RetryNever || c.round.n == maxRounds || !c.mayRetry(f.Asked, retryPatience) {
			if f.Retry != fault.RetryNever && c.overdue() {
				return fault.ErrDeadline()
			}
			return c.nameBroken(f.Told)
		}
		c.s.failedLog.Warn().Str("request_id", c.id).Str("leg_id", c.legID).Stringer("code", f.Code).Str("error", f.Told.Why()).
			Str("prefill", c.p.Lease.Backend.Name()).Str("decode", c.d.Lease.Backend.Name()).Msg("round failed, another one begins")
		c.s.metrics.RoundRetried()
		if gone := c.interrupted(); gone != nil {
			return gone
		}
	}
}

// tryRound is one prefill and one decode, or several if they begin together and P fails first. It reserves decode first:
// what cannot be decoded is never prefilled. A D that was not asked goes back when the round ends.
func (c *completion) tryRound() (failed *leg.Failure) {
	defer func() {
		if failed != nil {
			c.d.Free()
		}
	}()
	for {
		c.p.X.Forget() // a leg that does not begin now must not count as sent
		c.d.X.Forget()
		if err := c.d.reserve(nil); err != nil {
			return leg.Ends(err)
		}
		c.choosePath()
		c.legID = c.id + "-" + heads.RandomHex(8)
		c.times.handed = time.Time{}
		if ended := c.encode(); ended != nil {
			return leg.Ends(ended)
		}
		if c.path == pathDisaggregated && c.dialect().Concurrent() {
			f, again := pair{c}.run()
			if !again {
				return f
			}
			continue
		}
		if c.path == pathDisaggregated {
			if f := c.p.prefill(); f != nil {
				return f
			}
		}
		return c.d.decode()
	}
}

// reply is a completion whose handler answers the client, with an error or with the head of D's answer.
type reply struct{ *completion }

// answerError ends a completion that has nothing for the client but an error.
func (c reply) answerError(err *fault.Error) {
	if c.gone() {
		err = fault.ErrGone()
	}
	c.failure, c.erred = err, true
	c.s.writeError(c.ctx, c.client, err) // also to a client that is gone, because it may have closed only its write side
	c.commonHeaders()
	// The rest of a body that is read in part would pass for a request. What follows a body that
	// is not JSON cannot be trusted to be a request either.
	whole := c.state.get() == stateCommitted || c.body.Whole() // a prefill leg beside decode's may just now give the body back
	if !whole || err.Code == fault.CodeClientGone || c.state.get() == stateAdmitted && err.Status < 500 {
		c.ctx.SetConnectionClose()
	}
	if !whole {
		leaveUnread(c.ctx)
	}
	c.finish(nil)
}

// answer hands the response to fasthttp, which calls WriteTo and CloseWithError after the handler has returned.
func (c reply) answer() {
	c.ctx.SetStatusCode(fasthttp.StatusOK)
	h := &c.ctx.Response.Header
	h.SetContentTypeBytes(c.d.X.Head.ContentType)
	h.Set("Cache-Control", "no-store")
	c.commonHeaders()
	if c.d.streamed {
		h.Set("X-Accel-Buffering", "no")
	}
	if c.d.size < 0 && !c.ctx.Request.Header.IsHTTP11() {
		c.answerUntilClose()
		return
	}
	c.ctx.Response.SetBodyStream(c, c.d.size)
	c.dropHead()
}

// answerUntilClose answers an HTTP/1.0 client if the answer has no known length. fasthttp would
// write chunks, so the answer is written here, inside the handler, and fasthttp writes nothing.
//
// Such a client takes every end of the connection except a reset for the end of the answer. So
// until the whole answer has been written, every close resets the connection. The end of this
// process is such a close too.
func (c reply) answerUntilClose() {
	ctx, conn := c.ctx, c.conn
	c.dropHead()
	c.s.cors.Mark(ctx) // nothing follows the head that is taken below
	ctx.SetConnectionClose()
	ctx.HijackSetNoResponse(true)
	ctx.Hijack(func(net.Conn) {}) // fasthttp closes the connection after this function
	err := conn.SetLinger(0)
	if err == nil {
		_ = conn.SetWriteDeadline(time.Now().Add(c.s.cfg.Timeouts.WriteStall + rearm))
		_, err = c.WriteTo(&netio.UntilClose{Conn: conn, Head: ctx.Response.Header.Header()})
	}
	_ = c.CloseWithError(err) // it returns c to the pool
	if err == nil {
		err = conn.SetLinger(-1)
	}
	if err != nil {
		_ = conn.Close()
	}
}

func (c reply) commonHeaders() {
	h := &c.ctx.Response.Header
	h.Set("X-Request-Id", c.id)
	c.use.Headers(time.Now(), h.Set)
	if c.api == kvparams.Messages {
		h.Set("Request-Id", c.id) // where Anthropic's clients look for it
	}
	if c.reached {
		h.Set("X-Xpyd-Path", c.path.String())
		h.Set("X-Xpyd-Reason", c.reason.String())
		c.tellLegs(h)
	}
}

// noteSent notes what a leg that has ended leaves behind, if its engine has had a byte of it.
func (c *completion) noteSent(sent bool) {
	if sent {
		c.reached = true
		c.encoding.Load().Forget()
	}
}

// overdue reports that the request as a whole has taken too long.
func (c *completion) overdue() bool { return !time.Now().Before(c.times.end) }

// newCompletion makes a completion for the pool. It binds once the functions that the router calls.
func (s *Server) newCompletion() any {
	c := &completion{s: s}
	c.p = prefillLeg{c: c, Attempt: &leg.Attempt{Of: fault.Prefill, Meter: s.metrics}}
	c.d = decodeLeg{c: c, Attempt: &leg.Attempt{Of: fault.Decode, Meter: s.metrics}}
	c.p.onDown, c.d.onDown, c.d.onSourceDown = c.p.down, c.d.down, c.d.sourceDown
	return c
}
