package proxy

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"xpyd/gate"
	"xpyd/netio"
)

// clientReadBuffer bounds a request head; a larger one is answered 431.
const clientReadBuffer = 12 << 10

// clientWriteBuffer takes an answer's head with a short body, or the first events; what is
// larger takes a second write. An open stream holds it.
const clientWriteBuffer = 3 << 9

func (s *Server) newHTTP() *fasthttp.Server {
	return &fasthttp.Server{
		Handler:        s.handle,
		ErrorHandler:   s.frameError,
		HeaderReceived: knowExpect,
		ExpectHandler:  s.expect,
		// The handler runs after the head, so that keys, limits and the byte budget are
		// settled before body memory is taken, and the budget follows the bytes that
		// arrive in place of the length that a client announces.
		StreamRequestBody:            true,
		MaxRequestBodySize:           1,
		DisablePreParseMultipartForm: true,
		NoDefaultServerHeader:        true,
		NoDefaultContentType:         true,
		ReadBufferSize:               clientReadBuffer,
		WriteBufferSize:              clientWriteBuffer,
		ReadTimeout:                  s.cfg.Timeouts.Header,
		IdleTimeout:                  s.cfg.Timeouts.Idle,
		WriteTimeout:                 s.cfg.Timeouts.WriteStall + rearm, // clientWriter moves it on
		CloseOnShutdown:              true,
		// Flushes each response although a pipelined request waits, and lets a connection
		// that never sent anything go without buffers.
		ReduceMemoryUsage: true,
		Logger:            quietLogger{},
	}
}

// quietLogger drops fasthttp's own lines: they may hold request bytes.
type quietLogger struct{}

func (quietLogger) Printf(string, ...any) {}

// Serve accepts clients on ln until Retire or Shutdown. It is called once.
func (s *Server) Serve(ln net.Listener) error {
	l, err := netio.NewListener(ln, netio.Terms{
		PerIP: s.cfg.Limits.ConnectionsPerIP, WriteStall: s.cfg.Timeouts.WriteStall,
		TurnedAway: s.metrics.TurnedAway, NoRoom: noDescriptorAnswer(), Watcher: s.watch, Lingering: s.lingering,
	})
	if err != nil {
		return err
	}
	p := &port{Listener: l, ended: make(chan struct{})}
	s.accepting.Store(p)
	defer close(p.ended)
	return s.http.Serve(l)
}

// port is a listener that clients are accepted on.
type port struct {
	*netio.Listener
	ended chan struct{} // closed when the last Accept has returned
}

// frameError answers a request that fasthttp could not read.
func (s *Server) frameError(ctx *fasthttp.RequestCtx, err error) {
	fault := gateError(gate.FrameError(err))
	s.refuse(ctx, fault)
	if conn, ok := ctx.Conn().(*netio.Conn); ok && fault.Status != fasthttp.StatusRequestTimeout {
		conn.LeaveUnread() // whatever comes after a head that is none
	}
}

// expect decides about 100-continue before the client sends its body.
func (s *Server) expect(ctx *fasthttp.RequestCtx) int {
	if _, err := s.admitHead(ctx); err != nil {
		s.refuse(ctx, err)
		return err.Status
	}
	return fasthttp.StatusContinue
}

// refuse answers with an error of the gate and closes the connection: what follows on
// it cannot be trusted, or has not been read.
func (s *Server) refuse(ctx *fasthttp.RequestCtx, err *apiError) {
	s.metrics.Error(err.Code)
	err.write(ctx)
	ctx.SetConnectionClose()
	leaveUnread(ctx)
}

// leaveUnread has the request's connection, which the caller closes after the answer, linger if
// more of the request may be on its way.
func leaveUnread(ctx *fasthttp.RequestCtx) {
	const chunked = -1 // what ContentLength answers for a chunked body
	n := ctx.Request.Header.ContentLength()
	if conn, ok := ctx.Conn().(*netio.Conn); ok && (n > 0 || n == chunked) {
		conn.LeaveUnread()
	}
}

