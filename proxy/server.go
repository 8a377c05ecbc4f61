// Package proxy is the HTTP side. It serves the data port, takes each completion through its two legs,
// streams the answer to the client, and handles every error on the way. Read completion.go first.
package proxy

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/valyala/fasthttp"

	"xpyd/engines"
	"xpyd/engines/handoff"
	"xpyd/engines/journal"
	"xpyd/intake/budget"
	"xpyd/intake/cors"
	"xpyd/intake/heads"
	"xpyd/intake/limits"
	"xpyd/intake/routes"
	"xpyd/internal/files"
	"xpyd/kvparams"
	"xpyd/metrics"
	"xpyd/metrics/trace"
	"xpyd/netio"
	"xpyd/netio/tlsconf"
	"xpyd/netio/upstream"
	"xpyd/proxy/carry"
	"xpyd/proxy/encode"
	"xpyd/router"
)

// These bound the log lines per second about legs that are tried again, and about requests that are
// decoded without a prefill. No count is lost, as each completion's own line has its rounds, and the
// metrics count all legs.
const (
	failedLines = 100
	aloneLines  = 10 // in an outage every request has one
)

// Server is the data port with its two pools of backends.
type Server struct {
	cfg       Config
	log       zerolog.Logger
	failedLog zerolog.Logger // for legs that xpyd retries; sampled, because an engine that dies under load fails thousands at once
	aloneLog  zerolog.Logger // for requests decoded without the prefill that they should have had; sampled too
	router    *router.Router
	metrics   meter
	ended     func(*Life) // is called with each completion that has ended; nil without an admin port
	dialects  *kvparams.Dialects
	keys      *limits.Book
	denied    []string      // fields that nobody may send, and priority
	forward   heads.Forward // the part of a client's head that goes to the engines

	http       *fasthttp.Server
	roomy      *fasthttp.Server // for clients with long heads
	watch      *netio.Watcher
	bodies     *budget.Bodies // for request bodies
	bounds     atomic.Pointer[bounds]
	cors       *cors.Policy   // nil: no web page may use the port
	tracer     *trace.Tracer  // nil: nothing is traced
	held       *budget.Budget // for the part of each answer beyond freeAnswer
	clients    *budget.Counts
	engines    *engines.Set
	encoder    *encode.Stage
	handoffs   *handoff.Keeper
	ledger     handoff.Ledger
	buffers    budget.Buffers // for streams and D's answers
	answers    budget.Buffers // for P's answers
	idle       idle           // what requests have left to the next ones
	carries    carry.Room
	live       atomic.Int64 // running completions
	departed   atomic.Int64 // running completions whose client has left, as far as xpyd knows
	draining   atomic.Bool
	breakPause time.Duration
	downGrace  time.Duration
	routes     *routes.Table
	lingering  *netio.Lingering
	certs      *tlsconf.Set
	stopOnce   func() error
	accepting  atomic.Pointer[port] // nil before Serve
	retiring   atomic.Bool
	drain      context.Context // ends when the drain must end
	cut        context.CancelFunc
}

// idle is what requests have left to the next ones.
type idle struct {
	completions sync.Pool // of *completion
	asking      sync.Pool // of *asking
}

