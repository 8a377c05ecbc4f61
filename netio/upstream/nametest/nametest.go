// Package nametest is a name server for tests of code that looks names up.
package nametest

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Answer is what a Server says about every name that it is asked for.
type Answer struct {
	Code   byte // RFC 1035 RCODE: 0 no error, 2 server failure, 3 no such name
	Addrs  []netip.Addr
	Silent bool // no answer at all
}

// Server is a DNS server with one answer at a time, over UDP and TCP on one port. Its records have a
// TTL of 0.
type Server struct {
	Asked  atomic.Int64 // queries for A records
	mu     sync.Mutex
	answer Answer
	addr   string
}

// New starts a server that listens until the test ends.
func New(t *testing.T, a Answer) *Server {
	t.Helper()
	ln, pc := bothPorts(t)
	s := &Server{answer: a, addr: ln.Addr().String()}
	var wg sync.WaitGroup
	wg.Go(func() { s.serveUDP(pc) })
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.serveTCP(c)
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		_ = pc.Close()
		wg.Wait()
	})
	return s
}

// bothPorts listens on one port over TCP and UDP. Someone else may have the UDP port of a free TCP port.
func bothPorts(t *testing.T) (net.Listener, net.PacketConn) {
	t.Helper()
	var err error
	for range 20 {
		ln, e := net.Listen("tcp", "127.0.0.1:0")
		if e != nil {
			t.Fatal(e)
		}
		var pc net.PacketConn
		if pc, err = net.ListenPacket("udp", ln.Addr().String()); err == nil {
			return ln, pc
		}
		_ = ln.Close()
	}
	t.Fatal(err)
	return nil, nil
}

// Set makes a the answer from now on.
func (s *Server) Set(a Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = a
}

// Lookup asks this server as the system's resolver would ask its own.
func (s *Server) Lookup(ctx context.Context, network, host string) ([]netip.Addr, error) {
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, s.addr)
		if udp, ok := c.(*net.UDPConn); ok {
			return hasty{udp}, err
		}
		return c, err
	}}
	return r.LookupNetIP(ctx, network, host)
}

// hasty waits less than the 5 s of the resolver, whose goroutine outlives a look-up that was given up.
type hasty struct{ *net.UDPConn }

func (c hasty) SetDeadline(time.Time) error {
	return c.UDPConn.SetDeadline(time.Now().Add(300 * time.Millisecond))
}

func (s *Server) serveUDP(pc net.PacketConn) {
	buf := make([]byte, 1500)
	for {
		n, from, err := pc.ReadFrom(buf)
		if err != nil {
			return
		}
		out := s.reply(buf[:n])
		if len(out) > 1200 {
			out = append(out[:2], 0x86, 0x80, 0, 1, 0, 0, 0, 0, 0, 0) // truncated, so that the client asks over TCP
			out = append(out, buf[12:n]...)
		}
		if len(out) > 0 {
			_, _ = pc.WriteTo(out, from)
		}
	}
}

func (s *Server) serveTCP(c net.Conn) {
	defer func() { _ = c.Close() }()
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return
	}
	query := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(c, query); err != nil {
		return
	}
	if out := s.reply(query); len(out) > 0 {
		_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(out))), out...))
	}
}

// reply answers one question, or returns nothing if the server is silent.
func (s *Server) reply(query []byte) []byte {
	s.mu.Lock()
	a := s.answer
	s.mu.Unlock()
	end := 12
	for query[end] != 0 {
		end += int(query[end]) + 1
	}
	end += 5
	isA := query[end-3] == 1
	if isA {
		s.Asked.Add(1)
	}
	if a.Silent {
		return nil
	}
	if !isA {
		a.Addrs = nil
	}
	out := append([]byte{query[0], query[1], 0x84 | query[2]&1, 0x80 | a.Code, 0, 1}, byte(len(a.Addrs)>>8), byte(len(a.Addrs)), 0, 0, 0, 0)
	out = append(out, query[12:end]...)
	for _, ip := range a.Addrs {
		four := ip.As4()
		out = append(out, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
		out = append(out, four[:]...)
	}
	return out
}
