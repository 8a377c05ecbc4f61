// Package proxy is the HTTP side: the data port, one completion through its two
// legs, the stream back to the client, and every error on the way. completion.go is
// the file to read first.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/valyala/fasthttp"

	"xpyd/kvparams"
	"xpyd/metrics"
	"xpyd/router"
)

// clientReadBuffer bounds a request head; a larger one is answered 431.
const clientReadBuffer = 16 << 10

// Server is the data port with its two pools of backends.
type Server struct {
	cfg     Config
	log     zerolog.Logger
	router  *router.Router
	metrics *metrics.Metrics
	dialect kvparams.Dialect
	keys    *keyring
	// backendAuth replaces the client's Authorization; empty passes that on, unless
	// clients show keys of ours.
	backendAuth []byte

	http      *fasthttp.Server
	watch     *watcher
	budget    budget
	upstreams upstreams
	releases  *releaser
	probes    *prober
	ledger    ledger
	buffers   buffers
	// loopbackOnce: a wrong side-channel host is logged once, not per request.
	loopbackOnce sync.Once
	models       modelCache
	pool         sync.Pool    // of *completion
	live         atomic.Int64 // completions that run
	departed     atomic.Int64 // of these, the ones whose client is known to have left
	draining     atomic.Bool
	stopOnce     func() error
}

// New builds the server and starts watching clients and backends; Shutdown ends
// both. cfg has been validated. dialect nil means cfg.Connector.
func New(cfg Config, rt *router.Router, dialect kvparams.Dialect, version string, log zerolog.Logger) (*Server, error) {
	if dialect == nil {
		var ok bool
		if dialect, ok = kvparams.Lookup(cfg.Connector); !ok {
			return nil, fmt.Errorf("connector %q is not known", cfg.Connector)
		}
	}
	s := &Server{
		cfg: cfg, log: log, router: rt, dialect: dialect,
		keys:   newKeyring(cfg.APIKeys),
		watch:  newWatcher(),
		budget: budget{limit: cfg.Limits.BodyBudget},
	}
	if cfg.BackendAPIKey != "" {
		s.backendAuth = []byte("Bearer " + cfg.BackendAPIKey)
	}
	s.metrics = metrics.New(version, labels(), s.backendLoad, s.ledger.pinned, s.ledger.stranded, s.budget.inUse)
	s.releases = newReleaser(s)
	s.pool.New = func() any { return newCompletion(s) }
	s.http = s.newHTTP()
	s.probes = newProber(s)
	rt.OnEject(s.ejected)
	for _, role := range []router.Role{router.Prefill, router.Decode} {
		for _, b := range rt.Snapshot().Backends(role) {
			s.join(b)
		}
	}
	s.stopOnce = sync.OnceValue(s.shutdown)
	return s, nil
}

func (s *Server) newHTTP() *fasthttp.Server {
	return &fasthttp.Server{
		Handler:       s.handle,
		ErrorHandler:  s.frameError,
		ExpectHandler: s.expect,
		// The handler runs after the head, so that keys, limits and the byte budget are
		// settled before body memory is taken, and the budget follows the bytes that
		// arrive in place of the length that a client announces.
		StreamRequestBody:            true,
		MaxRequestBodySize:           1,
		DisablePreParseMultipartForm: true,
		NoDefaultServerHeader:        true,
		NoDefaultContentType:         true,
		ReadBufferSize:               clientReadBuffer,
		ReadTimeout:                  s.cfg.Timeouts.Header,
		IdleTimeout:                  s.cfg.Timeouts.Idle,
		WriteTimeout:                 s.cfg.Timeouts.WriteStall, // clientWriter moves it on
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

// Serve accepts clients on ln until Shutdown.
func (s *Server) Serve(ln net.Listener) error {
	return s.http.Serve(newListener(ln, s.cfg.Limits.ConnectionsPerIP))
}

// Drain makes the server unready, while it still serves whoever comes.
func (s *Server) Drain() { s.draining.Store(true) }

// Shutdown stops accepting, lets running completions end within timeouts.drain, gives
// the rest an error event, waits for the releases of their handles, and stops every
// goroutine that New started. Later calls wait for the first.
func (s *Server) Shutdown() error { return s.stopOnce() }

func (s *Server) shutdown() error {
	s.Drain()
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Timeouts.Drain)
	err := s.http.ShutdownWithContext(ctx)
	cancel()
	if errors.Is(err, context.DeadlineExceeded) {
		s.log.Warn().Int64("cut", s.live.Load()).Msg("the drain time is over; the requests left get an error")
		s.watch.stopAll()
		err = s.awaitIdle(5 * time.Second)
	}
	s.probes.close()
	s.releases.close()
	s.watch.close()
	for _, u := range s.upstreams.all() {
		u.close()
	}
	return err
}

// awaitIdle waits until no completion runs any more.
func (s *Server) awaitIdle(d time.Duration) error {
	deadline := time.Now().Add(d)
	for s.live.Load() > 0 {
		if time.Now().After(deadline) {
			return fmt.Errorf("shutdown: %d requests did not end", s.live.Load())
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

// Ready reports whether a completion could be served now.
func (s *Server) Ready() bool {
	alone := s.cfg.DecodeOnly.Enabled && s.dialect.DecodeOnlySafe()
	return !s.draining.Load() && s.router.Snapshot().Ready(alone)
}

func (s *Server) backendLoad() []metrics.BackendLoad {
	var loads []metrics.BackendLoad
	snap := s.router.Snapshot()
	for _, role := range []router.Role{router.Prefill, router.Decode} {
		for _, b := range snap.Backends(role) {
			loads = append(loads, metrics.BackendLoad{
				Role: role.String(), URL: b.URL, InFlight: b.InFlight(), Up: b.State() == router.Up,
			})
		}
	}
	return loads
}

// frameError answers a request that fasthttp could not read.
func (s *Server) frameError(ctx *fasthttp.RequestCtx, err error) {
	s.refuse(ctx, frameError(err))
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
}

// handle is the entry of every request that was read as HTTP.
func (s *Server) handle(ctx *fasthttp.RequestCtx) {
	defer func() {
		if p := recover(); p != nil {
			s.panicked(p)
			internalError().write(ctx)
			ctx.SetConnectionClose()
		}
	}()
	route, err := s.admitHead(ctx)
	if err != nil {
		s.refuse(ctx, err)
		return
	}
	route.serve(s, ctx)
}

// panicked counts and logs what a request's handling died of; the process lives on.
func (s *Server) panicked(p any) {
	s.metrics.Panic()
	s.log.Error().Str("panic", fmt.Sprintf("%.200v", p)).Bytes("stack", debug.Stack()).Msg("request handler panicked")
}

func internalError() *apiError {
	return newError(fasthttp.StatusInternalServerError, codeInternal, "", "internal error of the proxy")
}
