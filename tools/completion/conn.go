package completion

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// Patience is how long a client waits for any single thing from the proxy.
const Patience = 20 * time.Second

// Manner is how a client leaves.
type Manner uint8

// The manners of leaving. Manners is their number.
const (
	MannerClose Manner = iota // FIN, and RST for what still comes
	MannerHalf                // shutdown of the write side; the client still reads
	MannerReset               // RST
	MannerKeep                // does not leave, and the next request uses the connection
	Manners
)

func (m Manner) String() string { return [...]string{"close", "half-close", "rst", "kept"}[m] }

// Conn is the connection of a client that can leave in every manner.
type Conn struct {
	TCP  *net.TCPConn // nil between two requests unless kept alive
	Wire net.Conn     // TCP, or TLS over it
	In   *bufio.Reader
}

// Dial connects. over makes TLS of the connection. It is nil without.
func (c *Conn) Dial(d net.Dialer, address string, over func(net.Conn) net.Conn) error {
	d.Timeout = Patience
	conn, err := d.Dial("tcp", address)
	if err != nil {
		return fmt.Errorf("connect to the proxy: %w", err)
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		panic(fmt.Sprintf("BUG: tcp dial returned %T", conn))
	}
	if c.TCP, c.Wire = tcp, conn; over != nil {
		c.Wire = over(conn)
	}
	c.In = bufio.NewReader(c.Wire)
	return nil
}

// Drop closes the connection if there is one, over TLS with or without a farewell.
func (c *Conn) Drop(farewell bool) {
	if c.TCP == nil {
		return
	}
	if over, ok := c.Wire.(*tls.Conn); ok && farewell {
		_ = over.Close()
	}
	_ = c.TCP.Close() // already closed if the client left by closing it
	c.TCP = nil
}

// Leave leaves in a manner, over TLS with or without a farewell.
func (c *Conn) Leave(m Manner, farewell bool) {
	switch m {
	case MannerHalf:
		if over, ok := c.Wire.(*tls.Conn); ok && farewell {
			_ = over.CloseWrite() // fails only if the proxy has closed first
			return
		}
		_ = c.TCP.CloseWrite() // the same
	case MannerReset:
		_ = c.TCP.SetLinger(0)
		c.Drop(farewell)
	case MannerClose:
		c.Drop(farewell)
	}
}

// HalfClosed reads what a half-closed client still gets. The proxy may break off, answer an error, or answer in
// full if the engine was faster. wrong names what it must not do: tell an answer that is not the right one, or
// say nothing.
func (c *Conn) HalfClosed(call Call) (answered bool, wrong string, err error) {
	var body []byte
	resp, err := http.ReadResponse(c.In, nil)
	if err == nil {
		body, err = io.ReadAll(resp.Body)
	}
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return false, "a half-closed client neither answered nor cut off", err
	case err != nil || resp.StatusCode != http.StatusOK:
		return false, "", nil
	}
	if err := call.Check(body); err != nil {
		return false, "a half-closed client told 200 with a clean end", err
	}
	return true, "", nil
}
