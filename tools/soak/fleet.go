package soak

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"xpyd/sim"
	"xpyd/sim/faultnet"
	"xpyd/tools/completion"
)

// These are the engines of a soak. Their clocks run faster than those of real ones, so that an hour
// holds many leases. The proxy's configuration matches them.
const (
	kvLease       = 6 * time.Second
	kvLeaseMargin = time.Second
	tokenLatency  = 50 * time.Millisecond
	prefillSpeed  = 20_000 // tokens a second
)

// prefillTime is how long an engine takes for a prompt of that many bytes. Four bytes are a token.
func prefillTime(bytes int) time.Duration {
	return time.Duration(bytes/4) * time.Second / prefillSpeed
}

// station is one engine and the relay in front of it. The proxy knows only the relay.
type station struct {
	*sim.Engine
	relay *faultnet.Relay
	role  sim.Role

	mu      sync.Mutex
	killed  bool           // on purpose
	freedBy map[string]int // in the incarnations before this one
	stale   int            // the same
	seen    time.Time      // entries that were freed earlier have been looked at
	found   func(leased)   // called for each entry that only its lease has freed, soon after
}

// leased is a pinned entry that no release has freed.
type leased struct {
	station *station
	entry   sim.Entry
}

// fleet is three prefill and three decode engines, each with its relay.
type fleet struct {
	prefill, decode []*station
	control         *sim.Engine // without a relay, a fault or a place in a pool
	book            *handleBook

	mu    sync.Mutex
	decOf map[string]string // client's id → decode engine, until it is asked for
	older map[string]string // the generation before, so that the memory is bounded
}

const decodeOfKept = 4096

// startFleet returns what it has started, even if it fails. injected is called for each thing
// that a relay does on purpose.
func startFleet(o Options, certs *runCerts, book *handleBook, injected func(name string, i faultnet.Injection), found func(leased)) (*fleet, error) {
	f := &fleet{book: book, decOf: map[string]string{}}
	var err error
	if f.control, err = sim.Start(sim.Options{Model: completion.Model, MaxSeqs: 2*o.Streams + 64, NumBlocks: 160*o.Streams + 8192, PrefillTokensPerSecond: prefillSpeed, TokenLatency: tokenLatency, MaxBatchedTokens: -1, NoPrefixCaching: true}); err != nil {
		return f, fmt.Errorf("start the control engine: %w", err)
	}
	for i := range 2 * poolSize {
		opts := sim.Options{
			Name: fmt.Sprintf("prefill-%d", i), Role: sim.RolePrefill, Model: completion.Model,
			// One engine has room for all clients, and no prompt waits for another. Queues in the
			// engine are not what is tested.
			MaxSeqs: 2*o.Streams + 64, NumBlocks: 160*o.Streams + 8192,
			PrefillTokensPerSecond: prefillSpeed, TokenLatency: tokenLatency, MaxBatchedTokens: -1, NoPrefixCaching: true,
			Lease: kvLease, HandshakeTimeout: time.Second,
			Log: book, Hook: f.hook, TLS: certs.server(),
		}
		if i >= poolSize {
			opts.Name, opts.Role = fmt.Sprintf("decode-%d", i-poolSize), sim.RoleDecode
		}
		s, err := startStation(opts, o.Seed+uint64(i), injected)
		if s != nil {
			s.found = found
		}
		if s != nil && s.role == sim.RolePrefill {
			f.prefill = append(f.prefill, s)
		} else if s != nil {
			f.decode = append(f.decode, s)
		}
		if err != nil {
			return f, fmt.Errorf("start %s: %w", opts.Name, err)
		}
	}
	return f, nil
}

const poolSize = 3

func startStation(opts sim.Options, seed uint64, injected func(string, faultnet.Injection)) (*station, error) {
	ports, err := keptPorts(3)
	if err != nil {
		return nil, err
	}
	opts.Listen, opts.SideChannel = ports[0], ports[1]
	e, err := sim.Start(opts)
	if err != nil {
		return nil, err
	}
	s := &station{Engine: e, role: opts.Role, freedBy: map[string]int{}, seen: time.Now()}
	s.relay, err = faultnet.Listen(e.Addr(), faultnet.Options{Listen: ports[2], Seed: seed, Log: func(i faultnet.Injection) { injected(opts.Name, i) }})
	if err != nil {
		return s, fmt.Errorf("its relay: %w", err)
	}
	return s, nil
}

