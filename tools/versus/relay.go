package versus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
)

// relayBuffer is the read buffer of a direction.
const relayBuffer = 32 << 10

// Relay accepts connections and joins each to one of its own to the address, with a goroutine for
// each direction. It makes one read and one write for what comes, and does not look at the bytes.
// This is the least that a proxy in Go costs. It writes one JSON line with its address to out, and
// ends when ctx ends.
func Relay(ctx context.Context, to string, out io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	if err := json.NewEncoder(out).Encode(map[string]string{"listen": l.Addr().String()}); err != nil {
		return fmt.Errorf("say where it listens: %w", err)
	}
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		go join(conn, to)
	}
}

// join ends both connections when either ends.
func join(down net.Conn, to string) {
	up, err := net.Dial("tcp", to)
	if err != nil {
		_ = down.Close()
		return
	}
	go pass(down, up)
	pass(up, down)
}

// pass does not use io.Copy, which would splice in the kernel.
func pass(from, to net.Conn) {
	defer func() { _ = from.Close(); _ = to.Close() }()
	buf := make([]byte, relayBuffer)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
