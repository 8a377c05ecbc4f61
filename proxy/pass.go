package proxy

import (
	"errors"
	"time"

	"github.com/valyala/fasthttp"

	"xpyd/intake/budget"
	"xpyd/intake/heads"
	"xpyd/intake/limits"
	"xpyd/intake/routes"
	"xpyd/kvparams"
	"xpyd/metrics/trace"
	"xpyd/netio"
	"xpyd/netio/upstream"
	"xpyd/proxy/fault"
	"xpyd/proxy/leg"
	"xpyd/router"
)

// passing is a request that touches no KV blocks, and that one engine answers alone. It is watched,
// because its client may leave and the process may end at any time. Its end gives everything back. That
// is at the end of the handler, or of an answer that fasthttp writes after it.
type passing struct {
	s     *Server
	route routes.Route
	conn  *netio.Conn
	id    string
	start time.Time

	trace  trace.Request
	fields []byte // header lines of the request

	client budget.Client
	use    limits.Use // of the key
	capped bool       // counts against limits.client_in_flight
	body   budget.Body
	bill   int           // tokens: an estimate, until the engine's usage takes its place
	model  string        // a copy for the metrics of the key, as the body may go before the answer ends
	held   budget.Charge // for the engine's answer
	watch  netio.Watch
	interrupts

	req  upstream.Request
	want router.Want
	leg.Attempt
	retrying bool // holds a share of the retry budget
	slotless bool // its answer is read from the backend without a lease
	kept     bool // fasthttp writes the answer after the handler and then calls finish
	failed   *fault.Error
	verdict  router.Outcome // of the backend of the lease, at the end
}

// passTimeout bounds a request that needs no GPU.
const passTimeout = 30 * time.Second

// passOn relays a request to one backend that serves its model.
func (s *Server) passOn(ctx *fasthttp.RequestCtx, r routes.Route, of *limits.Account) {
	p := s.beginPassing(ctx, r, of)
	defer func() {
		if !p.kept {
			p.finish()
		}
	}()
	if p.failed = p.admit(ctx); p.failed != nil {
		s.refuse(ctx, p.failed)
	} else if p.failed = p.run(ctx); p.failed != nil {
		s.metrics.Error(p.failed.Code)
		s.writeError(ctx, p.client, p.failed)
	}
	ctx.Response.Header.Set("X-Request-Id", p.id)
	p.use.Headers(time.Now(), ctx.Response.Header.Set)
	if !ctx.IsPost() {
		closeUnread(ctx) // a GET may carry a body that was not read
	}
}

func (s *Server) beginPassing(ctx *fasthttp.RequestCtx, r routes.Route, of *limits.Account) *passing {
	p := &passing{s: s, route: r, conn: ctx.Conn().(*netio.Conn), start: time.Now(), verdict: router.NoVerdict}
	p.Of = fault.Passed
	h := &ctx.Request.Header
	s.strip(h, of)
	p.id = heads.RequestID(h.Peek("X-Request-Id"))
	_, query := heads.CutQuery(h.RequestURI())
	p.req = upstream.Request{Method: "GET", Path: r.Path + string(query), ID: p.id}
	p.fields = s.forward.Append(nil, h)
	p.beginTrace(h)
	p.use, p.client = limits.Use{Account: of}, s.clientOf(of, p.conn)
	s.watch.Add(&p.watch, p.conn, p)
	return p
}

// admit counts the client, reads the body and finds the model in it.
func (p *passing) admit(ctx *fasthttp.RequestCtx) *fault.Error {
	if err := p.s.begin(&p.use, p.client, p.start); err != nil {
		return err
	}
	p.capped = true
	if !p.route.Light {
		p.s.router.Admitted()
		wait, err := p.s.patience(&ctx.Request.Header)
		if err != nil {
			return err
		}
		p.req.End = p.start.Add(wait)
	}
	p.want = router.Want{Role: router.Decode, Alone: true}
	turn(&p.want, p.use.Account, p.conn, &ctx.Request.Header, 0)
	if !ctx.IsPost() {
		if p.route.Name == routes.Other { // what it reads may be any model's
			return p.s.permit(&p.use, nil)
		}
		return nil
	}
	if p.route.Body != routes.Either || ctx.RequestBodyStream() != nil { // nil: its head announces no body
		if err := p.s.readBody(ctx, p.conn, p.client, &p.stop, &p.body); err != nil {
			return err
		}
	}
	if err := p.findModel(&ctx.Request.Header); err != nil {
		return err
	}
	if err := p.s.permit(&p.use, p.want.Model); err != nil {
		return err
	}
	if !p.route.Light {
		p.want.Tokens = int(float64(len(p.body.Bytes())) / p.s.router.TokenBytes())
		p.bill = limits.Estimate(len(p.body.Bytes()), 0, 0, 0)
		if p.route.Body == routes.Form { // a sound
			p.want.Tokens, p.bill = int(p.s.router.MediaTokens()), limits.SoundTokens
		}
		if err := p.s.charge(&p.use, p.bill, time.Now()); err != nil {
			return err
		}
	}
	p.trace.SetModel(p.want.Model)
	if p.use.Account != nil {
		p.model = string(p.want.Model[:min(len(p.want.Model), loggedModel)])
	}
	p.want.Role = p.s.router.Snapshot().RoleOf(p.want.Model)
	return nil
}