// keptPorts returns free ports that no outgoing connection gets. So engines and relays that were
// away for a while can come back to the port that they had.
func keptPorts(n int) (addrs []string, err error) {
	const first, last = 20_000, 30_000 // below Linux's net.ipv4.ip_local_port_range
	for tries := 0; len(addrs) < n; tries++ {
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first+rand.IntN(last-first)))
		if err == nil {
			addrs = append(addrs, ln.Addr().String())
			err = ln.Close()
		}
		if err != nil && tries > 100 {
			return nil, fmt.Errorf("find %d free ports from %d to %d: %w", n, first, last, err)
		}
	}
	return addrs, nil
}

// url is the base URL that the proxy knows, of the relay.
func (s *station) url() string {
	if strings.HasPrefix(s.URL(), "https://") {
		return "https://" + s.relay.Addr()
	}
	return s.relay.URL()
}

func (f *fleet) all() []*station { return slices.Concat(f.prefill, f.decode) }

func (f *fleet) close() error {
	var errs []error
	if f.control != nil {
		errs = append(errs, f.control.Close())
	}
	for _, s := range f.all() {
		errs = append(errs, s.Close())
		if s.relay != nil {
			errs = append(errs, s.relay.Close())
		}
	}
	return errors.Join(errs...)
}

// hook is the engines' sim.Options.Hook. It notes which engine decodes which request.
func (f *fleet) hook(ev sim.Event) {
	if ev.Phase != sim.PhaseDecodeReceived || len(ev.RequestID) <= completion.LegSuffix {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.decOf) == decodeOfKept {
		f.older, f.decOf = f.decOf, map[string]string{}
	}
	f.decOf[ev.RequestID[:len(ev.RequestID)-completion.LegSuffix]] = ev.Engine
}

// decodeOf returns the decode engine that had the client's request last.
func (f *fleet) decodeOf(id string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if name, ok := f.decOf[id]; ok {
		return name
	}
	return f.older[id]
}

func relayURLs(stations []*station) []string {
	var all []string
	for _, s := range stations {
		all = append(all, s.url())
	}
	return all
}

// kill ends the engine as kill -9 does, and keeps the accounts that die with it.
func (s *station) kill() {
	s.mu.Lock()
	s.killed = true
	s.mu.Unlock()
	s.look()
	s.Kill()
	s.look() // for what was freed meanwhile
	l := s.Ledger()
	s.mu.Lock()
	defer s.mu.Unlock()
	for by, n := range l.FreedBy {
		s.freedBy[by] += n
	}
	for _, e := range l.Entries {
		if e.FreedBy == "" {
			s.freedBy["death"]++
		}
	}
	s.stale += l.StaleReads
}

// restart brings a killed engine back, with a new engine id and an empty ledger.
func (s *station) restart() error {
	if err := s.Restart(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killed, s.seen = false, time.Now()
	return nil
}

// died reports whether the engine has ended without kill.
func (s *station) died() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.killed {
		return false
	}
	select {
	case <-s.Died():
		return true
	default:
		return false
	}
}

// look notes the entries that their lease has freed since the last time. The ledger remembers 4096
// freed ones, which is 40 s at 100 a second.
func (s *station) look() {
	entries := s.Ledger().Entries
	now := time.Now()
	s.mu.Lock()
	seen := s.seen
	s.seen = now
	s.mu.Unlock()
	for _, e := range entries {
		if e.FreedBy == "lease" && !e.FreedAt.Before(seen) && e.FreedAt.Before(now) {
			s.found(leased{s, e})
		}
	}
}

// books returns how all entries of all incarnations ended, and the number of reads of blocks that
// were no longer pinned.
func (s *station) books() (freedBy map[string]int, stale int) {
	l := s.Ledger()
	s.mu.Lock()
	defer s.mu.Unlock()
	freedBy = map[string]int{}
	for by, n := range s.freedBy {
		freedBy[by] += n
	}
	stale = s.stale
	if !s.killed { // otherwise they are counted already
		for by, n := range l.FreedBy {
			freedBy[by] += n
		}
		stale += l.StaleReads
	}
	return freedBy, stale
}

// books returns those of all prefill engines together.
func (f *fleet) books() (freedBy map[string]int, stale int) {
	freedBy = map[string]int{}
	for _, s := range f.prefill {
		by, n := s.books()
		for how, count := range by {
			freedBy[how] += count
		}
		stale += n
	}
	return freedBy, stale
}

// pinnedNow returns the sum over all prefill engines.
func (f *fleet) pinnedNow() int {
	n := 0
	for _, s := range f.prefill {
		n += s.Ledger().Pinned
	}
	return n
}
