package proxy

import (
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"
	"xpyd/netio"
	"xpyd/router"
)

// errRemoved is a dial to a backend that a reload has taken away.
var errRemoved = errors.New("backend was removed from the configuration")

// upstreams finds the client of a backend. Readers take one atomic load; the map is
// replaced, never changed.
type upstreams struct {
	mu      sync.Mutex // of writers
	m       atomic.Pointer[map[*router.Backend]*upstream]
	scratch *netio.Scratch // of all connections
	lookup  lookup         // of names; nil: the system's resolver. Set before requests come
}

// get returns nil for a backend that was removed and has nothing in flight any more.
func (u *upstreams) get(b *router.Backend) *upstream { return u.all()[b] }

func (u *upstreams) all() map[*router.Backend]*upstream {
	if m := u.m.Load(); m != nil {
		return *m
	}
	return nil
}

func (u *upstreams) edit(f func(m map[*router.Backend]*upstream)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	next := maps.Clone(u.all())
	if next == nil {
		next = map[*router.Backend]*upstream{}
	}
	f(next)
	u.m.Store(&next)
}

// join makes a client for a backend and starts its probes.
func (s *Server) join(b *router.Backend) {
	u := newUpstream(b.Addr, b.Host, s.cfg.Timeouts.Dial, s.cfg.Timeouts.UpstreamIdle)
	u.name, u.spare, u.watch = newBackendName(b.Addr, s.upstreams.lookup), s.spareDescriptors, s.watch
	u.scratch = s.upstreams.scratch
	s.upstreams.edit(func(m map[*router.Backend]*upstream) { m[b] = u })
	s.probes.start(b, u)
}

// leave lets a backend's requests end; its probe sees to the rest.
func (s *Server) leave(b *router.Backend) {
	if u := s.upstreams.get(b); u != nil {
		u.leaving.Store(true)
		s.probes.suspect(b)
	}
}

// forget is called by the probe of a backend that has left and serves nothing more.
func (s *Server) forget(b *router.Backend, u *upstream) {
	again := false // the same engine in the other pool, or back in this one
	s.upstreams.edit(func(m map[*router.Backend]*upstream) {
		delete(m, b)
		for o := range m {
			again = again || o.URL == b.URL
		}
	})
	u.close()
	if !again {
		s.metrics.Forget(b.URL)
	}
}

// stalled ejects a backend on which no stream has gone on for timeouts.stream_idle: not
// one stream hangs, but the engine. Progress is noted once a second, as the deadlines of
// streams are moved, which have that second more.
func (s *Server) stalled(b *router.Backend) {
	u := s.upstreams.get(b)
	if u != nil && time.Since(u.born)-time.Duration(u.progress.Load()) >= s.cfg.Timeouts.StreamIdle+rearm {
		s.router.Eject(b, router.EjectStall)
	}
}

// Reload puts other pools in place of the current ones, or fails and changes nothing.
// Requests that run keep the pools they started with; a backend that stays keeps its
// load and health, one that goes serves what it has.
func (s *Server) Reload(cfg router.Config) error {
	c, err := s.router.Reload(cfg, s.cfg.DecodeOnly.MaxShare, func(c router.Change) {
		for _, b := range c.Joined {
			s.join(b)
		}
	})
	if err != nil {
		s.metrics.Reload(false)
		return err
	}
	for _, b := range c.Left {
		s.leave(b)
	}
	for _, b := range c.Joined {
		s.warm.cold(b, true)
	}
	s.compareModels()
	s.lookForOutage()
	s.metrics.Reload(true)
	return nil
}

// ReloadFailed counts a configuration that could not even be read.
func (s *Server) ReloadFailed() { s.metrics.Reload(false) }
