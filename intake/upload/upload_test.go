package upload

import (
	"io"
	"net"
	"testing"
	"time"

	"xpyd/netio"
)

// A body that comes fast at first and then slowly gets no more time than any other.
func TestBodyPace(t *testing.T) {
	start := time.Now()
	tests := map[string]struct {
		stall time.Duration
		came  []int // bytes, one second after the other
		want  time.Duration
	}{
		"nothing":            {stall: time.Hour, want: 30 * time.Second},
		"a steady rate":      {stall: time.Hour, came: []int{rate, rate, rate}, want: 33 * time.Second},
		"half the rate":      {stall: time.Hour, came: []int{rate / 2, rate / 2}, want: 31 * time.Second},
		"16 MiB, then creep": {stall: time.Hour, came: []int{16 << 20, 1, 1, 1}, want: 31 * time.Second},
		"silence":            {stall: 10 * time.Second, came: []int{16 << 20}, want: 11 * time.Second},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := pace{limit: 30 * time.Second, stall: tt.stall}
			now := start
			at := p.next(now, 0)
			for _, n := range tt.came {
				now = now.Add(time.Second)
				at = p.next(now, n)
			}
			if got := at.Sub(start).Round(time.Millisecond); got != tt.want {
				t.Errorf("given up after %v, want %v", got, tt.want)
			}
		})
	}
}

// accepted is a client's connection, and the client's end of it.
func accepted(t *testing.T) (client *net.TCPConn, conn *netio.Conn) {
	t.Helper()
	port, err := netio.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := netio.NewListener(port, netio.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	dialled, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dialled.Close() })
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return dialled.(*net.TCPConn), server.(*netio.Conn)
}

// A client that sends broken chunks and nothing more is told what is wrong with them.
func TestBadFramingIsNoDeparture(t *testing.T) {
	for refused, want := range map[bool]Fault{false: Gone, true: Misframed} {
		client, conn := accepted(t)
		if refused {
			_, _ = io.WriteString(client, "\n")
			_, _ = conn.Read(make([]byte, 1))
		}
		_ = client.CloseWrite()
		if n, err := conn.Socket.Read(make([]byte, 1)); err != io.EOF {
			t.Fatalf("read %d, %v; want the end", n, err)
		}
		if conn.Misframed() != refused {
			t.Fatalf("refused: %v, want %v", !refused, refused)
		}
		if f := bodyEnd(io.ErrUnexpectedEOF, conn, -1, 0, false); f != want {
			t.Errorf("refused %v: fault %d, want %d", refused, f, want)
		}
	}
}
