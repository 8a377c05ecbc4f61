package netio

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"
)

// turnsWithin asks a loop for a turn.
func turnsWithin(t *testing.T, turns func(context.Context) bool, d time.Duration) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return turns(ctx)
}

const (
	longEnough = 20 * time.Second // for a loop that turns, on a busy machine
	hangs      = 50 * time.Millisecond
)

// acceptAll accepts clients until the listener is closed.
func acceptAll(l *Listener) (accepted <-chan net.Conn) {
	all := make(chan net.Conn)
	go func() {
		defer close(all)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all <- conn
		}
	}()
	return all
}

// A loop that waits for clients answers each question, and still takes clients. A loop that hangs
// answers none, until it goes on.
func TestListenerTurns(t *testing.T) {
	t.Parallel()
	port, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	hanging, release := make(chan struct{}), make(chan struct{})
	l, err := NewListener(port, Terms{PerIP: 1, TurnedAway: func(string) {
		close(hanging)
		<-release
	}})
	if err != nil {
		t.Fatal(err)
	}
	accepted := acceptAll(l)
	for n := range 3 {
		if !turnsWithin(t, l.Turns, longEnough) {
			t.Fatalf("question %d: no turn", n)
		}
	}
	dialLocal(t, l)
	defer func(c net.Conn) { _ = c.Close() }(<-accepted)
	dialLocal(t, l)
	<-hanging
	for range 2 {
		if turnsWithin(t, l.Turns, hangs) {
			t.Fatal("a loop that hangs made a turn")
		}
	}
	close(release)
	if !turnsWithin(t, l.Turns, longEnough) {
		t.Error("no turn after the loop went on")
	}
	_ = l.Close()
	<-accepted
	if !turnsWithin(t, l.Turns, longEnough) {
		t.Error("a closed listener must turn")
	}
}

func dialLocal(t *testing.T, l *Listener) {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
}

// hangingWatch is a Departing that keeps the watcher from going on.
type hangingWatch struct{ called, release chan struct{} }

func (h *hangingWatch) ClientGone()     { close(h.called); <-h.release }
func (h *hangingWatch) ServerStopping() {}

func TestWatcherTurns(t *testing.T) {
	t.Parallel()
	w, err := NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	closeOnce := sync.OnceFunc(w.Close)
	t.Cleanup(closeOnce)
	for n := range 3 {
		if !turnsWithin(t, w.Turns, longEnough) {
			t.Fatalf("nobody is watched, question %d: no turn", n)
		}
	}
	server, client := tcpPair(t)
	var e Watch
	h := &hangingWatch{called: make(chan struct{}), release: make(chan struct{})}
	w.add(&e, joined(t, w, server), h)
	if !turnsWithin(t, w.Turns, longEnough) {
		t.Fatal("one is watched: no turn")
	}
	_ = client.Close()
	<-h.called
	for range 2 {
		if turnsWithin(t, w.Turns, hangs) {
			t.Fatal("a watcher that hangs made a turn")
		}
	}
	close(h.release)
	if !turnsWithin(t, w.Turns, longEnough) {
		t.Error("no turn after the watcher went on")
	}
	closeOnce()
	if !turnsWithin(t, w.Turns, longEnough) {
		t.Error("a closed watcher must turn")
	}
}
