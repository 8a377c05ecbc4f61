package router

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"xpyd/router/prefix"
)

// Role is the side of the handoff that a backend serves.
type Role uint8

// The two roles. A backend named in both pools is two Backends.
const (
	Prefill Role = iota
	Decode
)

// String is the value in labels and logs.
func (r Role) String() string {
	if r == Prefill {
		return "prefill"
	}
	return "decode"
}

// refusedFor is how long a backend that refused a connection is passed over for others. It is
// short, because an engine that restarts should get requests again at once.
const refusedFor = time.Second

// Backend is one engine in one role. All requests share its counters. It lives for as long as its
// URL stays in the pool. The exported fields never change.
type Backend struct {
	vitals

	URL  string // as configured, without a trailing slash; also the value in labels and logs
	TLS  bool   // the URL is https://
	Addr string // host:port to dial
	Host string // authority for the Host header
	Role Role
	// Rank is the data-parallel rank of the engine that this backend is, or NoRank for a whole engine.
	// The URL ends in it.
	Rank int

	router *Router

	bootstrap atomic.Int32 // port of the bootstrap server beside the engine; 0: the connector's usual one

	offered atomic.Int64 // sum of its shares over the turns it was offered, see takesTurn

	// free is when it will have computed what is in flight, see backlog. For decode, that is what
	// it computes itself.
	free atomic.Int64

	// These are for decode, about the prompts that it computes itself.
	computing  atomic.Int64 // tokens of those whose end will show
	computers  atomic.Int64 // the number of those
	whole      atomic.Int64 // when it will be done with those whose end will not show
	localMu    sync.Mutex   // held while free and whole are moved on by such prompts
	localNanos atomic.Int64 // the time that it has spent on all, see LocalTime

	pulling pulling // of decode

	freshUntil atomic.Int64 // the external load counts in full until then, see externalAt

	failures atomic.Int64 // failed legs in a row; an auth failure weighs eject_after

	// Written under router.mu.
	checkFails  atomic.Int32                       // failed active checks in a row
	checkOKs    atomic.Int32                       // passed active checks in a row
	abandoned   bool                               // it stays Down, see Abandon; also read under router.mu
	ejections   atomic.Int32                       // in a row
	ejectedAt   atomic.Int64                       // start of the last ejection
	ejectReason EjectReason                        // of the last ejection; also read under router.mu
	cold        atomic.Pointer[map[*Backend]int64] // see coldWith; replaced, never changed

	engine atomic.Pointer[EngineState] // replaced by each reading, see SetEngine

	cache prefix.Cache

	handed  atomic.Int64 // answers out of a handle, of decode
	unread  atomic.Bool  // see SetNothingPulled
	handles atomic.Int64 // handles of its blocks that have not ended
	reading atomic.Int64 // answers that are read from it without a lease
	hung    atomic.Bool  // see SetHung

	down    downList
	version atomic.Pointer[string]
	models  atomic.Pointer[[]string] // see SetModels; nil: unknown
}

// Bootstrap is the port of the connector's bootstrap server beside the engine, or 0 for the usual one.
func (b *Backend) Bootstrap() int { return int(b.bootstrap.Load()) }

func newBackend(r *Router, role Role, raw string) (*Backend, error) {
	engine, rank := SplitRank(raw)
	u, err := url.Parse(engine)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, fmt.Errorf("%s backend %q: want http://host:port or https://host:port", role, raw)
	}
	port := u.Port()
	switch {
	case port == "" && u.Scheme == "https":
		port = "443"
	case port == "":
		port = "80"
	}
	b := &Backend{
		URL:    u.Scheme + "://" + u.Host,
		Addr:   net.JoinHostPort(u.Hostname(), port),
		Host:   u.Host,
		TLS:    u.Scheme == "https",
		Role:   role,
		Rank:   rank,
		router: r,
	}
	if rank != NoRank {
		b.URL += "@" + strconv.Itoa(rank)
	}
	b.seed = hashOf(b.URL)
	b.setWeight(1)
	b.cache.Owner = b
	b.down.idle.L = &b.down.mu
	return b, nil
}

// Base is the URL that requests to the engine begin with: URL without the rank.
func (b *Backend) Base() string {
	base, _ := SplitRank(b.URL)
	return base
}

// InFlight is the number of leases held on the backend.
func (b *Backend) InFlight() int64 { return b.inflight.Load() }

// HandleIssued notes that the prefill backend has pinned blocks for a decode. Until HandleEnded a
// decode depends on it, although no lease on it is held.
func (b *Backend) HandleIssued() { b.handles.Add(1) }

// HandleEnded ends one HandleIssued.
func (b *Backend) HandleEnded() { b.handles.Add(-1) }

// Handles is the number of handles of its blocks that have not ended.
func (b *Backend) Handles() int64 { return b.handles.Load() }

// AnswerBegun notes an answer that is read as fast as its client reads. Until AnswerEnded the backend is
// in use, although the answer holds no slot of it.
func (b *Backend) AnswerBegun() { b.reading.Add(1) }

// AnswerEnded ends one AnswerBegun.
func (b *Backend) AnswerEnded() { b.reading.Add(-1) }

// AnswerFailed feeds the outcome of such an answer into the backend's health. It comes before AnswerEnded,
// because a backend that has left is forgotten when nothing uses it.
func (b *Backend) AnswerFailed(o Outcome) { b.record(o) }

// InUse reports whether a lease or a handle is held, or an answer is being read.
func (b *Backend) InUse() bool {
	return b.InFlight() > 0 || b.handles.Load() > 0 || b.reading.Load() > 0
}

// SetHung notes how the last active check failed. hung means that no connection was refused or
// broken off, so the engine or the network may be frozen and may go on later. It is called before
// Observe.
func (b *Backend) SetHung(hung bool) { b.hung.Store(hung) }

// Hung returns the value of the last SetHung.
func (b *Backend) Hung() bool { return b.hung.Load() }

// Version is the engine's answer to /version, or empty until it is known.
func (b *Backend) Version() string {
	if v := b.version.Load(); v != nil {
		return *v
	}
	return ""
}

// SetVersion records the engine's /version.
func (b *Backend) SetVersion(v string) { b.version.Store(&v) }

// Reset drops what is known against b, because its engine has restarted (with another engine id):
// failures, ejection and bans. Its slow start begins. The active checks go on as before.
func (b *Backend) Reset() {
	r := b.router
	r.mu.Lock()
	now := r.now()
	b.failures.Store(0)
	b.ejections.Store(0)
	b.clearRefused()
	b.setEjected(0)
	b.ramp(now)
	b.cache.Clear()
	r.pairs.drop(func(x Pair) bool { return x.has(b) })
	r.pairs.warmAll(b, r.Snapshot().pool(1-b.Role).all())
	r.mu.Unlock()
	r.serve(b.Role)
}
