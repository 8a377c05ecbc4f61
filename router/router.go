// Package router decides who gets a request: pools, policies and the load that
// xpyd itself has put on each backend. It knows no HTTP.
package router

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// ErrNoBackend means that the pool has no backend left that this request may try.
var ErrNoBackend = errors.New("no backend available")

// degradedFloor decode-only requests are allowed however little else is in flight.
const degradedFloor = 4

// Snapshot is one immutable configuration of the pools. A request keeps the one it
// started with.
type Snapshot struct {
	router  *Router
	prefill pool
	decode  pool
}

type pool struct {
	backends []*Backend
	policy   policy
}

// Router hands out leases on the backends of the current snapshot.
type Router struct {
	snapshot atomic.Pointer[Snapshot]
	clock    Clock
	epoch    time.Time
	degraded atomic.Int64 // decode leases whose request could not get a prefill
	maxShare float64
}

// New builds the pools. maxShare is the part of the in-flight decode requests that
// may be there for want of a prefill.
func New(cfg Config, maxShare float64, clock Clock) (*Router, error) {
	r := &Router{clock: clock, epoch: clock(), maxShare: maxShare}
	s := &Snapshot{router: r}
	var err error
	if s.prefill, err = newPool(Prefill, cfg.Prefill, cfg.PrefillPolicy); err != nil {
		return nil, err
	}
	if s.decode, err = newPool(Decode, cfg.Decode, cfg.DecodePolicy); err != nil {
		return nil, err
	}
	if len(s.decode.backends) == 0 {
		return nil, errors.New("decode pool is empty")
	}
	r.snapshot.Store(s)
	return r, nil
}

func newPool(role Role, urls []string, policyName string) (pool, error) {
	p := pool{policy: newPolicy(policyName)}
	for _, u := range urls {
		b, err := newBackend(role, u)
		if err != nil {
			return p, fmt.Errorf("build pool: %w", err)
		}
		p.backends = append(p.backends, b)
	}
	return p, nil
}

// Snapshot is the configuration that a new request works with.
func (r *Router) Snapshot() *Snapshot { return r.snapshot.Load() }

// now is the monotonic age of the router in nanoseconds.
func (r *Router) now() int64 { return int64(r.clock().Sub(r.epoch)) }

// Backends lists a role's backends; the slice must not be changed.
func (s *Snapshot) Backends(role Role) []*Backend { return s.pool(role).backends }

func (s *Snapshot) pool(role Role) *pool {
	if role == Prefill {
		return &s.prefill
	}
	return &s.decode
}

// Acquire takes a lease on a backend of the role into l, passing over those in skip.
// tokens is the estimated size of the prompt. ErrNoBackend when none is left.
func (s *Snapshot) Acquire(role Role, tokens int, skip []*Backend, l *Lease) error {
	p := s.pool(role)
	if len(p.backends) == 0 {
		return ErrNoBackend
	}
	b := p.policy.pick(p.backends, skip, s.router.now())
	if b == nil {
		return ErrNoBackend
	}
	l.hold(s.router, b, tokens)
	return nil
}

// Degrade marks a held decode lease as one that goes without a prefill it should
// have had. False when the cap on such requests is reached; then nothing changes.
func (s *Snapshot) Degrade(l *Lease) bool {
	if l.degraded {
		return true
	}
	limit := max(degradedFloor, int64(s.router.maxShare*float64(s.decodeInFlight())))
	if s.router.degraded.Add(1) > limit {
		s.router.degraded.Add(-1)
		return false
	}
	l.degraded = true
	return true
}

func (s *Snapshot) decodeInFlight() int64 {
	var n int64
	for _, b := range s.decode.backends {
		n += b.inflight.Load()
	}
	return n
}

// Ready reports whether a completion could be served: a decode backend that is up
// and, where there is a prefill pool, a prefill backend that is up or the leave to
// go without (alone).
func (s *Snapshot) Ready(alone bool) bool {
	if !anyUp(s.decode.backends) {
		return false
	}
	return alone || len(s.prefill.backends) == 0 || anyUp(s.prefill.backends)
}

func anyUp(backends []*Backend) bool {
	for _, b := range backends {
		if b.State() == Up {
			return true
		}
	}
	return false
}
