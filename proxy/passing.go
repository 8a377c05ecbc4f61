package proxy

import (
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"xpyd/netio"
	"xpyd/upstream"
)

// passing is a request that touches no KV blocks, while its body arrives: the end of the
// process may come in mid-upload.
type passing struct {
	conn   *netio.Conn
	client clientID
	body   bodyBuffer
	held   charge // for the engine's answer
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
	p.body.free(s)
	p.held.lower(0)
}

// answer hands the engine's answer to fasthttp, with the charge for it.
func (p *passing) answer(ctx *fasthttp.RequestCtx, s *Server, buf []byte) {
	if len(buf) <= freeAnswer {
		ctx.Response.SetBodyRaw(buf) // the sockets take all of it
		return
	}
	ctx.Response.SetBodyStream(&heldAnswer{s: s, conn: p.conn, buf: buf, held: p.held}, len(buf))
	p.held = charge{}
}

// answerLarge has fasthttp send an answer of which buf has been read, and the rest as it
// comes. It ends x.
func (p *passing) answerLarge(ctx *fasthttp.RequestCtx, s *Server, x *upstream.Exchange, buf []byte) {
	ctx.Response.Header.SetContentTypeBytes(x.Head.ContentType)
	ctx.Response.SetBodyStream(&largeAnswer{heldAnswer: heldAnswer{s: s, conn: p.conn, buf: buf, held: p.held}, x: x}, max(int(x.Head.Length), -1))
	p.held = charge{}
}

// ClientGone does nothing: the body's end tells, and no engine is on it for long.
func (p *passing) ClientGone() {}

func (p *passing) ServerStopping() {
	p.stop.Store(true)
	_ = p.conn.SetReadDeadline(time.Now())
}
