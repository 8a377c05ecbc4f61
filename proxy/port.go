package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"xpyd/intake/gate"
	"xpyd/intake/heads"
	"xpyd/netio"
	"xpyd/proxy/fault"
)

// clientReadBuffer is the buffer of a connection in bytes, which fasthttp holds as long as an answer lasts. A connection
// with a larger head moves to a server whose buffers are longReadBuffer. A head beyond that gets a 431.
const (
	clientReadBuffer = 12 << 10
	longReadBuffer   = 32 << 10
)

// clientWriteBuffer has room for an answer's head with a short body, or with the first events.
// A larger answer takes a second write. An open stream holds this buffer.
const clientWriteBuffer = 3 << 9

func (s *Server) newHTTP(readBuffer int) *fasthttp.Server {
	return &fasthttp.Server{
		Handler:        s.handle,
		ErrorHandler:   s.frameError,
		HeaderReceived: heads.KnowExpect,
		ExpectHandler:  s.expect,
		// The handler runs after the head. So keys, limits and the byte budget are checked before the body takes
		// memory, and the budget counts the bytes that arrive instead of the length that a client announces.
		StreamRequestBody:            true,
		MaxRequestBodySize:           1,
		DisablePreParseMultipartForm: true,
		NoDefaultServerHeader:        true,
		NoDefaultContentType:         true,
		ReadBufferSize:               readBuffer,
		WriteBufferSize:              clientWriteBuffer,
		ReadTimeout:                  s.cfg.Timeouts.Header,
		IdleTimeout:                  s.cfg.Timeouts.Idle,
		WriteTimeout:                 s.cfg.Timeouts.WriteStall + rearm, // clientWriter moves it on
		CloseOnShutdown:              true,
		// This flushes each response even while a pipelined request waits, and a connection
		// that never sent anything has no buffers.
		ReduceMemoryUsage: true,
		Logger:            quietLogger{},
	}
}

// quietLogger drops fasthttp's own log lines, because they may hold request bytes.
type quietLogger struct{}

func (quietLogger) Printf(string, ...any) {}

// Serve accepts clients on ln until Retire or Shutdown. Call it only once.
func (s *Server) Serve(ln net.Listener) error {
	balancers, _, _ := netio.ParseNetworks(s.cfg.ProxyProtocol.From) // validated
	l, err := netio.NewListener(ln, netio.Terms{
		PerIP: s.cfg.Limits.ConnectionsPerIP, WriteStall: s.cfg.Timeouts.WriteStall,
		TLS: s.certs.Data.Server(), NotTLS: notTLSAnswer(),
		Unsecured: func(err error) { s.aloneLog.Warn().Err(err).Msg("TLS handshake with a client failed") },
		Balancers: balancers,
		Unintroduced: func(peer netip.Addr, err error) {
			s.aloneLog.Warn().Stringer("peer", peer).Err(err).Msg("connection of a balancer refused, see proxy_protocol.from")
		},
		TurnedAway: s.metrics.TurnedAway, NoRoom: noDescriptorAnswer(), Watcher: s.watch, Lingering: s.lingering,
	})
	if err != nil {
		return err
	}
	p := &port{Listener: l, rooms: netio.NewRooms(l.Addr()), ended: make(chan struct{})}
	s.accepting.Store(p)
	defer close(p.ended)
	if s.drain.Err() != nil || s.retiring.Load() { // Shutdown or Retire came first
		return l.Close()
	}
	go func() { _ = s.roomy.Serve(p.rooms) }() // it ends with the listener
	return s.http.Serve(l)
}

// port is the listener that accepts clients.
type port struct {
	*netio.Listener
	rooms *netio.Rooms
	ended chan struct{} // closed when the last Accept has returned
}

// Turns asks the two loops on which all clients depend for a turn. The error names the loop that made
// none before ctx ended. Only one goroutine may ask at a time.
func (s *Server) Turns(ctx context.Context) error {
	if p := s.accepting.Load(); p == nil || !p.Turns(ctx) {
		return errors.New("the loop that accepts clients does not turn")
	}
	if !s.watch.Turns(ctx) {
		return errors.New("the loop that watches for clients that leave does not turn")
	}
	return nil
}

// frameError answers a request that fasthttp could not read.
func (s *Server) frameError(ctx *fasthttp.RequestCtx, err error) {
	conn, ok := ctx.Conn().(*netio.Conn)
	refusal := fault.OfGate(gate.FrameError(err))
	if ok && refusal.Status == fasthttp.StatusRequestHeaderFieldsTooLarge && conn.Move(s.accepting.Load().rooms) {
		return
	}
	s.refuse(ctx, refusal)
	if ok && refusal.Status != fasthttp.StatusRequestTimeout {
		conn.LeaveUnread() // the head is not valid, so what follows it is not read
	}
}

// expect answers "Expect: 100-continue" before the client sends its body.
func (s *Server) expect(ctx *fasthttp.RequestCtx) int {
	if _, _, err := s.admitHead(ctx); err != nil {
		s.refuse(ctx, err)
		s.cors.Mark(ctx)
		return err.Status
	}
	return fasthttp.StatusContinue
}

