package kvevents

import (
	"context"
	"net"
	"strconv"
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
	Guard  func(func()) (ok bool) // runs a function and survives its panic
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

// round starts and ends sources as the pools say. Each engine may take the same part of the memory.
func (m *Manager) round(ctx context.Context) {
	snap := m.cfg.Router.Snapshot()
	wanted := map[*router.Backend]router.Entry{}
	for _, role := range router.Roles() {
		for _, member := range snap.Members(role) {
			if member.Entry.Events != "" && member.Backend.Rank != router.AutoRank && snap.Remembers(role) {
				wanted[member.Backend] = member.Entry
			}
		}
	}
	for b, s := range m.sources {
		if e, ok := wanted[b]; !ok || atRank(e.Events, b.Rank) != s.events || atRank(e.Replay, b.Rank) != s.replay {
			m.end(b)
		}
	}
	for b, e := range wanted {
		if m.sources[b] == nil {
			m.begin(ctx, b, e)
		}
	}
	memory := router.NewsMemory(snap)
	m.names.resize(memory / 4)
	for _, s := range m.sources {
		s.most.Store(memory * 3 / 4 / blockBytes / int64(len(m.sources)))
	}
}

func (m *Manager) begin(ctx context.Context, b *router.Backend, e router.Entry) {
	news := router.NewsOf(b)
	s := &source{
		events: atRank(e.Events, b.Rank), replay: atRank(e.Replay, b.Rank), dial: m.cfg.Dial,
		log:  m.cfg.Log.With().Str("role", b.Role.String()).Str("backend", b.URL).Logger(),
		news: news, counts: news.Counts(), done: make(chan struct{}), heard: make(chan prefix.Heard, heardRoom),
	}
	s.index = newIndex(news, m.names, &s.most)
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

// atRank returns the address of a rank, whose port is as many above that of the first one. vLLM has it so.
func atRank(addr string, rank int) string {
	host, port, err := net.SplitHostPort(addr)
	n, wrong := strconv.Atoi(port)
	if err != nil || wrong != nil || rank <= 0 {
		return addr
	}
	return net.JoinHostPort(host, strconv.Itoa(n+rank))
}
