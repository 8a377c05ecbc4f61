package proxy

import (
	"sync/atomic"

	"github.com/valyala/fasthttp"

	"xpyd/intake/budget"
	"xpyd/intake/gate"
	"xpyd/intake/routes"
	"xpyd/intake/upload"
	"xpyd/kvparams"
	"xpyd/netio"
	"xpyd/proxy/fault"
)

// readBody reads the client's whole request body. stop ends the read once it is set. Whoever sets it
// then moves the connection's read deadline.
func (s *Server) readBody(ctx *fasthttp.RequestCtx, conn *netio.Conn, of budget.Client, stop *atomic.Bool, body *budget.Body) *fault.Error {
	src := ctx.RequestBodyStream()
	if src == nil {
		return fault.NewError(fasthttp.StatusBadRequest, fault.CodeInvalidJSON, "", "request body is empty; send a JSON object")
	}
	h := &ctx.Request.Header
	coding, _ := upload.CodingOf(h.ContentEncoding()) // the gate has checked it
	bounds := s.bound()
	source := upload.Source{Stream: src, Conn: conn, Length: int64(h.ContentLength()), Coding: coding, Client: of, Stop: stop}
	return fault.OfUpload(bounds.uploads.Read(source, body), bounds.Limits.Body)
}

// findModel checks the body as far as xpyd reads it, and finds its model.
func (p *passing) findModel(h *fasthttp.RequestHeader) *fault.Error {
	body := p.body.Bytes()
	p.req.Method, p.req.Body = "POST", [][]byte{body}
	read := kvparams.Model
	if boundary := gate.Boundary(h.ContentType()); p.route.Body != routes.JSON && boundary != "" {
		p.req.Type = gate.FormType(boundary)
		read = func(body []byte) ([]byte, bool, error) { return kvparams.Form(body, boundary) }
	} else if p.route.Body == routes.Either && kvparams.Blank(body) { // a handler that xpyd does not know may need no body
		return nil
	}
	model, urgent, err := read(body)
	if err == nil && urgent && !p.use.Priority() {
		err = kvparams.ErrPriority()
	}
	if err != nil {
		return fault.BadBody(err)
	}
	p.want.Model = model
	return nil
}
