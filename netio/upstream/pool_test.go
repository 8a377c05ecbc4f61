package upstream

import (
	"errors"
	"io"
	"net"
	"runtime"
	"testing"
	"time"
	"weak"
)

func TestPoisonedConnectionIsNotReused(t *testing.T) {
	for _, tc := range []struct {
		name   string
		poison func(backend *net.TCPConn)
	}{
		{"an answer that nobody asked for", func(b *net.TCPConn) {
			_, _ = io.WriteString(b, "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nplanted")
		}},
		{"one byte", func(b *net.TCPConn) { _, _ = io.WriteString(b, "\n") }},
		{"closed", func(b *net.TCPConn) { _ = b.Close() }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScripted(t, func(int) (string, bool) { return "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nown", true })
			u := s.client()
			backend, client := tcpPair(t)
			c := connOn(t, u, client)
			tc.poison(backend)
			awaitReadable(t, c)
			u.put(c)
			x, body, err := exchangeOnce(u, post("{}"))
			if err != nil || body != "own" {
				t.Fatalf("%q, %v: want the answer on a connection of its own", body, err)
			}
			x.Finish()
			if err := client.SetDeadline(time.Time{}); err == nil {
				t.Error("the poisoned connection is still open")
			}
		})
	}
}

// An exchange had a whole answer, and its next request has none in time. The connection of that request
// must not be kept, because the next user would get the late answer as its own.
func TestConnectionOfAnUnansweredRequestIsNotKept(t *testing.T) {
	late := make(chan struct{})
	t.Cleanup(func() { close(late) })
	first := newScripted(t, func(int) (string, bool) {
		return "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\nno", false
	})
	second := newScripted(t, func(int) (string, bool) { <-late; return "", true })
	var x Exchange
	if err := x.Do(first.client(), post("{}"), time.Now().Add(time.Minute), true); err != nil {
		t.Fatal(err)
	}
	if body, err := x.ReadAll(nil, 10); err != nil || string(body) != "no" {
		t.Fatalf("%q, %v", body, err)
	}
	x.Finish()
	u := second.client()
	var ue *Error
	if err := x.Do(u, post("{}"), time.Now().Add(20*time.Millisecond), true); !errors.As(err, &ue) || !ue.TimedOut() {
		t.Fatalf("error %v, want a timeout", err)
	}
	x.Finish()
	if len(u.idle) != 0 {
		t.Fatal("a connection on which an answer is still to come is in the pool")
	}
}

// However a connection leaves the pool, its memory goes with it. Over TLS that is 10 KiB and more.
func TestPoolHoldsNothingThatLeft(t *testing.T) {
	takeAll := func(u *Client) {
		for c := u.popIdle(); c != nil; c = u.popIdle() {
			_ = c.Close()
		}
	}
	age := func(u *Client) {
		for _, c := range u.idle {
			c.since = c.since.Add(-u.maxIdle - time.Hour)
		}
	}
	for name, leave := range map[string]func(u *Client){
		"taken":              takeAll,
		"expired":            (*Client).DropIdle,
		"too old to be used": func(u *Client) { age(u); takeAll(u) },
		"closed by those that come back": func(u *Client) {
			age(u)
			for range len(u.idle) - 1 {
				_, tcp := tcpPair(t)
				u.put(connOn(t, u, tcp))
			}
			takeAll(u)
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := New(Config{Addr: "127.0.0.1:1", MaxIdle: time.Minute})
			var left []weak.Pointer[conn]
			for range 8 {
				_, tcp := tcpPair(t)
				c := connOn(t, u, tcp)
				u.put(c)
				left = append(left, weak.Make(c))
			}
			leave(u)
			runtime.GC()
			for i, c := range left {
				if c.Value() != nil {
					t.Errorf("connection %d of %d is still held", i, len(left))
				}
			}
			if len(u.idle) != 0 {
				t.Errorf("%d connections are still in the pool", len(u.idle))
			}
			u.Close()
		})
	}
}
