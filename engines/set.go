// Package engines holds what xpyd knows about the engines, and sends them the proxy's own requests.
// Health checks ask whether an engine is alive and which models it serves. Polls read its metrics.
// Warm-ups send one token through pairs of engines that are new to each other. If completions fail,
// probes find out whether a new one would succeed.
package engines

import (
	"cmp"
	"context"
	"crypto/tls"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"xpyd/engines/handoff"
	"xpyd/engines/journal"
	"xpyd/engines/kvevents"
	"xpyd/engines/progress"
	"xpyd/kvparams"
	"xpyd/netio"
	"xpyd/netio/upstream"
	"xpyd/router"
)

// Config is what a set needs from the process around it.
type Config struct {
	Router   *router.Router
	Dialects *kvparams.Dialects
	Handoffs *handoff.Keeper
	Watcher  *netio.Watcher // watches connections

	Auth       string  // the Authorization that xpyd shows to engines; empty for none
	Keyed      bool    // clients show keys for xpyd, so no engine sees a client's key
	Warmup     bool    // warm up pairs
	DecodeOnly bool    // a decode engine may compute a prompt when no prefill is available
	MaxShare   float64 // greatest share of the decode slots for such requests

	Dial      time.Duration // bounds a connect
	Handshake time.Duration // bounds the TLS handshake after it
	// TLS returns the TLS configuration for connections to a backend's host.
	TLS        func(host string) *tls.Config
	MaxIdle    time.Duration        // how long an unused connection stays open
	Silence    func() time.Duration // silence of all streams of an engine after which xpyd ejects it
	AbortGrace func() time.Duration // how long a prefill may still answer after xpyd gave it up
	Answer     int64                // greatest size of an answer, in bytes

	Guard func(func()) (ok bool) // runs a function and survives its panic

	// The set calls these so that the process can count.
	WarmedUp func(ok bool)
	Polled   func(ok bool)
	Ejected  func(role, url, reason string)
	Forget   func(url string) // drops the series of a backend that has left

	Log zerolog.Logger
}

// Set holds the engines of both pools. Soundness and Poller run by themselves.
type Set struct {
	Soundness *Soundness
	Poller    *Poller
	events    *kvevents.Manager
	Models    *Models
	Journal   *journal.Journal
	progress  *progress.Watcher

	cfg      Config
	fields   []byte // header lines of the set's own requests
	checks   *checker
	warm     *warmer
	outage   outage
	judged   atomic.Bool // see Judged
	oneSided logged      // see compareModels
	media    seenMedia
	releases releases // see compareReleases

	mu      sync.Mutex                                  // held to change m
	m       atomic.Pointer[map[*router.Backend]*engine] // replaced, never changed; read by one atomic load
	left    map[string]*time.Timer                      // by URL: the series of a backend that has left are dropped then; guarded by mu
	keeps   time.Duration                               // how long they are kept
	scratch *netio.Scratch                              // shared by all connections
	loops   *netio.Loops                                // that follow the streams of all engines
	lookUp  upstream.LookUp                             // of names; nil for the system's resolver
	vitals  time.Duration                               // how long an engine is asked whether it lives
	ranks   atomic.Pointer[tellRanks]                   // see FindRanks
}

// engine holds what the proxy knows of one backend's engine, and its client.
type engine struct {
	*upstream.Client
	id       atomic.Pointer[string]        // of the engine, in the last handle that it gave
	restart  sync.Mutex                    // held while id is stored
	models   atomic.Pointer[modelList]     // what it served when a check last read its list
	peer     atomic.Pointer[kvparams.Peer] // of a prefill engine, where the connector needs it; nil while it is not known
	rankless string                        // why its ranks cannot be had, as the log says; guarded by checker.rankless
	outdated atomic.Bool                   // its version is to be read again
	strange  atomic.Bool                   // its bootstrap server did not answer, and the log says so
	asking   sync.Mutex                    // held while requests ask that server
	asked    time.Time                     // when they last did; guarded by asking
	vitality vitality
	releases *handoff.Places
	unlisted atomic.Bool                     // its list of models is to be read again
	wake     chan struct{}                   // its check is due at once; capacity 1
	failed   chan struct{}                   // a leg on it has failed; capacity 1
	removed  atomic.Bool                     // by a reload
	used     atomic.Pointer[kvparams.Extent] // see Used; nil: unknown
	refusals refusals
}

// New makes a set. It knows no engine before Start.
func New(cfg Config) *Set {
	s := &Set{
		Journal: journal.New(), cfg: cfg, scratch: netio.NewScratch(), loops: netio.NewLoops(), vitals: vitalsWait, left: map[string]*time.Timer{}, keeps: keepSeries,
	}
	if cfg.Auth != "" {
		s.fields = []byte("Authorization: " + cfg.Auth + "\r\n")
	}
	s.Models = &Models{set: s, within: modelsWithin}
	s.checks, s.warm = newChecker(s), newWarmer(s)
	s.Soundness = NewSoundness(UsualPace(), s.probeSoundness, s.Journal, cfg.Log)
	return s
}

