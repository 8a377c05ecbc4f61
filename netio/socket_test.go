package netio

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// backendConn is a socket with an inbox, as a client of backends has it.
type backendConn struct {
	Socket
	in Inbox
}

func (c *backendConn) more() error { return c.More(&c.in) }

// connOn returns a connection to a backend over an open socket.
func connOn(t *testing.T, tcp *net.TCPConn) *backendConn {
	t.Helper()
	c := &backendConn{in: NewScratch().Inbox()}
	if err := c.Attach(tcp, nil); err != nil {
		t.Fatal(err)
	}
	return c
}

func tcpPair(t *testing.T) (server, client *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	sc, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(); _ = sc.Close() })
	return sc.(*net.TCPConn), c.(*net.TCPConn)
}

func TestDeadlineMovedDuringAWait(t *testing.T) {
	for _, tc := range []struct {
		name        string
		first, then time.Duration
		least, most time.Duration
	}{
		{"later", 500 * time.Millisecond, 700 * time.Millisecond, 700 * time.Millisecond, 5 * time.Second},
		{"later, before it has to wait", -time.Millisecond, 100 * time.Millisecond, 100 * time.Millisecond, 5 * time.Second},
		{"earlier", 20 * time.Second, 50 * time.Millisecond, 50 * time.Millisecond, 10 * time.Second},
		{"now", 20 * time.Second, -time.Second, 0, 10 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
		again:
			_, near := tcpPair(t)
			c := connOn(t, near)
			start := time.Now()
			_ = c.SetDeadline(start.Add(tc.first))
			ended := make(chan error, 1)
			if tc.first < 0 {
				_ = c.SetDeadline(start.Add(tc.then))
			}
			go func() {
				_, err := c.Read(make([]byte, 1))
				ended <- err
			}()
			if tc.first > 0 {
				time.Sleep(20 * time.Millisecond)
				_ = c.SetDeadline(start.Add(tc.then)) // from another goroutine, as an interrupt does
			}
			late := tc.first > 0 && time.Since(start) >= tc.first
			err := <-ended
			if late { // the first deadline came before it was moved
				goto again
			}
			if took := time.Since(start); !errors.Is(err, os.ErrDeadlineExceeded) || took < tc.least || took > tc.most {
				t.Errorf("%v after %v, want a timeout after %v", err, took, tc.then)
			}
		})
	}
}

// arrive makes far send, and returns after near's poller has reported it. A wait that begins now is
// not woken by what has come.
func arrive(t *testing.T, far io.Writer, near *backendConn, what string) {
	t.Helper()
	told := false
	err := near.waitRead(func(uintptr) bool {
		if !told {
			told = true
			_, _ = io.WriteString(far, what)
			return false
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
}

// What came before the request is found, although it no longer wakes a wait. On a kept connection
// it is no answer.
func TestAnswerThatIsThereAtOnce(t *testing.T) {
	for _, kept := range []bool{false, true} {
		far, near := tcpPair(t)
		c := connOn(t, near)
		_ = c.SetDeadline(time.Now().Add(30 * time.Second)) // ends a wait that nothing else ends
		arrive(t, far, c, "answer")
		sent, err := c.Ask(&Outbox{Pieces: net.Buffers{[]byte("req"), nil, []byte("uest")}}, kept)
		if kept {
			if !errors.Is(err, ErrStale) || !sent.IsZero() {
				t.Fatalf("%v, %v: want a stale connection", sent, err)
			}
			continue
		}
		if err != nil || sent.IsZero() {
			t.Fatal(sent, err)
		}
		buf := make([]byte, 7)
		if _, err := io.ReadFull(far, buf); err != nil || string(buf) != "request" {
			t.Fatalf("%q, %v", buf, err)
		}
		if err := c.more(); err != nil || string(c.in.Unread) != "answer" {
			t.Fatalf("%q, %v", c.in.Unread, err)
		}
	}
}

// An answer that comes while its request is being written is found too.
func TestAnswerThatComesMeanwhile(t *testing.T) {
	far, near := tcpPair(t)
	c := connOn(t, near)
	for range 1000 {
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = io.WriteString(far, "answer") // this races with the beginning of the wait
		if sent, err := c.Ask(&Outbox{Pieces: net.Buffers{[]byte("request")}}, false); err != nil || sent.IsZero() {
			t.Fatal(sent, err)
		}
		if _, err := io.ReadFull(far, make([]byte, 7)); err != nil {
			t.Fatal(err)
		}
		if err := c.more(); err != nil || string(c.in.Unread) != "answer" {
			t.Fatalf("%q, %v", c.in.Unread, err)
		}
		c.in.Use(6)
	}
}

// A request that is larger than the socket's buffer goes out while it is read.
func TestLargeRequestIsWrittenWhole(t *testing.T) {
	t.Parallel()
	for _, size := range []int{RawLimit + 1, sendLimit - 2, sendLimit + 1, 3*sendLimit + 1, 8 << 20} {
		far, near := tcpPair(t)
		if err := near.SetWriteBuffer(4 << 10); err != nil {
			t.Fatal(err)
		}
		c := connOn(t, near)
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		got := make(chan string, 1)
		go func() {
			buf := make([]byte, size+2)
			_, _ = io.ReadFull(far, buf)
			got <- string(buf)
			_, _ = io.WriteString(far, "answer")
		}()
		body := strings.Repeat("0123456789x", size/11+1)[:size] // shows pieces that are lost, doubled or out of order
		req := &Outbox{Pieces: net.Buffers{[]byte("<"), []byte(body), []byte(">")}}
		if sent, err := c.Ask(req, false); err != nil || sent.IsZero() {
			t.Fatal(sent, err)
		}
		if err := c.more(); err != nil || string(c.in.Unread) != "answer" {
			t.Fatalf("%q, %v", c.in.Unread, err)
		}
		for _, piece := range req.vec {
			if piece.Base != nil {
				t.Fatal("what is lent to the next request keeps a client's body alive")
			}
		}
		for _, piece := range req.Pieces {
			if piece != nil {
				t.Fatal("what is lent to the next request keeps a client's body alive")
			}
		}
		if s := <-got; s != "<"+body+">" {
			t.Fatalf("%d bytes of %d arrived, or others", len(s), size+2)
		}
	}
}
