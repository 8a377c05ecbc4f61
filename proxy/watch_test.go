package proxy

import (
	"io"
	"net"
	"testing"
	"time"
)

type toldOf struct{ gone, stopping chan struct{} }

func (o *toldOf) clientGone()     { close(o.gone) }
func (o *toldOf) serverStopping() { close(o.stopping) }

func newToldOf() *toldOf {
	return &toldOf{gone: make(chan struct{}), stopping: make(chan struct{})}
}

func TestWatcherSeesEachWayToLeave(t *testing.T) {
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
			w := newWatcher()
			defer w.close()
			server, client := tcpPair(t)
			fd := connOn(t, server).fd
			var e watch
			o := newToldOf()
			w.add(&e, fd, o)
			tc.leave(client)
			wait := 2 * time.Second
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
			w.remove(&e)
			if len(w.entries) != 0 {
				t.Fatal("entry left behind")
			}
		})
	}
}

func TestWatcherForgetsWhoIsRemoved(t *testing.T) {
	w := newWatcher()
	defer w.close()
	var entries [3]watch
	var told [3]*toldOf
	var leave [3]func() error
	for i := range entries {
		server, client := tcpPair(t)
		fd := connOn(t, server).fd
		told[i], leave[i] = newToldOf(), client.Close
		w.add(&entries[i], fd, told[i])
	}
	w.remove(&entries[1])
	w.remove(&entries[1])
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
	w := newWatcher()
	defer w.close()
	server, _ := tcpPair(t)
	fd := connOn(t, server).fd
	var e watch
	o := newToldOf()
	w.add(&e, fd, o)
	w.stopAll()
	<-o.stopping
	w.remove(&e)
}