// outOfDescriptors is the refusal where the process, not a backend, is at its limit.
func outOfDescriptors() *apiError {
	return newError(fasthttp.StatusServiceUnavailable, codeOverloaded, "", "xpyd has no file descriptor left; try again").retryAfter(1)
}

// noDescriptorAnswer is what a client gets for whom there is no descriptor, without a word of
// its request.
func noDescriptorAnswer() []byte {
	e := outOfDescriptors()
	body := e.appendBody(nil)
	return []byte("HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: " +
		strconv.Itoa(e.RetryAfter) + "\r\nConnection: close\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + string(body))
}

// Drain makes the server unready, while it still serves whoever comes; each answer
// closes its connection.
func (s *Server) Drain() { s.draining.Store(true) }

// Retire leaves the port to another process, which accepts on the same socket: this one
// accepts no more, and each answer closes its connection. A connection that is idle may
// have a request on its way, so none is closed by Retire: it ends after its next
// answer, with its client, or after timeouts.idle. Retire returns when the last one has
// ended, when ctx ends or after timeouts.drain; requests that still run then are
// Shutdown's, which in the last case cuts them at once. Readiness stays as it was, for
// it is asked of the port. Serve must have been called.
func (s *Server) Retire(ctx context.Context) error {
	s.retiring.Store(true)
	l := s.accepting.Load()
	if err := l.Close(); err != nil {
		return fmt.Errorf("close the listener: %w", err)
	}
	over := time.NewTimer(s.cfg.Timeouts.Drain)
	defer over.Stop()
	tick := time.NewTicker(idleTick)
	defer tick.Stop()
	accepted := l.ended
	for accepted != nil || l.Open() > 0 {
		select {
		case <-accepted:
			accepted = nil
		case <-tick.C:
		case <-ctx.Done():
			return nil
		case <-over.C:
			s.Cut()
			return nil
		}
	}
	return nil
}

// idleTick is how often a process that ends looks whether its last work is done.
const idleTick = 5 * time.Millisecond

// Cut ends the time that Shutdown gives to running completions.
func (s *Server) Cut() { s.cut() }

// Shutdown stops accepting, lets running completions end within timeouts.drain, gives
// the rest an error event, waits for the releases of their handles, and stops every
// goroutine that New started. Later calls wait for the first.
func (s *Server) Shutdown() error { return s.stopOnce() }

func (s *Server) shutdown() error {
	s.Drain()
	ctx, cancel := context.WithTimeout(s.drain, s.cfg.Timeouts.Drain)
	err := s.http.ShutdownWithContext(ctx)
	if err != nil && ctx.Err() != nil {
		why := "the drain time is over"
		if s.drain.Err() != nil {
			why = "told to cut the drain short"
		}
		s.log.Warn().Int64("cut", s.live.Load()).Msg(why + "; the requests left get an error")
		s.watch.StopAll()
		err = s.awaitIdle(5 * time.Second)
		s.awaitFlushed(time.Second)
	}
	cancel()
	s.cut()
	s.lingering.End()
	s.engines.Stop()
	s.handoffs.Close()
	s.watch.Close()
	s.engines.Close()
	return err
}

// awaitIdle waits until no completion runs any more.
func (s *Server) awaitIdle(d time.Duration) error {
	deadline := time.Now().Add(d)
	for s.live.Load() > 0 {
		if time.Now().After(deadline) {
			return fmt.Errorf("shutdown: %d requests did not end", s.live.Load())
		}
		time.Sleep(idleTick)
	}
	return nil
}

// awaitFlushed waits until the connections have ended: a completion is over a moment
// before the last bytes of its answer have left. Clients that read nothing are not waited
// for.
func (s *Server) awaitFlushed(d time.Duration) {
	for deadline := time.Now().Add(d); s.http.GetOpenConnectionsCount() > 0 && time.Now().Before(deadline); {
		time.Sleep(idleTick)
	}
}
