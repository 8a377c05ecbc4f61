package sim

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"
)

// peerKey names one incarnation of another engine.
type peerKey struct {
	host   string
	port   int
	engine string
}

// peers is what an engine knows of others: those that it has shaken hands with, and idle
// connections to them. A known peer that is gone fails at once. An unknown one fails only after
// Options.HandshakeTimeout, as on the real engine.
type peers struct {
	mu    sync.Mutex
	known map[peerKey]bool
	idle  map[peerKey][]*peerConn
}

func newPeers() *peers {
	return &peers{known: map[peerKey]bool{}, idle: map[peerKey][]*peerConn{}}
}

// peerConn is a connection to a peer after the handshake.
type peerConn struct {
	key peerKey
	nc  net.Conn
	in  *json.Decoder
	out *json.Encoder
}

var errIncompatible = errors.New("incompatible peer")

// errRefused is the answer of a peer that lives.
var errRefused = errors.New("refused")

// knows reports whether the engine has shaken hands with key.
func (p *peers) knows(key peerKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known[key]
}

// forget drops the idle connections to key.
func (c *core) forget(key peerKey) {
	c.peers.mu.Lock()
	defer c.peers.mu.Unlock()
	for _, conn := range c.peers.idle[key] {
		c.discard(conn)
	}
	delete(c.peers.idle, key)
}

// connect returns a connection to key. It waits without a limit for a peer that accepts and is
// silent, because a frozen one does that.
func (c *core) connect(key peerKey) (*peerConn, error) {
	p := c.peers
	p.mu.Lock()
	known := p.known[key]
	if n := len(p.idle[key]); n > 0 {
		conn := p.idle[key][n-1]
		p.idle[key] = p.idle[key][:n-1]
		p.mu.Unlock()
		return conn, nil
	}
	p.mu.Unlock()
	nc, err := c.dial(key, known)
	if err != nil {
		return nil, err
	}
	conn := &peerConn{key: key, nc: nc, in: json.NewDecoder(bufio.NewReader(nc)), out: json.NewEncoder(nc)}
	if err := c.shakeHands(conn); err != nil {
		c.untrack(nc)
		return nil, err
	}
	p.mu.Lock()
	p.known[key] = true
	p.mu.Unlock()
	return conn, nil
}

// dialPatience is how long one dial may take, however short Options.HandshakeTimeout is. That
// option is about peers that refuse, and a busy machine connects late to a peer that is there.
const dialPatience = 5 * time.Second

func (c *core) dial(key peerKey, known bool) (net.Conn, error) {
	address := net.JoinHostPort(key.host, strconv.Itoa(key.port))
	deadline := time.Now().Add(c.o.HandshakeTimeout)
	dialer := net.Dialer{Timeout: max(c.o.HandshakeTimeout, dialPatience)}
	for {
		nc, err := dialer.DialContext(c.life, "tcp", address)
		if err == nil {
			if !c.track(nc) {
				_ = nc.Close()
				return nil, fmt.Errorf("dial peer %s: engine is ending", address)
			}
			return nc, nil
		}
		if known || !time.Now().Before(deadline) || !c.pause(c.life, min(10*time.Millisecond, c.o.HandshakeTimeout)) {
			return nil, fmt.Errorf("dial peer %s: %w", address, err)
		}
	}
}

func (c *core) shakeHands(conn *peerConn) error {
	reply, err := conn.ask(sideMessage{Op: "handshake"})
	if err != nil {
		return err
	}
	if conn.key.engine != "" && reply.Engine != conn.key.engine {
		return fmt.Errorf("shake hands with %s: it is engine %s: %w", conn.key.engine, reply.Engine, errIncompatible)
	}
	if reply.Version != c.o.Version || reply.Model != c.o.Model || reply.BlockSize != c.o.BlockSize {
		return fmt.Errorf("shake hands with %s: it runs %s, model %s, blocks of %d: %w",
			conn.key.engine, reply.Version, reply.Model, reply.BlockSize, errIncompatible)
	}
	if why := c.o.Parallel.refuses(reply.TP); why != "" {
		return fmt.Errorf("shake hands with %s: %s: %w", conn.key.engine, why, errIncompatible)
	}
	return nil
}

func (p *peerConn) ask(m sideMessage) (sideReply, error) {
	var reply sideReply
	if err := p.out.Encode(m); err != nil {
		return reply, fmt.Errorf("send %s to peer %s: %w", m.Op, p.key.engine, err)
	}
	if err := p.in.Decode(&reply); err != nil {
		return reply, fmt.Errorf("await %s from peer %s: %w", m.Op, p.key.engine, err)
	}
	if reply.Error != "" {
		return reply, fmt.Errorf("ask peer %s: %w: %s", p.key.engine, errRefused, reply.Error)
	}
	return reply, nil
}

// park keeps a connection for the next use. discard drops it after an error.
func (c *core) park(conn *peerConn) {
	c.peers.mu.Lock()
	defer c.peers.mu.Unlock()
	c.peers.idle[conn.key] = append(c.peers.idle[conn.key], conn)
}

func (c *core) discard(conn *peerConn) { c.untrack(conn.nc) }

// pull reads the blocks over the side channel, and takes the time that this costs.
func (c *core) pull(h handle, blocks []int) ([]uint64, error) {
	conn, err := c.connect(h.peer)
	if err != nil {
		return nil, err
	}
	c.pullTime(len(blocks))
	reply, err := conn.ask(sideMessage{Op: "read", Request: h.request, Blocks: blocks})
	c.gate.wait()
	if err != nil {
		c.discard(conn)
		return nil, err
	}
	c.park(conn)
	return reply.Contents, nil
}

// tell sends a notification or a heartbeat, which gets no answer.
func (c *core) tell(key peerKey, m sideMessage) error {
	conn, err := c.connect(key)
	if err != nil {
		return err
	}
	if err := conn.out.Encode(m); err != nil {
		c.discard(conn)
		return fmt.Errorf("send %s to peer %s: %w", m.Op, key.engine, err)
	}
	c.park(conn)
	return nil
}

// notify tells h's prefill engine that its blocks are no longer needed. If that fails it returns
// false, and the blocks wait for the lease.
func (c *core) notify(h handle, by string) bool {
	if !h.addressable() {
		return true // there is no engine to tell
	}
	peer, err := c.locate(h)
	if err == nil {
		err = c.tell(peer, sideMessage{Op: "notify", Request: h.request, By: by})
	}
	if err != nil {
		c.metrics.failedNotification()
		return false
	}
	return true
}

// heartbeat renews h's lease every sixth of it until stop is closed.
func (c *core) heartbeat(h handle, stop <-chan struct{}) {
	if c.o.Lease < 6 {
		return // a lease of a few nanoseconds, with no sixth
	}
	tick := time.NewTicker(c.o.Lease / 6)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-c.life.Done():
			return
		case <-tick.C:
		}
		c.gate.wait()
		if err := c.tell(h.peer, sideMessage{Op: "heartbeat", Request: h.request}); err != nil {
			c.metrics.failedNotification()
		}
	}
}