// run tries backends until one takes the request. A request that may have cost an engine goes to one
// more at most.
func (p *passing) run(ctx *fasthttp.RequestCtx) *fault.Error {
	var last *leg.Failure
	for {
		if err := p.Acquire(p.s.router.Snapshot(), p.want, p); err != nil {
			if last != nil && last.Retry == fault.RetryPaid {
				return last.Told
			}
			return p.denied(err)
		}
		call := leg.Call{Trace: p.trace, ID: p.id, Path: p.route.Path, Fields: p.fields, Down: p.down}
		last = p.Run(&call, func(b *router.Backend) *leg.Failure { return p.try(ctx, b) })
		if last == nil {
			return nil
		}
		if !p.mayRetry(last) {
			return last.Told
		}
		p.want.Skip = append(p.want.Skip, p.Lease.Backend)
	}
}

// down ends the exchange with a backend that health checks take down, because it may be frozen.
func (p *passing) down() { p.X.Cut(leg.CutDown, time.Now()) }

func (p *passing) mayRetry(f *leg.Failure) bool {
	if f.Retry != fault.RetryPaid {
		return f.Retry == fault.RetryFree
	}
	if p.retrying || p.endedBy() != fault.NoCause {
		return false
	}
	p.retrying = p.s.router.TakeRetry(p.s.live.Load()+1, false)
	return p.retrying
}

// Line has the request wait no longer than it may take as a whole. Its turn is in want.
func (p *passing) Line(*router.Want) (time.Time, <-chan struct{}) { return p.req.End, p.ending() }

// Waited counts nothing: a relayed request is no leg of a completion.
func (p *passing) Waited(router.Role, time.Duration) {}

// overdue reports that the request as a whole has taken too long.
func (p *passing) overdue() bool { return !p.req.End.IsZero() && !time.Now().Before(p.req.End) }

// denied says why the pool gave no lease.
func (p *passing) denied(err error) *fault.Error {
	f := fault.Fault{Leg: fault.Passed, At: fault.AtPool, Cause: p.endedBy()}
	switch {
	case f.Cause != fault.NoCause:
	case p.overdue():
		f.Cause = fault.Overdue
	case errors.Is(err, router.ErrBusy):
		f.Cause = fault.Full
	default:
		f.Cause = fault.NoneUp
	}
	return f.Tell(fault.Classify(f).Code)
}

// try sends the request to the backend of the lease and prepares its answer for the client.
func (p *passing) try(ctx *fasthttp.RequestCtx, b *router.Backend) *leg.Failure {
	x := &p.X
	limit, silence := p.s.bound().Timeouts.FirstEvent, p.s.bound().Timeouts.StreamIdle
	if p.route.Light {
		limit, silence = passTimeout, passTimeout
	}
	p.req.Fields = p.Fields(p.fields)
	buf, stream, err := p.ask(ctx, b, time.Now().Add(limit))
	if upstream.IsDial(err) {
		return p.broke(err)
	}
	ok, http11 := x.Head.Status < 300, ctx.Request.Header.IsHTTP11()
	switch {
	case errors.Is(err, upstream.ErrTooLarge) && (x.UntilClose() || x.Head.Length < 0 && !http11):
		return p.fail(fault.Fault{At: fault.AtLimit, Status: x.Head.Status, Cause: leg.TooLarge(err)}, tooLargeToHold(err))
	case errors.Is(err, upstream.ErrTooLarge), stream && err == nil:
		p.passLarge(ctx, buf, silence)
		return nil
	case err != nil:
		return p.broke(err)
	case ok && x.Head.Status != fasthttp.StatusOK && x.TooLarge: // what was read of it is gone
		return p.fail(fault.Fault{At: fault.AtLimit, Status: x.Head.Status, Cause: fault.TooLarge}, tooLargeToHold(upstream.ErrTooLarge))
	case !ok:
		f := p.s.refused(fault.Passed, x.Head.Status)
		told, _ := p.s.tellRefusal(f, p.id, b, x, buf)
		return p.fail(f, told)
	}
	p.answerHead(ctx)
	p.pass(ctx, buf)
	return nil
}

// answerHead passes on what the engine's head says of the answer.
func (p *passing) answerHead(ctx *fasthttp.RequestCtx) {
	head := &p.X.Head
	ctx.SetStatusCode(head.Status)
	ctx.Response.Header.SetContentTypeBytes(head.ContentType)
	if len(head.Coding) > 0 {
		ctx.Response.Header.SetBytesV("Content-Encoding", head.Coding)
	}
}