// Start begins to watch the engines of both pools. Stop and Close end that.
func (s *Set) Start() {
	tell := &teller{s.Journal, s.cfg.Log, s.cfg.Log.Sample(&zerolog.BurstSampler{Burst: staysLines, Period: time.Second}), s.cfg.Ejected}
	s.cfg.Router.OnEject(tell.ejected)
	s.cfg.Router.OnBan(tell.banned)
	router.OnPlan(s.cfg.Router, tell.planned)
	for _, role := range router.Roles() {
		for _, m := range s.cfg.Router.Snapshot().Members(role) {
			s.join(m.Backend)
		}
	}
	s.warm.start()
	s.progress = watchProgress(s)
	dial := net.Dialer{Timeout: s.cfg.Dial}
	s.events = kvevents.Start(kvevents.Config{
		Router: s.cfg.Router, Dial: dial.DialContext, Guard: s.cfg.Guard, Log: s.cfg.Log,
		Get: func(ctx context.Context, b *router.Backend, path string) (int, []byte, error) {
			return s.checks.getWithin(ctx, b, path, s.cfg.Auth)
		},
	})
	s.Poller = NewPoller(PollerConfig{
		Router: s.cfg.Router, Client: s.Client, Series: func(b *router.Backend) *kvparams.Series { return waysOf(s.dialect(b)).series }, Fields: s.fields, Count: s.cfg.Polled, Ranks: s.seenRanks,
		Guard: s.cfg.Guard, Restarted: s.restarted, Worked: s.progress.Shown, Log: s.cfg.Log,
	})
}

// Stop ends the set's own requests and waits for them. Completions and releases may continue.
func (s *Set) Stop() {
	s.StopChecks()
	s.progress.Close()
	s.Poller.Close()
	s.events.Close()
	s.warm.close()
	s.Soundness.Close()
}

// StopChecks ends the active checks. Backends keep their current state.
func (s *Set) StopChecks() { s.checks.close() }

// Close closes the connections. Call it after Stop.
func (s *Set) Close() {
	for _, e := range s.all() {
		e.Close()
	}
	s.mu.Lock()
	for _, t := range s.left {
		t.Stop()
	}
	s.mu.Unlock()
	s.loops.Close()
}

// LookUpWith makes l look up the names of backends that join from now on. Call it before requests arrive.
func (s *Set) LookUpWith(l upstream.LookUp) { s.lookUp = l }

// get returns nil for a backend that was removed and has nothing in flight any more.
func (s *Set) get(b *router.Backend) *engine { return s.all()[b] }

// Client returns the client of b, or nil for a removed backend that has nothing left in flight. An
// exchange treats a nil client as a failed dial.
func (s *Set) Client(b *router.Backend) *upstream.Client {
	if e := s.get(b); e != nil {
		return e.Client
	}
	return nil
}

// Release returns what a release needs from an engine: its client, and the count of releases there.
func (s *Set) Release(b *router.Backend) (*upstream.Client, *handoff.Places) {
	if e := s.get(b); e != nil {
		return e.Client, e.releases
	}
	return nil, nil
}

// Backends lists the backends of both pools, and the removed ones that still serve requests.
func (s *Set) Backends() (all []*router.Backend) {
	for b := range s.all() {
		all = append(all, b)
	}
	return all
}

func (s *Set) all() map[*router.Backend]*engine {
	if m := s.m.Load(); m != nil {
		return *m
	}
	return nil
}

func (s *Set) edit(f func(m map[*router.Backend]*engine)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := maps.Clone(s.all())
	if next == nil {
		next = map[*router.Backend]*engine{}
	}
	f(next)
	s.m.Store(&next)
}

// spareDescriptors closes the connections that no request uses.
func (s *Set) spareDescriptors() {
	for _, e := range s.all() {
		e.DropIdle()
	}
}

// dial is the dialer of the checks, which must resolve a name as completions do.
func (s *Set) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	for _, e := range s.all() {
		if e.Addr() == addr {
			return e.Dial(ctx)
		}
	}
	return (&net.Dialer{Timeout: s.cfg.Dial}).DialContext(ctx, network, addr)
}

// dialTLS is dial with the handshake of TLS.
func (s *Set) dialTLS(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := s.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	secured := tls.Client(conn, s.cfg.TLS(hostOf(addr)))
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secured, nil
}

// secure returns what connections to b are secured with, or nil for plain HTTP.
func (s *Set) secure(b *router.Backend) func() *tls.Config {
	if !b.TLS {
		return nil
	}
	return func() *tls.Config { return s.cfg.TLS(hostOf(b.Addr)) }
}

func hostOf(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		panic("BUG: backend address without port: " + addr)
	}
	return host
}

// dialect is how b's engine hands blocks over.
func (s *Set) dialect(b *router.Backend) kvparams.Dialect { return s.cfg.Dialects.Of(b.Connector) }

