package proxy

import (
	"net"
	"strconv"

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
