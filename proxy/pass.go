package proxy

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"xpyd/budget"
	"xpyd/kvparams"
	"xpyd/netio"
	"xpyd/router"
	"xpyd/upstream"
)

// passOn relays a request that touches no KV blocks to one decode backend. These are tokenize,
// detokenize and version.
func (s *Server) passOn(ctx *fasthttp.RequestCtx, path string) {
	p := s.beginPassing(ctx)
	defer p.end(s)
	_, query := cutQuery(ctx.Request.Header.RequestURI())
	req := &upstream.Request{Method: "GET", Path: path + string(query), Fields: s.appendFields(nil, &ctx.Request.Header)}
	req.ID = requestID(ctx.Request.Header.Peek("X-Request-Id"))
	var parsed kvparams.Request
	if ctx.IsPost() {
		if err := s.readBody(ctx, p.conn, p.client, &p.stop, &p.body); err != nil {
			s.refuse(ctx, err)
			return
		}
		req.Method, req.Body = "POST", [][]byte{p.body.Bytes()}
		if s.router.Snapshot().Mixed(router.Decode) && parsed.Parse(kvparams.Completions, p.body.Bytes()) != nil {
			parsed.Reset() // an engine refuses it
		}
	}
	if err := s.passToPool(ctx, req, p, parsed.Model()); err != nil {
		s.metrics.Error(err.Code)
		s.writeError(ctx, p.client, err)
	}
	ctx.Response.Header.Set("X-Request-Id", req.ID)
	if !ctx.IsPost() {
		closeUnread(ctx) // a GET may carry a body that was not read
	}
}

// passToPool tries the decode backends that serve the model until one takes the request.
func (s *Server) passToPool(ctx *fasthttp.RequestCtx, req *upstream.Request, p *passing, model []byte) *apiError {
	var tried []*router.Backend
	for {
		var lease router.Lease
		want := router.Want{Role: router.Decode, Skip: tried, Model: model, Alone: true}
		if s.router.Snapshot().AcquireFor(want, &lease) != nil {
			f := fault{leg: legPassed, at: atPool, cause: causeNoneUp}
			return f.tell(classify(f).code)
		}
		b := lease.Backend
		failed := s.passTo(ctx, b, req, p)
		if failed == nil {
			lease.Release(router.ClientGone) // it does not show whether completions work
			return nil
		}
		lease.Release(failed.outcome)
		if failed.retry == retryNever {
			return failed.told
		}
		tried = append(tried, b)
	}
}

// passTimeout bounds a request that needs no GPU.
const passTimeout = 30 * time.Second

// passTo sends the request to b and prepares its answer for the client.
func (s *Server) passTo(ctx *fasthttp.RequestCtx, b *router.Backend, req *upstream.Request, p *passing) *failure {
	x := &upstream.Exchange{}
	defer func() {
		if x != nil {
			x.Finish()
		}
	}()
	var buf []byte
	err := x.Do(s.engines.Client(b), req, time.Now().Add(passTimeout), true)
	if upstream.IsDial(err) {
		return s.passBroke(b, atDial, err)
	}
	if err == nil {
		buf, err = s.readHeld(x, nil, p.client, &p.held)
	}
	status := x.Head.Status
	switch {
	case errors.Is(err, upstream.ErrTooLarge) && (x.UntilClose() || x.Head.Length < 0 && !ctx.Request.Header.IsHTTP11()):
		return s.passFailed(b, fault{leg: legPassed, at: atLimit, status: status, cause: tooLarge(err)}, tooLargeToHold(err))
	case errors.Is(err, upstream.ErrTooLarge):
		p.answerLarge(ctx, s, x, buf)
		x = nil // the writer of the answer ends it
		return nil
	case err != nil:
		return s.passBroke(b, atBody, err)
	case status >= 300:
		f := s.refused(legPassed, status)
		told, _ := s.tellRefusal(f, req.ID, b, x, buf)
		return s.passFailed(b, f, told)
	}
	ctx.SetStatusCode(status)
	ctx.Response.Header.SetContentTypeBytes(x.Head.ContentType)
	p.answer(ctx, s, buf)
	return nil
}

func (s *Server) passBroke(b *router.Backend, at progress, err error) *failure {
	f := fault{leg: legPassed, at: at, cause: causeBroke}
	if at == atDial && upstream.IsLocal(err) {
		f.cause = causeDescriptors
	}
	return s.passFailed(b, f, f.tell(classify(f).code))
}

func (s *Server) passFailed(b *router.Backend, f fault, told *apiError) *failure {
	v := classify(f)
	if v.probe {
		s.engines.Suspect(b)
	}
	return &failure{verdict: v, told: told}
}

// passing is a request that touches no KV blocks. It is watched because the process may end while
// its body arrives.
type passing struct {
	conn   *netio.Conn
	client budget.Client
	body   budget.Body
	held   budget.Charge // for the engine's answer
	watch  netio.Watch
	stop   atomic.Bool
}

func (s *Server) beginPassing(ctx *fasthttp.RequestCtx) *passing {
	p := &passing{conn: ctx.Conn().(*netio.Conn)}
	p.client = s.identify(p.conn, &ctx.Request.Header)
	s.watch.Add(&p.watch, p.conn, p)
	return p
}

func (p *passing) end(s *Server) {
	s.watch.Remove(&p.watch)
	p.body.Free(s.bodies)
	p.held.Lower(0)
}

// answer hands the engine's answer to fasthttp, together with the charge for it.
func (p *passing) answer(ctx *fasthttp.RequestCtx, s *Server, buf []byte) {
	if len(buf) <= freeAnswer {
		ctx.Response.SetBodyRaw(buf) // the sockets take the whole answer
		return
	}
	ctx.Response.SetBodyStream(&heldAnswer{s: s, conn: p.conn, buf: buf, held: p.held}, len(buf))
	p.held = budget.Charge{}
}

// answerLarge lets fasthttp send an answer of which only buf has been read. The rest follows as it
// arrives. The writer of the answer ends x.
func (p *passing) answerLarge(ctx *fasthttp.RequestCtx, s *Server, x *upstream.Exchange, buf []byte) {
	ctx.Response.Header.SetContentTypeBytes(x.Head.ContentType)
	ctx.Response.SetBodyStream(&largeAnswer{heldAnswer: heldAnswer{s: s, conn: p.conn, buf: buf, held: p.held}, x: x}, max(int(x.Head.Length), -1))
	p.held = budget.Charge{}
}

// ClientGone does nothing. The end of the body shows that the client has left, and no engine works
// on the request for long.
func (p *passing) ClientGone() {}

func (p *passing) ServerStopping() {
	p.stop.Store(true)
	_ = p.conn.SetReadDeadline(time.Now())
}
