package router

import (
	"fmt"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"xpyd/router/prefix"
	"xpyd/router/price"
)

// refusedFor is how long a backend that refused a connection is passed over for others. It is
// short, because an engine that restarts should get requests again at once.
const refusedFor = time.Second

// Backend is one engine in one role. All requests share its counters. It lives for as long as its
// URL stays in the pool, with the same connector. The exported fields never change.
type Backend struct {
	vitals
	kin

	URL  string // as configured, without a trailing slash; also the value in labels and logs
	TLS  bool   // the URL is https://
	Addr string // host:port to dial
	Host string // authority for the Host header
	// Prefix is what the path of each request to it begins with: /vllm-a of http://host/vllm-a.
	Prefix string
	Role   Role
	// Rank is the data-parallel rank that this backend is, NoRank for a whole engine, or AutoRank for
	// an engine whose number of ranks is still unknown. The URL ends in it.
	Rank int
	// Connector names the connector by which its engine hands over blocks. It is empty for the usual
	// one, see Config.Connector.
	Connector string

	router *Router

	// Bound says that the engine serves nothing without a prefill. It is set before a request can see the backend, and again
	// when the engine's version is known.
	Bound atomic.Bool

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

	checked

	// Written under router.mu.
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

	down    downList
	version atomic.Pointer[string]
	models  atomic.Pointer[[]string] // see SetModels; nil: unknown
	longest atomic.Int64             // see SetLongest
	answers price.Answers
}

// Bootstrap is the port of the connector's bootstrap server on the engine's host, or 0 for the usual
// port.
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
		URL:    u.Scheme + "://" + u.Host + prefixOf(u),
		Addr:   net.JoinHostPort(u.Hostname(), port),
		Host:   u.Host,
		Prefix: prefixOf(u),
		TLS:    u.Scheme == "https",
		Role:   role,
		Rank:   rank,
		router: r,
	}
	b.URL = JoinRank(b.URL, rank)
	if rank == AutoRank {
		b.abandoned = true // no request can name it; its checks find out what takes its place
		b.setState(Down)
	}
	b.seed = hashOf(b.URL)
	weigh(b, 1)
	b.cache.Owner = b
	b.down.idle.L = &b.down.mu
	return b, nil
}

// Name is the URL, or "" if there is no backend.
func (b *Backend) Name() string {
	if b == nil {
		return ""
	}
	return b.URL
}

// Base is the URL with which requests to the engine begin: URL without the rank.
func (b *Backend) Base() string {
	base, _ := SplitRank(b.URL)
	return base
}

// InFlight is the number of leases held on the backend.
func (b *Backend) InFlight() int64 { return b.inflight.Load() }

// HandleIssued notes that the prefill backend has pinned blocks for a decode. Until HandleEnded, a
// decode depends on the backend, although no request holds a lease on it.
func (b *Backend) HandleIssued() { b.handles.Add(1) }

// HandleEnded undoes one HandleIssued.
func (b *Backend) HandleEnded() { b.handles.Add(-1) }

// Handles is the number of its handles that have not ended.
func (b *Backend) Handles() int64 { return b.handles.Load() }

// AnswerBegun notes an answer that xpyd reads only as fast as the client does. Until AnswerEnded, the
// backend is in use, although the answer takes no slot.
func (b *Backend) AnswerBegun() { b.reading.Add(1) }

// AnswerEnded undoes one AnswerBegun.
func (b *Backend) AnswerEnded() { b.reading.Add(-1) }

// AnswerFailed feeds the outcome of such an answer into the backend's health. Call it before AnswerEnded,
// because a backend that has left its pool is forgotten as soon as nothing uses it.
func (b *Backend) AnswerFailed(o Outcome) { b.record(o) }

// InUse reports whether the backend has a lease, a handle or an answer that is being read.
func (b *Backend) InUse() bool {
	return b.InFlight() > 0 || b.handles.Load() > 0 || b.reading.Load() > 0
}

// Version is the engine's answer to /version, or empty until it is known.
func (b *Backend) Version() string {
	if v := b.version.Load(); v != nil {
		return *v
	}
	return ""
}

// Reset clears b's failures, ejection and bans, because its engine has restarted (with another engine
// id). The slow start of b begins. The active checks continue as before.
func (b *Backend) Reset() {
	r := b.router
	r.mu.Lock()
	now := r.now()
	eachRole(b, func(b *Backend) {
		b.failures.Store(0)
		b.ejections.Store(0)
		b.clearRefused()
		b.setEjected(0)
		b.ramp(now)
		b.cache.Clear()
		r.pairs.drop(func(x Pair) bool { return x.has(b) })
		r.pairs.warmAll(b, r.Snapshot().pool(b.Role.partner()).all())
	})
	r.mu.Unlock()
	r.serveAll()
}