// New builds the server and starts to watch clients and backends until Shutdown. cfg must be valid.
// dialect is for engines that name no connector; if it is nil, the dialect of cfg.Connector is.
func New(cfg Config, rt *router.Router, dialect kvparams.Dialect, version string, log zerolog.Logger) (*Server, error) {
	reuse := kvparams.Reuse{From: cfg.KV.ReuseTokensFrom, Answer: cfg.Limits.Answer}
	if dialect == nil {
		var ok bool
		if dialect, ok = reuse.Lookup(cfg.Connector); !ok {
			return nil, fmt.Errorf("connector %q is not known", cfg.Connector)
		}
	}
	certs, err := tlsconf.Open(cfg.TLS, cfg.AdminTLS, cfg.BackendTLS, files.NewReader(true).Bytes)
	if err != nil {
		return nil, err
	}
	watch, err := netio.NewWatcher()
	if err != nil {
		return nil, err
	}
	book := limits.NewBook(cfg.Terms(), cfg.Limits.ClientInFlight)
	s := &Server{
		cfg: cfg, log: log, router: rt, dialects: reuse.Dialects(dialect), watch: watch, certs: certs,
		failedLog:  log.Sample(&zerolog.BurstSampler{Burst: failedLines, Period: time.Second}),
		aloneLog:   log.Sample(&zerolog.BurstSampler{Burst: aloneLines, Period: time.Second}),
		keys:       book,
		denied:     append(slices.Clone(cfg.DenyFields), "priority"),
		routes:     routes.New(cfg.Routes.Pass),
		cors:       cors.New(cfg.CORS),
		breakPause: breakPause,
		downGrace:  downGrace,
		lingering:  netio.NewLingering(),
	}
	s.carries.Config = cfg.Carry
	s.bodies = budget.NewBodies(0, 0, 0)
	s.held, s.clients = budget.New(0, 0), budget.NewCounts(0)
	s.SetBounds(cfg.Timeouts, cfg.Limits)
	s.forward = heads.NewForward(backendAuth(cfg.BackendAPIKey), !s.keys.Required(), cfg.Headers.Pass)
	if err := s.openTracer(version); err != nil {
		return nil, err
	}
	s.metrics = s.newMeter(version, labels())
	s.handoffs = s.newHandoffs()
	s.engines = s.newEngines()
	s.encoder = s.newEncode()
	s.idle.completions.New, s.idle.asking.New, s.http = s.newCompletion, func() any { return new(asking) }, s.newHTTP(clientReadBuffer)
	s.roomy = s.newHTTP(longReadBuffer)
	watch.OnPanic(s.panicked)
	s.start()
	return s, nil
}

// start begins what runs beside the requests.
func (s *Server) start() {
	s.stopOnce = sync.OnceValue(s.shutdown)
	s.drain, s.cut = context.WithCancel(context.Background())
	s.engines.Start()
	s.certs.Follow(certificatesEvery, s.tellCertificates)
}

// backendAuth is what engines are shown; nil if nothing is.
func backendAuth(key string) []byte {
	if key == "" {
		return nil
	}
	return []byte("Bearer " + key)
}

func (s *Server) newMeter(version string, l metrics.Labels) meter {
	rt := s.router
	loads := func() []metrics.BackendLoad { return backendLoads(rt, s.cfg.KV.TransferGBps) }
	m := meter{metrics.New(version, l, loads, queuedBy(rt), s.ledger.Pinned, s.ledger.Stranded, s.bodies.InUse, s.held.InUse)}
	m.WatchAdvice(func() metrics.Advice { return adviceGauges(rt) })
	m.WatchPairs(func() []metrics.PairLoad { return pairLoads(rt) })
	m.WatchConfig(func() metrics.ConfigInfo { return configInfo(rt, s.cfg.Connector) }, s.certs.Expiries)
	m.WatchReadiness(s.Ready, func() bool { return s.engines.Outage() })
	return m
}

func (s *Server) newHandoffs() *handoff.Keeper {
	return handoff.NewKeeper(handoff.Config{
		KV: s.cfg.KV, Dialects: s.dialects, Answer: s.cfg.Limits.Answer, MaxBroken: maxBroken, Bodies: s.bodies, Ledger: &s.ledger,
		Engine: func(b *router.Backend) (*upstream.Client, *handoff.Places) { return s.engines.Release(b) },
		Guard:  s.guard, Gone: func(b *router.Backend) bool { _, gone := s.engines.Gone(b); return gone },
		Ended: func(e handoff.End) { s.metrics.Handle(e) }, Orphaned: func(o handoff.Orphan) { s.metrics.Orphan(o) },
		Loopback: s.metrics.Loopback, Kept: s.metrics.KeptByDecode, Log: s.log,
	})
}

func (s *Server) newEngines() *engines.Set {
	t := &s.cfg.Timeouts
	return engines.New(engines.Config{
		Router: s.router, Dialects: s.dialects, Handoffs: s.handoffs, Watcher: s.watch,
		Auth: string(s.forward.Auth), Keyed: s.keys.Required(),
		Warmup: s.cfg.Warmup, DecodeOnly: s.cfg.DecodeOnly.Enabled, MaxShare: s.cfg.DecodeOnly.MaxShare,
		Dial: t.Dial, Handshake: t.Handshake, TLS: s.certs.Backends.Client, MaxIdle: t.UpstreamIdle, Silence: s.silence,
		AbortGrace: func() time.Duration { return s.bound().Timeouts.PrefillAbortGrace }, Answer: s.cfg.Limits.Answer, Guard: s.guard,
		WarmedUp: s.metrics.WarmUp, Polled: s.metrics.Poll, Ejected: s.metrics.Ejection, Forget: s.metrics.Forget, Log: s.log,
	})
}

