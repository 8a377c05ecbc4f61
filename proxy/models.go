package proxy

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/valyala/fasthttp"

	"xpyd/engines"
	"xpyd/netio"
	"xpyd/router"
)

// serveModels answers with the list of models that both pools serve.
func (s *Server) serveModels(ctx *fasthttp.RequestCtx) {
	a := s.engines.Models.Ask(string(ctx.Request.Header.Peek("Authorization")))
	body, err := s.awaitModels(ctx.Conn().(*netio.Conn), a)
	if err != nil {
		s.metrics.Error(err.Code)
		err.write(ctx)
		if err.Code == codeClientGone {
			ctx.SetConnectionClose()
		}
	} else {
		ctx.SetContentType("application/json")
		ctx.Response.SetBodyRaw(body)
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
func (s *Server) awaitModels(conn *netio.Conn, a *engines.ModelsAnswer) ([]byte, *apiError) {
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
		return nil, shuttingDown()
	}
	return nil, errGone()
}

// modelsResult returns a ready answer as its clients get it.
func modelsResult(a *engines.ModelsAnswer) ([]byte, *apiError) {
	body, err := a.Result()
	var none engines.NoListError
	switch {
	case err == nil:
		return body, nil
	case errors.As(err, &none):
		e := newError(fasthttp.StatusServiceUnavailable, codeDecodeUnavailable, "", none.Error()).retryAfter(1)
		if none.Role == router.Prefill {
			e.Code = codePrefillUnavailable
		}
		return nil, e
	case errors.Is(err, engines.ErrKeyRefused):
		e := newError(fasthttp.StatusUnauthorized, codeInvalidAPIKey, "", err.Error())
		e.Header = [][2]string{{"WWW-Authenticate", "Bearer"}}
		return nil, e
	case errors.Is(err, engines.ErrUnusableList):
		return nil, newError(fasthttp.StatusBadGateway, codeDecodeFailed, "", err.Error())
	}
	return nil, internalError()
}
