package proxy

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/valyala/fasthttp"

	"xpyd/engines"
	"xpyd/intake/limits"
	"xpyd/netio"
	"xpyd/proxy/fault"
)

// serveModels answers with the models that decode engines serve and that the key may use.
func (s *Server) serveModels(ctx *fasthttp.RequestCtx, of *limits.Account) {
	a := s.engines.Models.Ask(string(ctx.Request.Header.Peek("Authorization")))
	body, err := s.awaitModels(ctx.Conn().(*netio.Conn), a)
	if err != nil {
		s.metrics.Error(err.Code)
		err.Write(ctx)
		if err.Code == fault.CodeClientGone {
			ctx.SetConnectionClose()
		}
	} else {
		ctx.SetContentType("application/json")
		ctx.Response.SetBodyRaw(of.Narrow(body))
	}
	closeUnread(ctx)
}

// modelWait is a client that waits for an answer.
type modelWait struct {
	watch netio.Watch
	once  sync.Once
	over  chan struct{} // closed when it must stop waiting
	stop  atomic.Bool   // it must stop because the process ends
}

func (w *modelWait) ClientGone() { w.once.Do(func() { close(w.over) }) }

func (w *modelWait) ServerStopping() {
	w.stop.Store(true)
	w.ClientGone()
}

// awaitModels waits until the answer is ready, its client has left or the process ends.
func (s *Server) awaitModels(conn *netio.Conn, a *engines.ModelsAnswer) ([]byte, *fault.Error) {
	defer a.Left()
	select {
	case <-a.Done():
		return modelsResult(a)
	default:
	}
	w := modelWait{over: make(chan struct{})}
	s.watch.Add(&w.watch, conn, &w)
	defer s.watch.Remove(&w.watch)
	select {
	case <-a.Done():
		return modelsResult(a)
	case <-w.over:
	}
	if w.stop.Load() {
		return nil, fault.ErrStopped()
	}
	return nil, fault.ErrGone()
}

// modelsResult returns a ready answer as its clients get it.
func modelsResult(a *engines.ModelsAnswer) ([]byte, *fault.Error) {
	body, err := a.Result()
	switch {
	case err == nil:
		return body, nil
	case errors.Is(err, engines.ErrNoList):
		return nil, fault.NewError(fasthttp.StatusServiceUnavailable, fault.CodeDecodeUnavailable, "", err.Error()).After(1)
	case errors.Is(err, engines.ErrKeyRefused):
		e := fault.NewError(fasthttp.StatusUnauthorized, fault.CodeInvalidAPIKey, "", err.Error())
		e.Header = [][2]string{{"WWW-Authenticate", "Bearer"}}
		return nil, e
	case errors.Is(err, engines.ErrUnusableList):
		return nil, fault.NewError(fasthttp.StatusBadGateway, fault.CodeDecodeFailed, "", err.Error())
	}
	return nil, fault.ErrInternal()
}