// WatchLog adds a metric for the dropped log lines. dropped returns their count. Call WatchLog only
// once.
func (s *Server) WatchLog(dropped func() int64) { s.metrics.WatchLog(dropped) }

// Ready reports whether the server could serve a completion now.
func (s *Server) Ready() bool {
	ready, _ := s.readiness()
	return ready
}

// View is what an operators' port shows of a server. Its functions are safe for concurrent use.
type View struct {
	Router  *router.Router
	Metrics *metrics.Metrics
	Ready   func() (ready bool, line string) // what /readyz answers
	Journal *journal.Journal
	Unknown func(b *router.Backend, state *router.EngineState) (why string) // why an engine's load is not known, or not all of it; empty if all is known
	// Running counts the completions under way. Pinned and Stranded count KV blocks.
	Running          func() int64
	Pinned, Stranded func() float64
	Retiring         func() bool              // another process has the ports
	Leaving          func() []*router.Backend // were removed, and still serve what they have
	AdminTLS         *tls.Config              // nil: the operators' port speaks plain HTTP
	Adapters         func(ctx context.Context, name, path, model string) (done any, well, of int, err error)
}

// View returns what an operators' port shows.
func (s *Server) View() View {
	return View{
		Router: s.router, Metrics: s.metrics.Metrics, Ready: s.readiness, Journal: s.engines.Journal, Unknown: s.engines.Poller.Unknown,
		Running: s.live.Load, Pinned: s.ledger.Pinned, Stranded: s.ledger.Stranded, Retiring: s.retiring.Load,
		Leaving: s.engines.Leaving, AdminTLS: s.certs.Admin.Server(), Adapters: func(ctx context.Context, name, path, model string) (any, int, int, error) {
			done, err := engines.AdaptersOf(s.engines).Set(ctx, name, path, model)
			return done, engines.Well(done), len(done), err
		},
	}
}

// panicked counts and logs a panic in the handling of a request. The process goes on.
func (s *Server) panicked(p any) {
	s.metrics.Panic()
	s.log.Error().Str("panic", fmt.Sprintf("%.200v", p)).Bytes("stack", netio.StackOf(p)).Msg("request handler panicked")
}

// guard runs code that runs outside a handler. A panic in it is counted and logged, and the process
// goes on. It reports whether f ran without a panic.
func (s *Server) guard(f func()) (ok bool) {
	defer func() {
		if p := recover(); p != nil {
			s.panicked(p)
		}
	}()
	f()
	return true
}

// certificatesEvery is how often the files of TLS are looked at.
const certificatesEvery = 10 * time.Second

// tellCertificates logs that the files of a section have changed, or why what they hold is not used.
func (s *Server) tellCertificates(section string, err error) {
	if err != nil {
		s.engines.Journal.Tell(s.log.Error(), journal.Event{Kind: journal.Certificate, Text: "certificates not reloaded; those before stay in force", Reason: err.Error()})
		return
	}
	s.engines.Journal.Tell(s.log.Info().Str("section", section), journal.Event{Kind: journal.Certificate, Text: "certificates reloaded", Change: section})
}

// Reload replaces the current pools, or fails and changes nothing. Running requests keep the pools with
// which they started. A backend that stays keeps its load and health. One that leaves finishes its
// running requests.
func (s *Server) Reload(cfg router.Config) error {
	s.certs.Refresh(s.tellCertificates)
	err := s.SetPools(cfg)
	s.metrics.Reload(err == nil)
	return err
}

// FindRanks reads from each engine with @auto how many data-parallel ranks it has, and passes the number to tell.
func (s *Server) FindRanks(tell func(engine string, ranks int) (restarted bool, err error)) {
	s.engines.FindRanks(tell)
}

// SetPools is Reload for a change that is not a reload of the configuration.
func (s *Server) SetPools(cfg router.Config) error {
	cfg.Connector = s.cfg.Connector // a reload does not change it
	return s.engines.Reload(cfg)
}

// ReloadFailed counts a configuration that xpyd could not read.
func (s *Server) ReloadFailed() { s.metrics.Reload(false) }
