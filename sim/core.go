package sim

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// core is one incarnation of an engine, from start to death. Everything that it starts goes through
// spawn and track, so that stop ends it and wg.Wait waits for it.
type core struct {
	e       *Engine
	o       Options
	id      string // engine id, by which other engines know this incarnation
	print   string // system_fingerprint
	ledger  *ledger
	pace    *pace
	steps   *steps // nil without a profile
	metrics *metrics
	peers   *peers
	targets sync.Map   // of ConnectorWrite: which engine each prefill is for, by what it is pinned under
	pulling sync.Mutex // held by the pull whose turn it is, where a profile says so and no steps are taken
	gate    gate
	serving atomic.Int64 // HTTP requests in flight, for /load

	life context.Context // ends with the incarnation
	end  context.CancelFunc
	wg   sync.WaitGroup

	mu    sync.Mutex
	http  net.Listener
	side  net.Listener // nil without a connector
	boot  net.Listener // nil without a bootstrap server
	conns map[net.Conn]struct{}
	ended bool

	encodings encodings
	adapters  *adapters // nil: it loads none

	refusing bool // the HTTP port is closed by a fault
	kept     places
}

func startCore(e *Engine, o Options) (*core, error) {
	c := &core{
		e: e, o: o, id: newEngineID(), print: "vllm-" + o.Version + "-" + randomHex(4),
		ledger: newLedger(o), pace: newPace(), metrics: newMetrics(o), peers: newPeers(), conns: map[net.Conn]struct{}{},
	}
	if e.loads {
		c.adapters = new(adapters)
	}
	c.life, c.end = context.WithCancel(context.Background())
	var err error
	if c.http, err = net.Listen("tcp", o.Listen); err != nil {
		return nil, fmt.Errorf("listen for HTTP on %s: %w", o.Listen, err)
	}
	c.o.Listen = c.http.Addr().String()
	if o.reachable() {
		if c.side, err = net.Listen("tcp", o.SideChannel); err != nil {
			_ = c.http.Close() // the first error is the one to report
			return nil, fmt.Errorf("listen for the side channel on %s: %w", o.SideChannel, err)
		}
		if o.Connector == ConnectorMoriio || o.Connector == ConnectorWrite {
			c.id = c.side.Addr().String() // so a restarted engine has the same id
		}
		c.spawn(func() { c.accept(c.side, c.serveSide) })
		c.spawn(c.reap)
	}
	if o.connector() && o.Connector == ConnectorMooncake && o.Role == RolePrefill {
		if c.boot, err = net.Listen("tcp", o.Bootstrap); err != nil {
			c.stop(false)
			return nil, fmt.Errorf("listen for the bootstrap server on %s: %w", o.Bootstrap, err)
		}
		c.serveBootstrap(c.boot)
	}
	if o.takesSteps() {
		c.steps = newSteps(c)
	}
	if err := e.announceFrom(c); err != nil {
		c.stop(false)
		return nil, err
	}
	l := c.http // a refuse fault replaces the field
	c.spawn(func() { c.accept(l, c.serveLate) })
	return c, nil
}

// accept serves each connection of l on its own goroutine until l is closed.
func (c *core) accept(l net.Listener, serve func(net.Conn)) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		c.gate.wait()
		if !c.track(conn) {
			_ = conn.Close() // the engine is ending and serves no one
			return
		}
		if !c.spawn(func() { defer c.untrack(conn); serve(conn) }) {
			c.untrack(conn)
			return
		}
	}
}

// serveLate serves a connection after a slow-accept fault lets it in.
func (c *core) serveLate(nc net.Conn) {
	if !c.pause(c.life, c.e.acceptDelay()) {
		return
	}
	if c.o.TLS == nil {
		c.serveHTTP(nc)
		return
	}
	conn := tls.Server(nc, c.o.TLS)
	c.serveHTTP(&secured{conn})
	_ = conn.Close() // says farewell, unless a fault has closed the socket
}

// secured is a connection over TLS that Close breaks off, as the end of a process does: without
// close_notify.
type secured struct{ *tls.Conn }

func (s *secured) Close() error { return s.NetConn().Close() }

// reap frees the blocks whose lease has ended.
func (c *core) reap() {
	tick := time.NewTicker(min(max(c.o.Lease/50, 2*time.Millisecond), 200*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-c.life.Done():
			return
		case <-tick.C:
		}
		c.gate.wait()
		c.metrics.expired(c.ledger.expire(time.Now()))
	}
}

// spawn runs f unless the engine is ending. The caller of stop may wait for f.
func (c *core) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	c.wg.Go(f)
	return true
}

func (c *core) track(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.conns[conn] = struct{}{}
	}
	return !c.ended
}

func (c *core) untrack(conn net.Conn) {
	c.mu.Lock()
	delete(c.conns, conn)
	c.mu.Unlock()
	_ = conn.Close() // may be closed already, by a fault or by stop
}

func (c *core) kill() { c.stop(true) }

// stop ends the incarnation. With reset its connections end with RST in place of FIN.
func (c *core) stop(reset bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.ended = true
	c.end()
	c.gate.open()
	_ = c.http.Close() // may be closed already, by a refuse fault
	c.ledger.news.Close()
	for _, l := range []net.Listener{c.side, c.boot} {
		if l != nil {
			_ = l.Close()
		}
	}
	if reset {
		c.kept.leave()
		c.kept.keep(c.o.Listen)
		for _, l := range []net.Listener{c.side, c.boot} {
			if l != nil {
				c.kept.keep(l.Addr().String())
			}
		}
	}
	for conn := range c.conns {
		if reset {
			linger0(conn)
		}
		_ = conn.Close()
	}
}

// letGo gives up the ports of an incarnation that has ended. Then the next one has them, or none
// follows.
func (c *core) letGo() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept.leave()
}

// refuse closes the HTTP port or opens it again. Connections stay.
func (c *core) refuse(on bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || c.refusing == on {
		return nil
	}
	if on {
		c.refusing = true
		err := c.http.Close()
		c.kept.keep(c.o.Listen)
		return err
	}
	l, err := net.Listen("tcp", c.o.Listen)
	if err != nil {
		return fmt.Errorf("listen for HTTP on %s again: %w", c.o.Listen, err)
	}
	c.http, c.refusing = l, false
	c.kept.leave()
	c.wg.Go(func() { c.accept(l, c.serveLate) })
	return nil
}

// pause waits for d. It returns false if ctx ended first.
func (c *core) pause(ctx context.Context, d time.Duration) bool {
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	c.gate.wait()
	return ctx.Err() == nil
}

// gate holds up everything while an engine is frozen.
type gate struct {
	mu   sync.Mutex
	held chan struct{} // nil while open; closed when it opens again
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held == nil {
		g.held = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held != nil {
		close(g.held)
		g.held = nil
	}
}

func (g *gate) wait() {
	g.mu.Lock()
	held := g.held
	g.mu.Unlock()
	if held != nil {
		<-held
	}
}

// linger0 makes the next Close of conn send RST and drop what is unsent.
func linger0(conn net.Conn) {
	if s, ok := conn.(*secured); ok {
		conn = s.NetConn()
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // fails if the connection is closed already
	}
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

func newEngineID() string {
	h := randomHex(16)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
