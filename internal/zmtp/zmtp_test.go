package zmtp

import (
	"bytes"
	"net"
	"strings"
	"testing"
	"time"
)

// pair is two ends of a connection after the handshake.
func pair(t *testing.T, one, other string) (a, b *Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	got := make(chan *Conn, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		z, err := Open(c, other, one, 1<<20)
		if err != nil {
			t.Error(err)
		}
		got <- z
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if a, err = Open(c, one, other, 1<<20); err != nil {
		t.Fatal(err)
	}
	return a, <-got
}

func TestMessagesGoThrough(t *testing.T) {
	a, b := pair(t, Dealer, Router)
	long := []byte(strings.Repeat("x", 300_000))
	for _, want := range [][][]byte{{nil, []byte("one")}, {long}, {nil, []byte("a"), long, []byte("b")}} {
		sent := make(chan error, 1)
		go func() { sent <- a.Send(want...) }()
		got, err := b.Receive()
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		if err != nil || len(got) != len(want) {
			t.Fatal(len(got), err)
		}
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				t.Errorf("frame %d: %d bytes", i, len(got[i]))
			}
		}
	}
	go func() { _ = a.Send(make([]byte, 2<<20)) }()
	if _, err := b.Receive(); err == nil {
		t.Error("a message above the bound")
	}
}

// The bytes of libzmq's own SUB and PUB, of release 4.3, which has ZMTP 3.1.
func TestHandshakeOfLibzmq(t *testing.T) {
	client, server := net.Pipe()
	for _, c := range []net.Conn{client, server} {
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	}
	greeting := append(append([]byte("\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x01NULL"), make([]byte, 16+1)...), make([]byte, 31)...)
	said := make(chan []byte, 1)
	go func() {
		own := make([]byte, 64+2+6+12+4+3+10)
		n := 0
		for n < 64 {
			m, err := server.Read(own[n:64])
			if err != nil {
				break
			}
			n += m
		}
		_, _ = server.Write(greeting)
		ready := "\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB"
		m, _ := server.Read(own[64:])
		_, _ = server.Write([]byte(ready))
		said <- own[64 : 64+m]
	}()
	z, err := Open(client, Sub, Pub, 100)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(<-said); got != "\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03SUB" {
		t.Errorf("%q", got)
	}
	pong := make(chan string, 1)
	go func() {
		_, _ = server.Write([]byte("\x04\x07\x04PING\x00\x0a"))
		b := make([]byte, 20)
		n, _ := server.Read(b)
		pong <- string(b[:n])
		_, _ = server.Write([]byte("\x01\x00\x00\x01z"))
	}()
	if got, err := z.Receive(); err != nil || len(got) != 2 || string(got[1]) != "z" {
		t.Errorf("%q, %v", got, err)
	}
	if got := <-pong; got != "\x04\x05\x04PONG" {
		t.Errorf("%q", got)
	}
}

func TestPeersOfAnotherKind(t *testing.T) {
	for _, greeting := range []string{
		"HTTP/1.1 400 Bad Request\r\n\r\n" + strings.Repeat(" ", 64),
		"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00CURVE" + strings.Repeat("\x00", 60),
		"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL" + strings.Repeat("\x00", 48) + "\x04\x1a\x05READY\x0bSocket-Type\x00\x00\x00\x04PULL",
		"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL" + strings.Repeat("\x00", 48) + "\x04\x19\x05READY\xffSocket-Type\x00\x00\x00\x03PUB",
	} {
		client, server := net.Pipe()
		go func() {
			_, _ = server.Write([]byte(greeting))
			_ = server.Close()
		}()
		go func() { _, _ = server.Read(make([]byte, 200)) }()
		if _, err := Open(client, Sub, Pub, 100); err == nil {
			t.Errorf("%q is taken for a publisher", greeting[:20])
		}
		_ = client.Close()
	}
}

// FuzzReceive wants no peer to break a reader or to make it hold more than the bound.
func FuzzReceive(f *testing.F) {
	f.Add([]byte("\x01\x01a\x00\x01b"))
	f.Add([]byte("\x02\x7f\xff\xff\xff\xff\xff\xff\xff"))
	f.Add([]byte("\x04\x07\x04PING\x00\x00\x00\x00"))
	greeting := "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL" + strings.Repeat("\x00", 48) + "\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB"
	f.Fuzz(func(t *testing.T, after []byte) {
		z, err := Open(script{bytes.NewReader([]byte(greeting + string(after)))}, Sub, Pub, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			var frames [][]byte
			frames, err = z.Receive()
			if len(frames) > maxFrames || cap(z.buf) > 4000 {
				t.Fatalf("%d frames, room for %d bytes", len(frames), cap(z.buf))
			}
		}
	})
}

// script is a connection whose peer says what stands in it.
type script struct{ *bytes.Reader }

func (script) Write(b []byte) (int, error)      { return len(b), nil }
func (script) Close() error                     { return nil }
func (script) LocalAddr() net.Addr              { return nil }
func (script) RemoteAddr() net.Addr             { return nil }
func (script) SetDeadline(time.Time) error      { return nil }
func (script) SetReadDeadline(time.Time) error  { return nil }
func (script) SetWriteDeadline(time.Time) error { return nil }
