package kvevents

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"xpyd/router"
	"xpyd/router/prefix"
)

// Config is what a manager needs from the process around it.
type Config struct {
	Router *router.Router
	Dial   func(ctx context.Context, network, addr string) (net.Conn, error)
	Get    func(ctx context.Context, b *router.Backend, path string) (status int, body []byte, err error) // asks an engine
	Guard  func(func()) (ok bool)                                                                         // runs a function and survives its panic
	Log    zerolog.Logger
}

// look is how often the pools are compared with the sources.
const look = 500 * time.Millisecond

// Manager listens to the events of the engines that the pools name a source of.
type Manager struct {
	cfg     Config
	names   *names
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	sources map[*router.Backend]*source // of the manager's goroutine
}

// Start starts a manager. Close ends it.
func Start(cfg Config) *Manager {
	m := &Manager{cfg: cfg, names: new(names), sources: map[*router.Backend]*source{}}
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	m.wg.Go(func() { m.run(ctx) })
	return m
}

// Close ends all connections, and waits for it.
func (m *Manager) Close() {
	m.cancel()
	m.wg.Wait()
}

func (m *Manager) run(ctx context.Context) {
	defer func() {
		for b := range m.sources {
			m.end(b)
		}
	}()
	for {
		m.cfg.Guard(func() { m.round(ctx) })
		select {
		case <-ctx.Done():
			return
		case <-time.After(look):
		}
	}
}

// wanted is what a source is to be started for. It is compared.
type wanted struct {
	entry address // as the entry of the engine has it, for this rank
	both  bool    // the engine has no role, and both of its backends hear of its cache
}

// round starts and ends sources as the pools say. Each engine may take the same part of the memory.
func (m *Manager) round(ctx context.Context) {
	snap := m.cfg.Router.Snapshot()
	all := map[*router.Backend]wanted{}
	for _, role := range router.Roles() {
		for _, member := range snap.Members(role) {
			b := member.Backend
			if member.Entry.Events == "" || b.Rank == router.AutoRank || !snap.Remembers(role) {
				continue
			}
			w := wanted{entry: address{atRank(member.Entry.Events, b.Rank), atRank(member.Entry.Replay, b.Rank)}}
			if t := b.Twin(); t != nil { // one subscription does for both
				w.both = snap.Remembers(t.Role)
				if w.both && role == router.Decode {
					continue
				}
			}
			all[b] = w
		}
	}
	for b, s := range m.sources {
		if w, ok := all[b]; !ok || w != s.wants {
			m.end(b)
		}
	}
	for b, w := range all {
		if m.sources[b] == nil {
			m.begin(ctx, b, w)
		}
	}
	memory := router.NewsMemory(snap)
	m.names.resize(memory / 4)
	for _, s := range m.sources {
		s.most.Store(memory * 3 / 4 / blockBytes / int64(len(m.sources)))
	}
}

func (m *Manager) begin(ctx context.Context, b *router.Backend, w wanted) {
	s := &source{
		wants: w, find: func(ctx context.Context) (address, error) { return m.find(ctx, b, w.entry) }, dial: m.cfg.Dial,
		log:  m.cfg.Log.With().Str("role", b.Role.String()).Str("backend", b.URL).Logger(),
		news: caches{router.NewsOf(b)}, done: make(chan struct{}), heard: make(chan prefix.Heard, heardRoom),
	}
	if w.both {
		s.news = append(s.news, router.NewsOf(b.Twin()))
	}
	s.index = newIndex(s.news, m.names, &s.most)
	ctx, s.cancel = context.WithCancel(ctx)
	m.sources[b] = s
	go s.run(ctx, m.cfg.Guard)
}

// end ends the source of b, and waits for it.
func (m *Manager) end(b *router.Backend) {
	s := m.sources[b]
	delete(m.sources, b)
	s.cancel()
	<-s.done
}
