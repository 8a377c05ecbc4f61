package proxy

import (
	"strconv"
	"sync/atomic"

	"github.com/valyala/fasthttp"

	"xpyd/budget"
	"xpyd/fault"
	"xpyd/gate"
	"xpyd/kvparams"
	"xpyd/netio"
	"xpyd/routes"
	"xpyd/upload"
)

func (s *Server) tooLarge() *fault.Error {
	return fault.NewError(fasthttp.StatusRequestEntityTooLarge, fault.CodeBodyTooLarge, "", "request body is larger than "+strconv.FormatInt(s.bound().Limits.Body, 10)+" bytes")
}

// readBody reads the client's whole request body. stop ends the read once it is set. Whoever sets it
// then moves the connection's read deadline.
func (s *Server) readBody(ctx *fasthttp.RequestCtx, conn *netio.Conn, of budget.Client, stop *atomic.Bool, body *budget.Body) *fault.Error {
	src := ctx.RequestBodyStream()
	if src == nil {
		return fault.NewError(fasthttp.StatusBadRequest, fault.CodeInvalidJSON, "", "request body is empty; send a JSON object")
	}
	h := &ctx.Request.Header
	coding, _ := upload.CodingOf(h.ContentEncoding()) // the gate has checked it
	return s.notUploaded(s.bound().uploads.Read(upload.Source{Stream: src, Conn: conn, Length: int64(h.ContentLength()), Coding: coding, Client: of, Stop: stop}, body))
}

// notUploaded returns what a client is told whose body was not read to its end, or nil if it was.
func (s *Server) notUploaded(f upload.Fault) *fault.Error {
	switch f {
	case upload.None:
		return nil
	case upload.Stopped:
		return fault.ErrStopped()
	case upload.Late:
		return fault.NewError(fasthttp.StatusRequestTimeout, fault.CodeRequestTimeout, "", "request body did not arrive in time")
	case upload.Gone:
		return fault.ErrGone()
	case upload.Miscoded:
		return fault.NewError(fasthttp.StatusBadRequest, fault.CodeInvalidEncoding, "", "request body is not what its Content-Encoding says, or is cut short")
	case upload.WideWindow:
		return fault.NewError(fasthttp.StatusBadRequest, fault.CodeInvalidEncoding, "", "request body needs a zstd window above 8 MiB; compress it at a level up to 19, without --long")
	case upload.TooLarge:
		return s.tooLarge()
	case upload.Spent:
		return fault.NewError(fasthttp.StatusServiceUnavailable, fault.CodeOverloaded, "", "too many request bytes are being held; try again").After(1)
	case upload.OverShare:
		return fault.NewError(fasthttp.StatusTooManyRequests, fault.CodeClientLimit, "", "the request bodies of this client hold limits.client_share of limits.body_budget already; try again").After(1)
	}
	return fault.NewError(fasthttp.StatusBadRequest, fault.CodeInvalidHTTP, "", "malformed request body framing")
}

// findModel checks the body as far as xpyd reads it, and finds its model.
func (p *passing) findModel(h *fasthttp.RequestHeader) *fault.Error {
	body := p.body.Bytes()
	p.req.Method, p.req.Body = "POST", [][]byte{body}
	if boundary := gate.Boundary(h.ContentType()); p.route.Body != routes.JSON && boundary != "" {
		if err := kvparams.CheckForm(body, boundary); err != nil {
			return fault.BadBody(err)
		}
		p.req.Type = h.ContentType()
		if p.want.Model = kvparams.FormModel(body, boundary); !kvparams.OneModel(body) {
			p.want.Model = nil // no key with models of its own may send that
		}
	} else if p.route.Body != routes.Either || !kvparams.Blank(body) { // a handler that xpyd does not know may need no body
		model, urgent, err := kvparams.Model(body)
		if err == nil && urgent && !p.use.Priority() {
			err = kvparams.ErrPriority()
		}
		if err != nil {
			return fault.BadBody(err)
		}
		p.want.Model = model
	}
	return nil
}
