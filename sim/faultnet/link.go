package faultnet

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
)

// link is one connection through the relay: the client's, and the one to the target.
type link struct {
	r      *Relay
	id     int
	script Script
	gate   gate // shut for good by a black hole
	over   context.Context
	end    context.CancelFunc // the link is closed, or about to be
	closed atomic.Bool        // fin@N has sent both FINs, and what still comes is dropped

	mu     sync.Mutex
	client *net.TCPConn
	target *net.TCPConn // nil until dialled
	ended  bool         // both are closed
}

func newLink(r *Relay, id int, client *net.TCPConn, s Script) *link {
	l := &link{r: r, id: id, client: client, script: s}
	l.over, l.end = context.WithCancel(r.life)
	return l
}

// run relays until both directions have ended or the link was reset.
func (l *link) run(target string) {
	defer l.close(false)
	if op, ok := l.script.whole(); ok {
		l.r.log(Injection{Conn: l.id, Op: op.String()})
		if op.Kind == Refuse {
			l.reset()
		}
		<-l.over.Done()
		return
	}
	if !l.r.gate.wait(l.over) || !l.dial(target) {
		l.reset()
		return
	}
	up := &pump{l: l, src: l.client, dst: l.target, ops: l.script.Up, ended: make(chan struct{})}
	down := &pump{l: l, src: l.target, dst: l.client, ops: l.script.Down, ended: make(chan struct{}), down: true}
	up.other, down.other = down.ended, up.ended
	var both sync.WaitGroup
	both.Go(up.run)
	both.Go(down.run)
	both.Wait()
}

func (l *link) dial(target string) bool {
	var d net.Dialer
	nc, err := d.DialContext(l.over, "tcp", target)
	if err != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target = nc.(*net.TCPConn)
	if l.ended {
		_ = nc.Close() // the link was reset meanwhile
	}
	return !l.ended
}

// reset closes both sides with RST.
func (l *link) reset() { l.close(true) }

func (l *link) close(rst bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.ended = true
	defer l.end() // last, because the code that it wakes up closes too, without RST
	for _, nc := range []*net.TCPConn{l.client, l.target} {
		if nc == nil {
			continue
		}
		if rst {
			_ = nc.SetLinger(0) // fails on a connection that has ended already
		}
		_ = nc.Close()
	}
}
