package upstream

import (
	"io"
	"net"
	"testing"
	"time"
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
