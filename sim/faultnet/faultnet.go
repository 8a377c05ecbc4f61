// Package faultnet is a TCP relay for tests that does to each connection what a
// script says: it slows bytes down, breaks the connection off, or swallows it, at
// an exact byte. Without a script it passes everything, FIN as FIN, each direction
// by itself, and RST as RST.
//
//	delay=D        each read, of at most 32 KiB, waits for D before it is passed on
//	slice=N,D      pieces of N bytes, each in its own write, with a pause of D (default none)
//	rate=N         N bytes a second
//	rst@N          both sides get RST after N bytes
//	fin@N          both sides get FIN after N bytes; what they still send is dropped
//	stall@N        bytes after the first N wait for ever; the other direction goes on
//	blackhole@N    after N bytes neither direction moves any more
//	corrupt@N      one bit of byte N is flipped, the first byte being 0
//	refuse         RST at accept
//	noread         accepts and never reads
//
// N counts the bytes of the op's own direction, from the connection's begin. An op
// happens as soon as N bytes went through; at 0, when the first byte comes. In a
// stall, a black hole and a freeze the kernel still acknowledges what fits its buffers.
package faultnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// injectionsKept bounds what a relay remembers for Injected.
const injectionsKept = 1 << 14

// Options change how a relay works.
type Options struct {
	Listen string          // host:port, default a free port of 127.0.0.1
	Seed   uint64          // which bits corrupt flips
	Log    func(Injection) // called for every injection as it happens; it must not call the relay
}

// Injection is one thing that a relay did on purpose.
type Injection struct {
	Conn int    // in the order of accepts, from 1; 0 is the whole relay (refuse, accept, freeze, thaw, reset)
	At   int64  // bytes that had passed in the op's direction
	Down bool   // the op's direction is from the target to the client
	Op   string // as in a script
	Flip byte   // corrupt: the bit that was flipped
	When time.Time
}

// Relay is one relay, on 127.0.0.1.
type Relay struct {
	o    Options
	addr string
	gate gate // shut by Freeze
	life context.Context
	end  context.CancelFunc
	wg   sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener // nil while refusing
	target   string
	next     []Script
	always   Script
	accepted int
	links    map[*link]struct{}
	injected []Injection // the last injectionsKept
	closed   bool
}

// Listen starts a relay to target, a host:port.
func Listen(target string, o Options) (*Relay, error) {
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	ln, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for a relay to %s: %w", target, err)
	}
	r := &Relay{o: o, addr: ln.Addr().String(), target: target, listener: ln, links: map[*link]struct{}{}}
	r.life, r.end = context.WithCancel(context.Background())
	r.wg.Go(func() { r.accept(ln) })
	return r, nil
}

// Addr is the relay's host:port. It stays the same over Refuse.
func (r *Relay) Addr() string { return r.addr }

// URL is the relay's base URL, without a trailing slash.
func (r *Relay) URL() string { return "http://" + r.addr }

// Close ends the relay, resets its connections and waits for its goroutines.
func (r *Relay) Close() error {
	r.mu.Lock()
	r.closed = true
	ln := r.listener
	r.listener = nil
	r.mu.Unlock()
	if ln != nil {
		_ = ln.Close() // nothing is lost with it
	}
	r.resetLinks()
	r.end()
	r.wg.Wait()
	return nil
}

// Retarget sends later connections to another host:port.
func (r *Relay) Retarget(target string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.target = target
}

// Next queues scripts for the next connections, one each, in the order of accepts.
func (r *Relay) Next(scripts ...Script) {
	for _, s := range scripts {
		s.mustBeValid()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next = append(r.next, scripts...)
}

// Always sets the script of every later connection that gets none from Next. The zero Script passes
// everything.
func (r *Relay) Always(s Script) {
	s.mustBeValid()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.always = s
}

// Refuse closes the port, so that connecting fails with ECONNREFUSED, or opens it
// again. Connections that are open stay.
func (r *Relay) Refuse(on bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || on == (r.listener == nil) {
		return nil
	}
	if on {
		ln := r.listener
		r.listener = nil
		r.logLocked(Injection{Op: "refuse"})
		return ln.Close()
	}
	ln, err := net.Listen("tcp", r.addr)
	if err != nil {
		return fmt.Errorf("listen on %s again: %w", r.addr, err)
	}
	r.listener = ln
	r.logLocked(Injection{Op: "accept"})
	r.wg.Go(func() { r.accept(ln) })
	return nil
}

// ResetAll breaks every open connection off with RST, on both sides.
func (r *Relay) ResetAll() {
	r.log(Injection{Op: "reset"})
	r.resetLinks()
}

func (r *Relay) resetLinks() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l := range r.links {
		l.reset()
	}
}

// Freeze stops the relay as SIGSTOP would. Old and new connections stay open, and nothing is passed
// on. A write that is under way may still end.
func (r *Relay) Freeze() {
	r.log(Injection{Op: "freeze"})
	r.gate.shut()
}

// Thaw undoes Freeze and passes on what waited.
func (r *Relay) Thaw() {
	r.log(Injection{Op: "thaw"})
	r.gate.open()
}

// Injected lists what was done, in order. It keeps the last 16384.
func (r *Relay) Injected() []Injection {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.injected)
}

func (r *Relay) log(i Injection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logLocked(i)
}

func (r *Relay) logLocked(i Injection) {
	i.When = time.Now()
	if len(r.injected) >= injectionsKept {
		r.injected = slices.Delete(r.injected, 0, injectionsKept/2)
	}
	r.injected = append(r.injected, i)
	if r.o.Log != nil {
		r.o.Log(i)
	}
}

// accept serves the connections of ln until it is closed.
func (r *Relay) accept(ln net.Listener) {
	for {
		nc, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of file descriptors, or the client has gone already
			pause(r.life, 10*time.Millisecond)
			continue
		}
		r.serve(nc.(*net.TCPConn))
	}
}

// serve hands one connection to its own goroutine.
func (r *Relay) serve(client *net.TCPConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		_ = client.Close() // the relay is gone
		return
	}
	r.accepted++
	s := r.always
	if len(r.next) > 0 {
		s, r.next = r.next[0], r.next[1:]
	}
	l := newLink(r, r.accepted, client, s)
	r.links[l] = struct{}{}
	target := r.target
	r.wg.Go(func() {
		l.run(target)
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.links, l)
	})
}
