package proxy

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"xpyd/budget"
	"xpyd/handoff"
	"xpyd/kvparams"
	"xpyd/netio"
	"xpyd/router"
)

// maxRounds bounds how often prefill and decode are started for one request.
const maxRounds = 2

// state is where a completion stands. Each exit of each state settles three things:
// the leases, the handle and the client.
type state uint8

const (
	stateAdmitted   state = iota // nothing of it has reached a backend
	statePrefilling              // P works; there is still no handle
	stateHandedOff               // a handle is held that no decode backend has seen
	stateDecoding                // D has the request; nothing has reached the client
	stateCommitted               // the client has the first byte: nothing can be tried again
	states
)

// String is the phase that xpyd_client_gone_total and the log name.
func (s state) String() string {
	return [states]string{"admitted", "prefill", "handoff", "decode", "stream"}[s]
}

// atomicState is written by the owner and read by the watcher too.
type atomicState struct{ v atomic.Uint32 }

func (a *atomicState) set(s state) { a.v.Store(uint32(s)) }
func (a *atomicState) get() state  { return state(a.v.Load()) }

// completion is one request from its head to its last byte. What happens to it, in order:
//
//	admit      this file: the client is counted, its body read and scanned
//	plan       plan.go: split or not; reserve.go: a slot of a decode backend
//	prefill    prefill.go: the first leg; handoff: the handle that it gave
//	decode     decode.go: the second leg, up to what the client may have
//	relay      relay.go, writer.go: the answer, as it comes
//	finish     finish.go: the one end, of metrics and log line too
//
// What cuts its legs meanwhile stands in cuts.go.
// A leg that fails says so as a fault (faults.go), which classify judges (failure.go).
//
// The goroutine of the client's connection owns it and carries it through both legs; the watcher
// only reports that the client has left. It is pooled: nothing of it outlives finish.
type completion struct {
	s    *Server
	ctx  *fasthttp.RequestCtx // until the handler returns
	conn *netio.Conn
	api  kvparams.API

	watch netio.Watch
	left  atomic.Uint32 // the state the client left in, plus 1; 0 while it stays
	stop  atomic.Bool   // the process ends now
	state atomicState
	// broken counts the engines that broke off over it: see deadly.
	broken atomic.Int32

	id     string // the client's, or a fresh one; what the client gets back
	legID  string // the attempt's, the same on both legs
	target string // of both legs: the path, and the client's query
	fields []byte // header lines for both legs

	client   budget.Client // counted while the completion lives
	body     budget.Body
	req      kvparams.Request
	tokens   int // of the prompt; estimated, unless they came as ids
	snap     *router.Snapshot
	path     path
	reason   reason
	round    int
	chosen   bool // choosePath has been asked
	reached  bool // a backend has had a byte of it: the path is taken, and counted
	degraded bool // counts against decode_only.max_share, whichever D it is on
	retrying bool // holds a share of the retry budget
	moved    bool // a leg failed as health checks took a backend down: the next retry is free
	failure  *apiError

	onPrefillDown, onDecodeDown, onSourceDown func()

	queued sync.Mutex // guards done and woken
	done   chan struct{}
	woken  bool

	p       prefillLeg
	d       decodeLeg
	handoff handoff.Handoff
	times   times
}

// times are the moments that log and metrics are made of.
type times struct {
	start     time.Time
	end       time.Time     // no later than this, whatever it is doing
	prefilled time.Time     // P's answer complete
	handed    time.Time     // D's request written
	first     time.Time     // first byte of a token written to the client
	prefill   time.Duration // of the last prefill leg
}

// complete serves one completion. Everything before the client's first byte happens
// in here; then fasthttp calls WriteTo for the bytes and CloseWithError at the end.
func (s *Server) complete(ctx *fasthttp.RequestCtx, api kvparams.API) {
	c := s.pool.Get().(*completion)
	c.begin(ctx, api)
	defer func() {
		if p := recover(); p != nil {
			c.failure = internalError()
			c.finish(nil)
			panic(p) // handle answers, counts and logs
		}
	}()
	s.watch.Add(&c.watch, c.conn, c) // from here on: the end of the process may come in mid-upload
	err := c.admit()
	if err == nil {
		if err = c.interrupted(); err == nil {
			err = c.run()
		}
	}
	if err != nil {
		c.answerError(err)
		return
	}
	c.answer()
}