// ask sends the request, and reads as much of the answer as the client has to wait for: all of it if it can
// be held, or the begin of a stream.
func (p *passing) ask(ctx *fasthttp.RequestCtx, b *router.Backend, deadline time.Time) (buf []byte, stream bool, err error) {
	x := &p.X
	err = x.Do(p.s.engines.Client(b), &p.req, deadline, p.route.Repeats)
	stream = err == nil && x.Head.Status < 300 && x.IsEventStream() && ctx.Request.Header.IsHTTP11()
	if stream {
		buf, err = x.FirstBytes()
	}
	if err == nil && len(buf) == 0 {
		buf, err = p.readWhole()
	}
	return buf, stream, err
}

// broke judges a failure of the transport.
func (p *passing) broke(err error) *leg.Failure {
	w := leg.Why{Ended: p.endedBy(), Overdue: p.overdue()}
	if p.X.IsCut(leg.CutDown) {
		w.Cut = fault.Down
	}
	return p.fail(p.Fault(err, w), nil)
}

// fail judges a fault of the backend of the lease. told is for the client, and nil means the usual
// text.
func (p *passing) fail(f fault.Fault, told *fault.Error) *leg.Failure {
	f.Leg, f.Repeats = fault.Passed, p.route.Repeats
	v := fault.Classify(f)
	if told == nil {
		told = f.Tell(v.Code)
	}
	if v.Probe {
		p.s.engines.Suspect(p.Lease.Backend)
	}
	if why := f.Blame(v.Outcome); why != "" {
		p.s.engines.Journal.Failed(p.Lease.Backend, why)
	}
	return &leg.Failure{Verdict: v, Told: told}
}

// pass hands the engine's answer to fasthttp, together with the charge for it. The engine is done.
func (p *passing) pass(ctx *fasthttp.RequestCtx, buf []byte) {
	if p.metered() {
		p.settle(kvparams.Spent(buf))
	}
	if len(buf) <= freeAnswer {
		ctx.Response.SetBodyRaw(buf) // the sockets take the whole answer
		return
	}
	ctx.Response.SetBodyStream(&heldAnswer{s: p.s, conn: p.conn, buf: buf, held: p.held}, len(buf))
	p.held = budget.Charge{}
}

// passLarge lets fasthttp send an answer of which only buf has been read. The rest follows as it
// comes, with silence at most between two pieces.
func (p *passing) passLarge(ctx *fasthttp.RequestCtx, buf []byte, silence time.Duration) {
	p.answerHead(ctx)
	length := max(int(p.X.Head.Length), -1)
	if p.X.IsEventStream() {
		ctx.Response.Header.Set("Cache-Control", "no-store")
		ctx.Response.Header.Set("X-Accel-Buffering", "no")
		length = -1 // fasthttp sends chunks at once, and holds the beginning of anything else back
	}
	if p.route.Light { // the engine has done its work, and no slow client keeps its slot
		p.Lease.Backend.AnswerBegun()
		p.slotless = true
		p.Lease.Release(router.NoVerdict)
	}
	p.body.Free(p.s.bodies) // nothing is tried again, and a stream may last
	p.kept = true
	ctx.Response.SetBodyStream(&largeAnswer{p: p, buf: buf, silence: silence}, length)
}

// cut ends what waits for an engine. The watcher calls it.
func (p *passing) cut(why upstream.Cause) {
	p.X.Cut(why, time.Now())
	p.leaveQueue()
}

// finish gives back what the request holds, and counts it. Success does not show whether completions work,
// so it says nothing about the backend.
func (p *passing) finish() {
	s := p.s
	s.watch.Remove(&p.watch)
	o, code := outcomeOK, fault.CodeNone
	if p.failed != nil {
		o, code = outcomeOf(p.failed, p.kept), p.failed.Code
	} else if p.X.Sent() && !p.route.Light {
		p.X.Complete()
	}
	if p.End(leg.End{Outcome: p.verdict, Code: code, Said: o.String()}); p.slotless {
		p.Lease.Backend.AnswerEnded()
	}
	if p.retrying {
		s.router.ReturnRetry()
	}
	p.body.Free(s.bodies)
	p.held.Lower(0)
	if p.capped {
		s.clients.End(p.client)
	}
	spent := p.bill
	if p.failed != nil && (!p.X.Sent() || !givenUp(p.failed)) {
		spent = 0
	}
	if of := p.use.Account; of != nil && !p.route.Light {
		s.metrics.KeyRequest(of.Name, int(o))
		s.metrics.KeyTokens(of.Name, p.model, p.failed == nil, spent, 0)
	}
	p.use.End(spent)
	s.metrics.Relayed(p.route.Name, int(o), time.Since(p.start))
	p.endTrace(o)
}

// ClientGone ends the work on the request. Engines abort when their client is gone.
func (p *passing) ClientGone() {
	if p.left.CompareAndSwap(0, 1) {
		p.cut(leg.CutGone)
	}
}

// ServerStopping ends the request once the drain time is over.
func (p *passing) ServerStopping() {
	if p.stop.CompareAndSwap(false, true) {
		_ = p.conn.SetReadDeadline(time.Now())
		_ = p.conn.SetWriteDeadline(time.Now().Add(stopGrace))
		p.cut(leg.CutStop)
	}
}
