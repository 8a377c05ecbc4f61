package proxy

import (
	"bytes"
	"context"
	"maps"
	"net"
	"sync"
	"sync/atomic"

	"xpyd/handoff"
	"xpyd/netio"
	"xpyd/router"
	"xpyd/upstream"
)

// engine is what the proxy knows of one backend's engine, and its client.
type engine struct {
	*upstream.Client
	id       atomic.Pointer[string]    // of the engine, in the last handle that came from here
	models   atomic.Pointer[modelList] // what it served when it last came up
	vitality vitality
	releases *handoff.Places
	wake     chan struct{} // probes it at once; capacity 1
	removed  atomic.Bool   // by a reload
}

// engineSet finds the engine of a backend. Readers take one atomic load; the map is
// replaced, never changed.
type engineSet struct {
	mu      sync.Mutex // of writers
	m       atomic.Pointer[map[*router.Backend]*engine]
	scratch *netio.Scratch  // of all connections
	lookUp  upstream.LookUp // of names; nil: the system's resolver. Set before requests come
}

// get returns nil for a backend that was removed and has nothing in flight any more.
func (e *engineSet) get(b *router.Backend) *engine { return e.all()[b] }

// client is the one of get; nil, too, for an exchange that then fails as a dial.
func (e *engineSet) client(b *router.Backend) *upstream.Client {
	if g := e.get(b); g != nil {
		return g.Client
	}
	return nil
}

// release is what a release needs of an engine: its client, and the releases under way there.
func (e *engineSet) release(b *router.Backend) (*upstream.Client, *handoff.Places) {
	if g := e.get(b); g != nil {
		return g.Client, g.releases
	}
	return nil, nil
}

func (e *engineSet) all() map[*router.Backend]*engine {
	if m := e.m.Load(); m != nil {
		return *m
	}
	return nil
}

func (e *engineSet) edit(f func(m map[*router.Backend]*engine)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	next := maps.Clone(e.all())
	if next == nil {
		next = map[*router.Backend]*engine{}
	}
	f(next)
	e.m.Store(&next)
}

// spareDescriptors closes the connections that no request uses.
func (e *engineSet) spareDescriptors() {
	for _, g := range e.all() {
		g.DropIdle()
	}
}

// dialBackend is the dialer of the probes: they must see a name as completions do.
func (s *Server) dialBackend(ctx context.Context, network, addr string) (net.Conn, error) {
	for _, e := range s.engines.all() {
		if e.Addr() == addr {
			return e.Dial(ctx)
		}
	}
	return (&net.Dialer{Timeout: s.cfg.Timeouts.Dial}).DialContext(ctx, network, addr)
}

// join makes a client for a backend and starts its probes.
func (s *Server) join(b *router.Backend) {
	e := &engine{wake: make(chan struct{}, 1), releases: handoff.NewPlaces(), Client: upstream.New(upstream.Config{
		Addr: b.Addr, Host: b.Host, DialTimeout: s.cfg.Timeouts.Dial, MaxIdle: s.cfg.Timeouts.UpstreamIdle,
		LookUp: s.engines.lookUp, Spare: s.engines.spareDescriptors, Scratch: s.engines.scratch, Watcher: s.watch,
	})}
	s.engines.edit(func(m map[*router.Backend]*engine) { m[b] = e })
	s.probes.start(b, e)
}

// removeEngine lets a backend's requests end; its probe sees to the rest.
func (s *Server) removeEngine(b *router.Backend) {
	if e := s.engines.get(b); e != nil {
		e.removed.Store(true)
		s.probes.suspect(b)
	}
}

// dropEngine is called by the probe of a backend that was removed and serves nothing more.
func (s *Server) dropEngine(b *router.Backend, e *engine) {
	again := false // the same engine in the other pool, or back in this one
	s.engines.edit(func(m map[*router.Backend]*engine) {
		delete(m, b)
		for o := range m {
			again = again || o.URL == b.URL
		}
	})
	e.Close()
	if !again {
		s.metrics.Forget(b.URL)
	}
}

// stalled ejects a backend on which no stream has gone on for timeouts.stream_idle: not
// one stream hangs, but the engine. Progress is noted once a second, as the deadlines of
// streams are moved, which have that second more.
func (s *Server) stalled(b *router.Backend) {
	if e := s.engines.get(b); e != nil && e.Stalled(s.cfg.Timeouts.StreamIdle+rearm) {
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
		s.removeEngine(b)
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

// engineSeen notices that an engine was started anew: its handles carry another id.
// What was known against its predecessor is forgotten.
func (s *Server) engineSeen(b *router.Backend, id []byte) {
	e := s.engines.get(b)
	if e == nil {
		return
	}
	id = withoutRank(id)
	old := e.id.Load()
	if len(id) == 0 || old != nil && *old == string(id) {
		return
	}
	fresh := string(id)
	if e.id.CompareAndSwap(old, &fresh) && old != nil {
		s.log.Info().Str("prefill", b.URL).Msg("prefill engine has restarted")
		b.Reset()
		s.warm.cold(b, true)
	}
}

// withoutRank cuts _dp<rank> off: one vLLM with several data parallel ranks answers
// with the id of whichever computed.
func withoutRank(id []byte) []byte {
	if i := bytes.LastIndex(id, []byte("_dp")); i > 0 && netio.AllDigits(id[i+3:]) {
		return id[:i]
	}
	return id
}