// begin takes the completion out of the pool for a request.
func (c *completion) begin(ctx *fasthttp.RequestCtx, api kvparams.API) {
	c.s.live.Add(1)
	c.ctx, c.api = ctx, api
	c.conn = ctx.Conn().(*netio.Conn)
	now := time.Now()
	c.times = times{start: now, end: now.Add(c.s.cfg.Timeouts.Request)}
	c.id = requestID(ctx.Request.Header.Peek("X-Request-Id"))
	c.target = api.Path()
	if _, query := cutQuery(ctx.Request.Header.RequestURI()); query != nil {
		c.target += string(query)
	}
	c.fields = c.s.appendFields(c.fields[:0], &ctx.Request.Header)
	c.req.Deny = c.s.cfg.DenyFields
	c.handoff = c.s.handoffs.Handoff()
	c.state.set(stateAdmitted)
	c.degraded, c.chosen, c.reached, c.moved = false, false, false, false
	c.broken.Store(0)
	c.legID, c.path, c.reason, c.round = "", pathDisaggregated, reasonNone, 0
	c.failure = nil
}

// admit counts the client, reads and scans the body. No backend knows of the request at this point.
func (c *completion) admit() *apiError {
	if c.client = c.s.identify(c.conn, &c.ctx.Request.Header); !c.s.clients.Begin(c.client) {
		c.client = budget.Client{}
		return newError(fasthttp.StatusTooManyRequests, codeClientLimit, "", "this client has limits.client_in_flight completions already; wait for one to end").retryAfter(1)
	}
	if err := c.s.readBody(c.ctx, c.conn, c.client, &c.stop, &c.body); err != nil {
		return err
	}
	if err := c.req.Parse(c.api, c.body.Bytes()); err != nil {
		var e *kvparams.Error
		if !errors.As(err, &e) {
			panic("BUG: kvparams error of another type")
		}
		return newError(fasthttp.StatusBadRequest, parseCode(e), e.Param, e.Message).noRetry()
	}
	return nil
}

// run reserves decode and then tries rounds of prefill and decode until one is
// answered. nil means that an answer stands ready for the client.
func (c *completion) run() *apiError {
	c.plan()
	for c.round = 1; ; c.round++ {
		f := c.tryRound()
		if f == nil {
			return nil
		}
		if f.retry == retryNever || c.round == maxRounds || !c.mayRetry(f.asked) {
			if f.retry != retryNever && c.overdue() {
				return deadlineError()
			}
			return c.nameBroken(f.told)
		}
		c.s.failedLog.Warn().Str("request_id", c.id).Str("leg_id", c.legID).Stringer("code", f.code).Str("error", f.told.why()).
			Str("prefill", urlOf(c.p.lease.Backend)).Str("decode", urlOf(c.d.lease.Backend)).Msg("round failed, another one begins")
		if gone := c.interrupted(); gone != nil {
			return gone
		}
	}
}

// tryRound is one prefill and one decode. Decode is reserved first: what cannot be
// decoded is never prefilled.
func (c *completion) tryRound() *failure {
	if err := c.reserveDecode(); err != nil {
		return ends(err)
	}
	c.choosePath()
	c.legID = c.id + "-" + randomHex(8)
	c.times.handed = time.Time{}
	if c.path == pathDisaggregated {
		if c.s.dialect.Concurrent() {
			return c.bothLegs()
		}
		if f := c.prefill(); f != nil {
			c.d.lease.Release(router.ClientGone)
			return f
		}
	}
	return c.decode()
}

// answerError ends a completion that has nothing for the client but an error.
func (c *completion) answerError(err *apiError) {
	if c.gone() {
		err = errGone()
	}
	c.failure = err
	c.s.writeError(c.ctx, c.client, err) // also to a client that is gone: it may have closed its write side only
	c.commonHeaders()
	// Half a body would be read as a request, and what followed a body that is no JSON
	// cannot be trusted to be one.
	if !c.body.Whole() || err.Code == codeClientGone || c.state.get() == stateAdmitted && err.Status < 500 {
		c.ctx.SetConnectionClose()
	}
	if !c.body.Whole() {
		leaveUnread(c.ctx)
	}
	c.finish(nil)
}

// answer hands the response to fasthttp, which calls WriteTo and CloseWithError after
// the handler has returned.
func (c *completion) answer() {
	c.ctx.SetStatusCode(fasthttp.StatusOK)
	h := &c.ctx.Response.Header
	h.SetContentTypeBytes(c.d.x.Head.ContentType)
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
	c.ctx = nil
}

func (c *completion) commonHeaders() {
	h := &c.ctx.Response.Header
	h.Set("X-Request-Id", c.id)
	if c.reached {
		h.Set("X-Xpyd-Path", c.path.String())
		h.Set("X-Xpyd-Reason", c.reason.String())
	}
}

// overdue reports that the request as a whole has taken too long.
func (c *completion) overdue() bool { return !time.Now().Before(c.times.end) }

func urlOf(b *router.Backend) string {
	if b == nil {
		return ""
	}
	return b.URL
}

// newCompletion makes one for the pool. What the router calls is bound once.
func newCompletion(s *Server) *completion {
	c := &completion{s: s}
	c.onPrefillDown, c.onDecodeDown, c.onSourceDown = c.prefillDown, c.decodeDown, c.sourceDown
	return c
}