// refuse answers with an error of the gate and closes the connection, because what follows on it
// cannot be trusted or has not been read.
func (s *Server) refuse(ctx *fasthttp.RequestCtx, err *fault.Error) {
	s.metrics.Error(err.Code)
	err.Write(ctx)
	ctx.SetConnectionClose()
	leaveUnread(ctx)
}

// leaveUnread lets the request's connection linger if more of the request may be on its way. The
// caller closes the connection after the answer.
func leaveUnread(ctx *fasthttp.RequestCtx) {
	const chunked = -1 // ContentLength returns it for a chunked body
	n := ctx.Request.Header.ContentLength()
	if conn, ok := ctx.Conn().(*netio.Conn); ok && (n > 0 || n == chunked) {
		conn.LeaveUnread()
	}
}

// noDescriptorAnswer is what a client gets when no descriptor is left for it. Nothing of its request is read.
func noDescriptorAnswer() []byte {
	e := fault.ErrDescriptors()
	return rawAnswer(e, "Retry-After: "+strconv.Itoa(e.RetryAfter)+"\r\n")
}

// notTLSAnswer is what a client gets that speaks plain HTTP to a port with TLS.
func notTLSAnswer() []byte {
	return rawAnswer(fault.NewError(fasthttp.StatusBadRequest, fault.CodeInvalidHTTP, "", "this port speaks TLS; use https://"), "")
}

// rawAnswer is an answer that goes past fasthttp, with further header lines.
func rawAnswer(e *fault.Error, fields string) []byte {
	body := e.AppendBody(nil)
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\n%sConnection: close\r\nContent-Length: %d\r\n\r\n%s",
		e.Status, fasthttp.StatusMessage(e.Status), fields, len(body), body)
}

// Drain makes the server unready. It still serves every client, but each answer closes its connection.
func (s *Server) Drain() { s.draining.Store(true) }

// Retire leaves the port to another process, which accepts on the same socket. This process accepts no more
// connections, and each answer closes its connection. Retire closes no idle connection, because a request may be on
// its way. An idle connection ends after its next answer, when its client closes it, or after timeouts.idle.
//
// Retire returns when the last connection has ended, when ctx ends, or after timeouts.drain. It leaves requests that
// still run then to Shutdown, which cuts them at once in the last case. Readiness does not change, because a
// readiness check asks about the port and not about this process.
func (s *Server) Retire(ctx context.Context) error {
	s.retiring.Store(true)
	l := s.accepting.Load()
	if l == nil {
		return nil // Serve comes after this and accepts nobody
	}
	if err := l.Close(); err != nil {
		return fmt.Errorf("close the listener: %w", err)
	}
	over := time.NewTimer(s.bound().Timeouts.Drain)
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

// idleTick is how often an ending process checks whether its last work is done.
const idleTick = 5 * time.Millisecond

// Cut ends the time that Shutdown gives to running completions.
func (s *Server) Cut() { s.cut() }

// Shutdown stops accepting and lets running completions end within timeouts.drain. The others get an error event. It
// waits for the release of their handles, and stops every goroutine of New. Later calls wait for the first one.
func (s *Server) Shutdown() error { return s.stopOnce() }

func (s *Server) shutdown() error {
	s.Drain()
	ctx, cancel := context.WithTimeout(s.drain, s.bound().Timeouts.Drain)
	roomy := make(chan error, 1)
	go func() { roomy <- s.roomy.ShutdownWithContext(ctx) }()
	err := errors.Join(s.http.ShutdownWithContext(ctx), <-roomy)
	if err != nil && ctx.Err() != nil {
		why := "the drain time is over"
		if s.drain.Err() != nil {
			why = "told to cut the drain short"
		}
		s.log.Warn().Int64("cut", s.live.Load()).Msg(why + "; the requests left get an error")
		s.watch.StopAll()
		err = s.awaitIdle(5*time.Second + s.bound().Timeouts.PrefillAbortGrace)
		s.awaitFlushed(time.Second)
	}
	cancel()
	s.cut()
	if p := s.accepting.Load(); p != nil {
		_ = p.rooms.Close()
		_ = p.Close() // it may not accept yet, and then fasthttp does not know of it
	}
	s.lingering.End()
	s.engines.Stop()
	s.handoffs.Close()
	s.watch.Close()
	s.engines.Close()
	s.certs.Close()
	s.tracer.Close()
	return err
}

// awaitIdle waits, at most for d, until no completion runs.
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

// awaitFlushed waits, at most for d, until the connections have ended. A completion is over shortly before
// the last bytes of its answer have left. It does not wait longer for clients that read nothing.
func (s *Server) awaitFlushed(d time.Duration) {
	for deadline, p := time.Now().Add(d), s.accepting.Load(); p != nil && p.Open() > 0 && time.Now().Before(deadline); {
		time.Sleep(idleTick)
	}
}
