package netio

import (
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

type toldOf struct{ gone, stopping chan struct{} }

func (o *toldOf) ClientGone()     { close(o.gone) }
func (o *toldOf) ServerStopping() { close(o.stopping) }

func newToldOf() *toldOf {
	return &toldOf{gone: make(chan struct{}), stopping: make(chan struct{})}
}

func startWatcher(t *testing.T) *Watcher {
	t.Helper()
	w, err := NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// joined returns the far end of a connection that w watches.
func joined(t *testing.T, w *Watcher, tcp *net.TCPConn) *peer {
	t.Helper()
	c := connOn(t, tcp)
	if err := w.join(&c.peer, c.fd); err != nil {
		t.Fatal(err)
	}
	return &c.peer
}

func TestWatcherSeesEachWayToLeave(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		leave func(c *net.TCPConn)
		gone  bool
	}{
		{name: "close", gone: true, leave: func(c *net.TCPConn) {
			_ = c.Close()
		}},
		{name: "reset", gone: true, leave: func(c *net.TCPConn) {
			_ = c.SetLinger(0)
			_ = c.Close()
		}},
		{name: "half-close", gone: true, leave: func(c *net.TCPConn) {
			_ = c.CloseWrite()
		}},
		{name: "close behind pipelined bytes", gone: true, leave: func(c *net.TCPConn) {
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\n\r\n")
			_ = c.Close()
		}},
		{name: "pipelined bytes only", gone: false, leave: func(c *net.TCPConn) {
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\n\r\n")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := startWatcher(t)
			server, client := tcpPair(t)
			var e Watch
			o := newToldOf()
			w.add(&e, joined(t, w, server), o)
			tc.leave(client)
			wait := 20 * time.Second
			if !tc.gone {
				wait = 3 * watchTick
			}
			select {
			case <-o.gone:
				if !tc.gone {
					t.Fatal("told of a client that stays")
				}
			case <-time.After(wait):
				if tc.gone {
					t.Fatal("not told")
				}
			}
			w.Remove(&e)
			if len(w.entries) != 0 {
				t.Fatal("entry left behind")
			}
		})
	}
}

func TestWatcherForgetsWhoIsRemoved(t *testing.T) {
	w := startWatcher(t)
	var entries [3]Watch
	var told [3]*toldOf
	var leave [3]func() error
	for i := range entries {
		server, client := tcpPair(t)
		told[i], leave[i] = newToldOf(), client.Close
		w.add(&entries[i], joined(t, w, server), told[i])
	}
	w.Remove(&entries[1])
	w.Remove(&entries[1])
	for i := range leave {
		_ = leave[i]()
	}
	<-told[0].gone
	<-told[2].gone
	select {
	case <-told[1].gone:
		t.Fatal("told of a client that was removed")
	default:
	}
}

func TestWatcherStopsAll(t *testing.T) {
	w := startWatcher(t)
	server, _ := tcpPair(t)
	var e Watch
	o := newToldOf()
	w.add(&e, joined(t, w, server), o)
	w.StopAll()
	<-o.stopping
	w.Remove(&e)
}

// What is held for a client that has left hears of the end of the process too.
func TestWatcherStopsThoseWhoseClientHasLeft(t *testing.T) {
	w := startWatcher(t)
	server, client := tcpPair(t)
	var e Watch
	o := newToldOf()
	w.add(&e, joined(t, w, server), o)
	_ = client.Close()
	<-o.gone
	w.StopAll()
	select {
	case <-o.stopping:
	case <-time.After(20 * time.Second):
		t.Error("not told")
	}
	w.Remove(&e)
	if len(w.entries) > 0 {
		t.Error("entry left behind")
	}
}

func TestWatcherTellsOfWhoLeftBefore(t *testing.T) {
	w := startWatcher(t)
	server, client := tcpPair(t)
	c, left := watchedConn(t, w, server)
	keepTicking(t, w)
	_ = client.CloseWrite()
	<-left
	var e Watch
	o := newToldOf()
	w.add(&e, &c.peer, o)
	select {
	case <-o.gone:
	case <-time.After(20 * time.Second):
		t.Fatal("not told")
	}
}

// A slot is used again while a report about its last user may be under way.
func TestWatcherTakesNobodyForAnother(t *testing.T) {
	w := startWatcher(t)
	first, _ := tcpPair(t)
	second, _ := tcpPair(t)
	p := joined(t, w, first)
	report := unix.EpollEvent{Events: unix.EPOLLRDHUP, Fd: p.slot, Pad: p.nth}
	p.part()
	p.part()
	q := joined(t, w, second)
	if q.slot != p.slot {
		t.Fatalf("slot %d, want the freed %d", q.slot, p.slot)
	}
	w.report([]unix.EpollEvent{report})
	if q.left.Load() {
		t.Fatal("a departure was put down to the next connection")
	}
	p.part() // as late as it may be
	w.report([]unix.EpollEvent{{Events: unix.EPOLLRDHUP, Fd: q.slot, Pad: q.nth}})
	if !q.left.Load() {
		t.Fatal("forgotten")
	}
}

// panics is told of a departure and panics.
type panics struct{}

func (panics) ClientGone()     { panic("planted") }
func (panics) ServerStopping() { panic("planted") }

// A panic of one that is told ends neither the process nor the watch for others.
func TestPanicOfOneThatIsTold(t *testing.T) {
	t.Parallel()
	w := startWatcher(t)
	heard := make(chan any, 8)
	w.OnPanic(func(p any) { heard <- p })
	server, client := tcpPair(t)
	var bad, good Watch
	w.add(&bad, joined(t, w, server), panics{})
	_ = client.Close()
	if p := <-heard; p != "planted" {
		t.Errorf("heard of %v", p)
	}
	other, leaves := tcpPair(t)
	told := newToldOf()
	w.add(&good, joined(t, w, other), told)
	_ = leaves.Close()
	<-told.gone
	w.StopAll()
	<-told.stopping
	<-heard
	w.Remove(&good)
	w.Remove(&bad)
	third, _ := tcpPair(t)
	var late Watch
	w.add(&late, joined(t, w, third), panics{})
	<-heard
	w.Remove(&late)
}
