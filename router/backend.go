package router

import (
	"fmt"
	"net"
	"net/url"
	"sync/atomic"
	"time"
)

// Role is the side of the handoff that a backend serves.
type Role uint8

// The two roles. A backend named in both pools is two Backends.
const (
	Prefill Role = iota
	Decode
)

// String is the label and log value of the role.
func (r Role) String() string {
	if r == Prefill {
		return "prefill"
	}
	return "decode"
}

// State is what the active check last found. It feeds readiness and reports.
type State int32

// States of a backend. Unknown counts as usable: xpyd starts before its engines.
const (
	Unknown State = iota
	Up
	Down
)

// refusedFor is how long a backend that refused a connection is passed over while
// another one can be had. Short: a restarting engine is wanted back at once.
const refusedFor = time.Second

// Backend is one engine in one role. Its counters are shared by all requests;
// everything else is fixed at construction.
type Backend struct {
	URL  string // as configured, without a trailing slash; the label and log value
	Addr string // host:port to dial
	Host string // authority for the Host header
	Role Role

	inflight     atomic.Int64
	tokens       atomic.Int64 // estimated prompt tokens of the requests in flight
	refusedUntil atomic.Int64 // monotonic nanoseconds of the router's clock
	state        atomic.Int32
	version      atomic.Pointer[string]
}

func newBackend(role Role, raw string) (*Backend, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" || u.Hostname() == "" {
		return nil, fmt.Errorf("%s backend %q: want http://host:port", role, raw)
	}
	port := u.Port()
	if port == "" {
		port = "80"
	}
	return &Backend{
		URL:  "http://" + u.Host,
		Addr: net.JoinHostPort(u.Hostname(), port),
		Host: u.Host,
		Role: role,
	}, nil
}

// InFlight is the number of leases held on the backend.
func (b *Backend) InFlight() int64 { return b.inflight.Load() }

// State is the last finding of the active check.
func (b *Backend) State() State { return State(b.state.Load()) }

// SetState records a finding of the active check.
func (b *Backend) SetState(s State) { b.state.Store(int32(s)) }

// Version is the engine's own /version, empty while it is not known.
func (b *Backend) Version() string {
	if v := b.version.Load(); v != nil {
		return *v
	}
	return ""
}

// SetVersion records the engine's /version.
func (b *Backend) SetVersion(v string) { b.version.Store(&v) }

// String is the word that reports use.
func (s State) String() string { return [...]string{"unknown", "up", "down"}[s] }
