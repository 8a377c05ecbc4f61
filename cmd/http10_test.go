package cmd

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"xpyd/sim"
)

// The kernel ends the connections of a process that dies. Half a stream must not look like a whole one
// to a client that reads to the end.
func TestKilledProcessResetsStreamsOfHTTP10(t *testing.T) {
	t.Parallel()
	d := startEngine(t, sim.Options{Name: "d", Role: sim.RoleDecode})
	p := serveProcess(t, nil, urls(d))
	conn, err := net.Dial("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(patience))
	const body = `{"model":"sim","prompt":"hello[[D:stall@4]]","max_tokens":9,"stream":true}`
	_, _ = fmt.Fprintf(conn, "POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	var got strings.Builder
	buf := make([]byte, 4<<10)
	for strings.Count(got.String(), "data: ") < 3 {
		n, err := conn.Read(buf)
		if got.Write(buf[:n]); err != nil {
			t.Fatalf("%v behind %q", err, got.String())
		}
	}
	p.signal(p.serving(1), syscall.SIGKILL)
	if _, err := io.ReadAll(conn); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the stream ended with %v, want a reset", err)
	}
	p.exit()
}