// join makes a client for a backend and starts its checks.
func (s *Set) join(b *router.Backend) {
	b.Bound.Store(!s.dialect(b).DecodeOnlySafe())
	e := &engine{wake: make(chan struct{}, 1), failed: make(chan struct{}, 1), releases: handoff.NewPlaces(), Client: upstream.New(upstream.Config{
		Addr: b.Addr, Host: b.Host, Prefix: b.Prefix, Fields: rankField(b), DialTimeout: s.cfg.Dial, MaxIdle: s.cfg.MaxIdle,
		TLS: s.secure(b), Handshake: s.cfg.Handshake, LookUp: s.lookUp, Spare: s.spareDescriptors, Scratch: s.scratch, Watcher: s.cfg.Watcher, Loops: s.loops,
	})}
	s.edit(func(m map[*router.Backend]*engine) {
		m[b] = e
		if t := s.left[b.URL]; t != nil {
			t.Stop()
			delete(s.left, b.URL)
		}
	})
	s.Journal.Joined(b)
	s.checks.start(b, e)
}

// rankField is the header line by which vLLM gives a request to the rank that b is. It stands in each
// request of b's client, also in those that are no leg, because the ranks share nothing but their port and
// what is checked there.
func rankField(b *router.Backend) []byte {
	if b.Rank < 0 {
		return nil
	}
	return []byte("X-data-parallel-rank: " + strconv.Itoa(b.Rank) + "\r\n")
}

// remove lets a backend's requests end. Its check then drops it.
func (s *Set) remove(b *router.Backend) {
	if e := s.get(b); e != nil {
		e.removed.Store(true)
		s.checkNow(b)
	}
}

// keepSeries is how long the series of a backend that has left are kept. A scraper reads their last values meanwhile, and
// those of a backend that comes back go on.
const keepSeries = 5 * time.Minute

// drop is called by the check of a backend that was removed and serves nothing more.
func (s *Set) drop(b *router.Backend, e *engine) {
	s.media.forget(b)
	s.edit(func(m map[*router.Backend]*engine) {
		delete(m, b)
		for o := range m {
			if o.URL == b.URL { // the same engine is in the other pool, or back in this one
				return
			}
		}
		s.left[b.URL] = time.AfterFunc(s.keeps, func() { s.forget(b.URL) })
	})
	e.Close()
	s.Journal.Gone(b)
	s.Journal.Tell(s.cfg.Log.Info(), journal.About(b, journal.Left, "backend has left: its last request and handle have ended"))
}

// forget drops the series of a backend that has left, unless it is back.
func (s *Set) forget(url string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left[url] != nil {
		delete(s.left, url)
		s.cfg.Forget(url)
	}
}

// Reload replaces the current pools, or fails and changes nothing. Running requests keep the pools with
// which they started. A backend that stays keeps its load and health. One that leaves finishes its
// running requests.
func (s *Set) Reload(cfg router.Config) error {
	c, err := s.cfg.Router.Reload(cfg, s.cfg.MaxShare, func(c router.Change) {
		for _, b := range c.Joined {
			s.join(b)
		}
	})
	if err != nil {
		return err
	}
	s.cfg.Guard(func() { s.follow(c) }) // the new pools are in force, and a panic would end the process
	return nil
}

// follow does what follows from a change of the pools.
func (s *Set) follow(c router.Change) {
	for _, b := range c.Left {
		s.remove(b)
	}
	for _, b := range c.Joined {
		if t := s.get(b.Twin()); t != nil && t.models.Load() != nil { // what was asked of the engine in its other role
			listed(s, b, t.models.Load())
		}
	}
	for _, b := range slices.Concat(c.Joined, c.Resumed) {
		s.warm.cold(b, true)
	}
	s.wakeClosed()
	s.compareModels()
	s.compareReleases()
	s.LookForOutage()
}

// wakeClosed lets the checks of backends that are not ready tell soon when these have drained.
func (s *Set) wakeClosed() {
	for b := range s.all() {
		if b.Closed() {
			s.checkNow(b)
		}
	}
}

// Leaving lists the removed backends that still serve requests.
func (s *Set) Leaving() (all []*router.Backend) {
	for b, e := range s.all() {
		if e.removed.Load() {
			all = append(all, b)
		}
	}
	slices.SortFunc(all, func(a, b *router.Backend) int {
		return cmp.Or(cmp.Compare(a.Role, b.Role), cmp.Compare(a.URL, b.URL))
	})
	return all
}

// Stalled ejects a backend if none of its streams has made progress for long and no answer was complete, because then the
// engine hangs and not a single stream. Its client notes progress once a second, when it moves the deadlines of streams.
func (s *Set) Stalled(b *router.Backend) {
	if e := s.get(b); e != nil && e.Stalled(s.cfg.Silence()) {
		s.cfg.Router.Eject(b, router.EjectStall)
	}
}
