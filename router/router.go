// Package router decides which backend gets a request: pools, policies, health, and the load that
// xpyd itself has put on each backend. It does not know HTTP.
package router

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// The reasons why there is no lease.
var (
	// ErrNoBackend means that the pool has no backend left that this request may try.
	ErrNoBackend = errors.New("no backend available")
	// ErrAllDown is the ErrNoBackend of a pool whose backends are all Down.
	ErrAllDown = fmt.Errorf("%w: every backend of the pool is down", ErrNoBackend)
	// ErrBusy means that all backends left to this request are at their cap.
	ErrBusy = errors.New("every backend is at its cap of requests in flight")
)

// Clock tells the time. It is injected, so that tests of ejections and ramps need not sleep.
type Clock func() time.Time

// Snapshot is one configuration of the pools. It never changes. A request keeps the snapshot with which
// it started. Two snapshots share the backends whose URL is in both.
type Snapshot struct {
	router   *Router
	pairs    *Pairs // of router
	health   Health
	routing  Routing
	queue    Line
	pd       PD
	goal     Goal
	maxShare float64 // part of the decode pool's slots, see Degrade
	affinity Affinity
	found    []string // see Config.Found
	prefill  *pool
	decode   *pool
	encode   *pool
	roleless bool // no engine has the role Decode alone
}

// Router hands out leases on the backends of the current snapshot.
type Router struct {
	snapshot atomic.Pointer[Snapshot]
	clock    Clock
	epoch    time.Time
	degraded atomic.Int64 // decode leases whose request could not get a prefill
	retries  retries
	queues   [roleCount + 1]queue // by Snapshot.line
	onEject  atomic.Pointer[func(Ejection)]
	onBan    atomic.Pointer[func(Pair, bool)]
	lookups  sync.Pool   // of *lookup
	releases atomic.Bool // see severalReleases
	shared   atomic.Bool // an engine has two roles, or has had another one, see relate
	alarm    alarm
	learned

	// mu is held while the state of a backend changes: checks, ejections, failed transfers, a new
	// snapshot. No pick takes it, nor does a release after a success.
	mu        sync.Mutex
	reloading sync.Mutex // one Reload at a time; locked before mu
}

// New builds the pools. maxShare is the share of the decode pool's slots for requests that have no
// prefill although they should; 1 means no cap.
func New(cfg Config, maxShare float64, clock Clock) (*Router, error) {
	r := &Router{clock: clock, epoch: clock()}
	r.retries.allowed = retryBurst
	r.pairs.router = r
	s, err := r.build(cfg, maxShare, &Snapshot{prefill: &pool{}, decode: &pool{}, encode: &pool{}})
	if err != nil {
		return nil, err
	}
	for _, p := range s.pools() {
		p.weigh()
		p.seat(&pool{})
	}
	relate(s, s)
	r.snapshot.Store(s)
	s.shut(s)
	return r, nil
}

// build makes the snapshot of cfg. A backend whose URL is in old, with its connector, stays the same object.
func (r *Router) build(cfg Config, maxShare float64, old *Snapshot) (*Snapshot, error) {
	s := &Snapshot{
		router: r, pairs: &r.pairs, maxShare: maxShare,
		health: cfg.Health, routing: cfg.Routing, queue: cfg.Queue, pd: cfg.PD, goal: cfg.Goal, affinity: cfg.Affinity, found: cfg.Found,
	}
	priced := cfg.PD.Mode == PDAuto || cfg.PD.Mode != PDNever && cfg.PD.ThresholdTokens > 0
	cfg.Routing.EstimateCaches = cfg.Routing.EstimateCaches || priced
	var err error
	if s.prefill, err = r.newPool(Prefill, cfg, old.prefill); err != nil {
		return nil, err
	}
	if s.decode, err = r.newPool(Decode, cfg, old.decode); err != nil {
		return nil, err
	}
	if s.encode, err = r.newPool(Encode, cfg, old.encode); err != nil {
		return nil, err
	}
	if len(s.decode.members) == 0 {
		return nil, errors.New("decode pool is empty")
	}
	s.roleless = len(cfg.Decode) == 0
	s.decode.partners = len(s.prefill.backends)
	s.decode.cycle = cycleOf(len(s.decode.backends), s.decode.partners)
	s.prefill.remember(cfg.Routing, old.prefill)
	s.decode.remember(cfg.Routing, old.decode)
	s.prefill.limit, s.decode.limit, s.encode.limit = int64(cfg.PrefillMaxInFlight), int64(cfg.DecodeMaxInFlight), int64(cfg.EncodeMaxInFlight)
	s.sortConnectors(old)
	return s, nil
}

// Snapshot is the configuration for a new request.
func (r *Router) Snapshot() *Snapshot { return r.snapshot.Load() }

// Pairs is what the router has learned about the pairs.
func (r *Router) Pairs() *Pairs { return &r.pairs }

// now is the age of the router in nanoseconds of the monotonic clock.
func (r *Router) now() int64 { return int64(r.clock().Sub(r.epoch)) }

// Queued is the number of requests that wait for a backend of the role. For decode, it includes those
// that wait for their part of the share.
func (r *Router) Queued(role Role) int64 {
	n := r.queues[role].waiting.Load()
	if role == Decode {
		n += r.queues[degradedLine].waiting.Load()
	}
	return n
}

// Queue bounds the wait for a backend while all backends of a pool are full.
func (s *Snapshot) Queue() Line { return s.queue }

// Poll is the time between two readings of an engine's metrics. With 0, xpyd does not read them.
func (s *Snapshot) Poll() time.Duration { return s.routing.Poll }

// AffinityHeaders are the request headers that tie a client's requests together. The first one that a
// request has counts. The caller must not change the slice.
func (s *Snapshot) AffinityHeaders() []string { return s.affinity.Headers }

// Health bounds the active checks.
func (s *Snapshot) Health() Health { return s.health }

// Pairs is what the router has learned about the pairs. It is the same for all snapshots.
func (s *Snapshot) Pairs() *Pairs { return s.pairs }

// Backends lists a role's backends that are Ready. The caller must not change the slice.
func (s *Snapshot) Backends(role Role) []*Backend { return s.pool(role).backends }
