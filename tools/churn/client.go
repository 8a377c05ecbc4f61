package churn

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"xpyd/tools/completion"
)

// client is one churning client.
type client struct {
	completion.Conn
	addr    string
	barrier *barrier
	tally   *counts

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
	if c.TCP == nil {
		if err := c.Dial(net.Dialer{}, c.addr, nil); err != nil {
			return err
		}
	}
	return c.TCP.SetDeadline(time.Now().Add(completion.Patience))
}

func (c *client) drop() { c.Drop(false) }

func (v *visit) head(length int, more string) []byte {
	return v.call.Head(length, "X-Request-Id: "+v.id+"\r\n"+more)
}

func (c *client) send(v *visit) error {
	body := v.call.Body()
	if _, err := c.TCP.Write(append(v.head(len(body), ""), body...)); err != nil {
		return fmt.Errorf("send the request: %w", err)
	}
	return nil
}

// leaveInBody leaves after half of the body. The proxy's 100 shows that it is reading the body.
func (c *client) leaveInBody(v *visit) error {
	body := v.call.Body()
	if _, err := c.TCP.Write(v.head(len(body), "Expect: 100-continue\r\n")); err != nil {
		return fmt.Errorf("send the head: %w", err)
	}
	resp, err := http.ReadResponse(c.In, nil)
	if err != nil {
		return fmt.Errorf("await 100 Continue: %w", err)
	}
	if resp.StatusCode != http.StatusContinue {
		return fmt.Errorf("await 100 Continue: status %d", resp.StatusCode)
	}
	if _, err := c.TCP.Write(body[:len(body)/2]); err != nil {
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
		_, seen = c.In.Peek(1) // the first event has arrived
	}
	c.leave(v)
	if seen != nil {
		return fmt.Errorf("await the first event: %w", seen)
	}
	return c.afterwards(v)
}

// peek returns what the proxy has sent where it should have sent nothing.
func (c *client) peek() string {
	_ = c.TCP.SetReadDeadline(time.Now().Add(time.Second))
	_, err := c.In.Peek(1)
	if err != nil {
		return "nothing: " + err.Error()
	}
	b, _ := c.In.Peek(min(c.In.Buffered(), 200))
	return fmt.Sprintf("%q", b)
}

// leave leaves in the visit's manner and then lets the engine go on.
func (c *client) leave(v *visit) {
	c.Leave(v.manner, false)
	close(v.left)
}

// afterwards reads what a half-closed client still gets.
func (c *client) afterwards(v *visit) error {
	if v.manner != completion.MannerHalf {
		return nil
	}
	if err := c.TCP.SetDeadline(time.Now().Add(completion.Patience)); err != nil {
		return fmt.Errorf("half-closed client: %w", err)
	}
	answered, wrong, err := c.HalfClosed(v.call)
	if wrong != "" {
		return fmt.Errorf("%s: %w", wrong, err)
	}
	if !answered {
		return nil
	}
	c.tally.answered()
	return c.closed(v)
}

// closed wants the proxy to close the connection of a half-closed client after its answer.
func (c *client) closed(v *visit) error {
	if v.manner != completion.MannerHalf {
		return nil
	}
	if _, err := c.In.ReadByte(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("half-closed client: the connection stays open after the answer: %w", err)
	}
	return nil
}

// stayToTheEnd reads the whole answer, compares it, and then leaves or keeps alive.
func (c *client) stayToTheEnd(v *visit) error {
	if err := c.send(v); err != nil {
		return err
	}
	resp, err := http.ReadResponse(c.In, nil)
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
	return c.closed(v)
}
