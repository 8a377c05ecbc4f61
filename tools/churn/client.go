package churn

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"xpyd/tools/completion"
)

// client is one churning client. It has a raw socket, so that it can leave in every way.
type client struct {
	addr    string
	barrier *barrier
	tally   *tally
	conn    *net.TCPConn // nil between two requests unless kept alive
	in      *bufio.Reader

	mayBeAlone bool // a request may go to decode alone, and the client then still leaves
}

// do carries out one visit. An error means that the client did not get what it should have. Leaving
// on purpose is no error.
func (c *client) do(v *visit) error {
	if v.phase != phaseBody && v.phase != phaseEnd {
		c.barrier.expect(v)
		defer func() {
			if !v.met.Load() {
				c.barrier.forget(v)
			}
		}()
	}
	if err := c.connect(); err != nil {
		return err
	}
	var err error
	switch v.phase {
	case phaseBody:
		err = c.leaveInBody(v)
	case phaseEnd:
		err = c.stayToTheEnd(v)
	default:
		err = c.leaveInPhase(v)
	}
	if err != nil || v.phase != phaseEnd || v.manner != completion.MannerKeep {
		c.drop()
	}
	return err
}

func (c *client) connect() error {
	if c.conn == nil {
		conn, err := net.DialTimeout("tcp", c.addr, completion.Patience)
		if err != nil {
			return fmt.Errorf("connect to the proxy: %w", err)
		}
		tcp, ok := conn.(*net.TCPConn)
		if !ok {
			panic(fmt.Sprintf("BUG: tcp dial returned %T", conn))
		}
		c.conn, c.in = tcp, bufio.NewReader(tcp)
	}
	return c.conn.SetDeadline(time.Now().Add(completion.Patience))
}

func (c *client) drop() {
	if c.conn != nil {
		_ = c.conn.Close() // already closed if the client left by closing it
		c.conn = nil
	}
}

func (v *visit) head(length int, more string) []byte {
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nX-Request-Id: %s\r\nContent-Length: %d\r\n%s\r\n",
		v.call.Path(), v.id, length, more)
}

func (c *client) send(v *visit) error {
	body := v.call.Body()
	if _, err := c.conn.Write(append(v.head(len(body), ""), body...)); err != nil {
		return fmt.Errorf("send the request: %w", err)
	}
	return nil
}

// leaveInBody leaves after half of the body. The proxy's 100 shows that it is reading the body.
func (c *client) leaveInBody(v *visit) error {
	body := v.call.Body()
	if _, err := c.conn.Write(v.head(len(body), "Expect: 100-continue\r\n")); err != nil {
		return fmt.Errorf("send the head: %w", err)
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return fmt.Errorf("await 100 Continue: %w", err)
	}
	if resp.StatusCode != http.StatusContinue {
		return fmt.Errorf("await 100 Continue: status %d", resp.StatusCode)
	}
	if _, err := c.conn.Write(body[:len(body)/2]); err != nil {
		return fmt.Errorf("send half of the body: %w", err)
	}
	c.leave(v)
	c.tally.hit(v.phase, v.manner)
	return c.afterwards(v)
}

// leaveInPhase leaves while an engine holds the request in the phase.
func (c *client) leaveInPhase(v *visit) error {
	if err := c.send(v); err != nil {
		return err
	}
	err := v.awaitPhase()
	if errors.Is(err, errAlone) && c.mayBeAlone {
		c.tally.wentAlone()
		c.drop()
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w; the proxy answered %s", err, c.peek())
	}
	var seen error
	if v.phase == phaseStream {
		_, seen = c.in.Peek(1) // the first event has arrived
	}
	c.leave(v)
	if seen != nil {
		return fmt.Errorf("await the first event: %w", seen)
	}
	return c.afterwards(v)
}

// peek returns what the proxy has sent where it should have sent nothing.
func (c *client) peek() string {
	_ = c.conn.SetReadDeadline(time.Now().Add(time.Second))
	_, err := c.in.Peek(1)
	if err != nil {
		return "nothing: " + err.Error()
	}
	b, _ := c.in.Peek(min(c.in.Buffered(), 200))
	return fmt.Sprintf("%q", b)
}

// leave leaves in the visit's manner and then lets the engine go on.
func (c *client) leave(v *visit) {
	switch v.manner {
	case completion.MannerHalf:
		_ = c.conn.CloseWrite() // fails only if the proxy has closed first
	case completion.MannerReset:
		_ = c.conn.SetLinger(0)
		c.drop()
	case completion.MannerClose:
		c.drop()
	}
	close(v.left)
}

// afterwards reads what a half-closed client still gets. The proxy may break off, answer an error,
// or answer in full if the engine was faster. A wrong answer is an error.
func (c *client) afterwards(v *visit) error {
	if v.manner != completion.MannerHalf {
		return nil
	}
	if err := c.conn.SetDeadline(time.Now().Add(completion.Patience)); err != nil {
		return fmt.Errorf("half-closed client: %w", err)
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return brokenOff(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return brokenOff(err)
	}
	if err := v.call.Check(body); err != nil {
		return fmt.Errorf("half-closed client was told 200 with a clean end: %w", err)
	}
	c.tally.answered()
	if _, err := c.in.ReadByte(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("half-closed client: the connection stays open after the answer: %w", err)
	}
	return nil
}

// brokenOff accepts every end except silence.
func brokenOff(err error) error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return fmt.Errorf("half-closed client: the proxy neither answered nor closed: %w", err)
	}
	return nil
}

// stayToTheEnd reads the whole answer, compares it, and then leaves or keeps alive.
func (c *client) stayToTheEnd(v *visit) error {
	if err := c.send(v); err != nil {
		return err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return fmt.Errorf("read the answer's head: %w", err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d: %.200s", resp.StatusCode, body)
	}
	if err := v.call.Check(body); err != nil {
		return err
	}
	c.tally.answered()
	c.leave(v)
	c.tally.hit(v.phase, v.manner)
	if v.manner != completion.MannerHalf {
		return nil
	}
	if _, err := c.in.ReadByte(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("half-closed client: the connection stays open after the answer: %w", err)
	}
	return nil
}
