package goload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Reply takes the answers of a connection apart, one after the other.
type Reply interface {
	Reset()
	// Feed takes the next bytes. whole is true if the answer has ended with them. An answer that is
	// not what the engine has sent is an error.
	Feed(b []byte) (whole bool, err error)
	Closing() bool // the server closes the connection behind the answer
}

// Load is what the clients do.
type Load struct {
	Addr     string // host:port
	Conns    int
	Request  []byte // the one that all connections send
	NewReply func(onEvent func(sent int64)) Reply
	Clock    func() int64  // ns; of the engines' stamps too
	Pause    time.Duration // between an answer and the next request on its connection
	Warm     time.Duration // before anything is counted, from when all connections are up
	Window   time.Duration // in which it is
	Delays   bool          // keep the delay of each event
	Hold     int           // all streams stay open and silent after this event; with 0 they do not
	Opening  time.Duration // in which all connections must have an answer that has begun
	Quiet    time.Duration // without a byte of an answer for so long, the run ends with an error
}

// Counts is what the clients saw within the window.
type Counts struct {
	Requests, Events int
	Seconds          float64
	Delays, TTFTs    []int64 // ns; of each event, of each request
}

// openAtOnce bounds how many connections wait for their first byte. A crowd that comes all at once
// is another measurement.
const openAtOnce = 64

// readBuffer is a client's. It is that of a usual client, and not large enough for many events.
const readBuffer = 16 << 10

var (
	errEnded  = errors.New("a stream ended that was to stay open")
	errClosed = errors.New("the connection was closed")
)

// clients is what the goroutines of a run share.
type clients struct {
	l        Load
	counting atomic.Bool
	slots    chan struct{} // one for each connection without a byte so far
	begun    chan struct{} // one for each whose answer has begun and, with Hold, has got this far
}

// client is one goroutine. Nobody else touches it before it has ended.
type client struct {
	*clients
	reply  Reply
	buf    []byte
	asked  int64 // when the request was sent
	bound  int64 // when the deadline was set
	answer int   // events of this answer
	events int   // of all answers
	heard  bool  // a byte has come
	ready  bool  // begun has its token
	seen   Counts
}

// Run runs the load. It calls sample at the start and at the end of the window. All goroutines and
// connections have ended when it returns.
func Run(ctx context.Context, l Load, sample func(end bool) error) (Counts, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := &clients{l: l, slots: make(chan struct{}, openAtOnce), begun: make(chan struct{}, l.Conns)}
	all := make([]*client, l.Conns)
	var wg sync.WaitGroup
	for i := range all {
		x := &client{clients: c, buf: make([]byte, readBuffer)}
		x.reply = l.NewReply(x.event)
		all[i] = x
		wg.Go(func() {
			if err := x.run(ctx); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("client: %w", err)) // a proxy that loses a request is not measured
			}
		})
	}
	seconds, err := c.measure(ctx, sample)
	cancel(nil)
	wg.Wait()
	if err != nil {
		return Counts{}, err
	}
	sum := Counts{Seconds: seconds}
	for _, x := range all {
		sum.Requests += x.seen.Requests
		sum.Events += x.seen.Events
		sum.Delays = append(sum.Delays, x.seen.Delays...)
		sum.TTFTs = append(sum.TTFTs, x.seen.TTFTs...)
	}
	return sum, nil
}

func (c *clients) measure(ctx context.Context, sample func(end bool) error) (seconds float64, err error) {
	if err := c.open(ctx); err != nil {
		return 0, err
	}
	if err := sleep(ctx, c.l.Warm); err != nil {
		return 0, err
	}
	if err := sample(false); err != nil {
		return 0, err
	}
	c.counting.Store(true)
	from := time.Now()
	if err = sleep(ctx, c.l.Window); err == nil {
		err = sample(true) // what comes during the look is still counted, because the look takes time and CPU
	}
	seconds = time.Since(from).Seconds()
	c.counting.Store(false)
	return seconds, err
}

// open waits until every connection has an answer that has begun.
func (c *clients) open(ctx context.Context) error {
	bound := time.After(c.l.Opening)
	for n := range c.l.Conns {
		select {
		case <-c.begun:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-bound:
			return fmt.Errorf("open %d connections: %d of them have an answer after %v", c.l.Conns, n, c.l.Opening)
		}
	}
	return nil
}

// sleep returns why ctx has ended, even if it ended just as the time was over.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

// run replaces a connection that the proxy closes behind an answer.
func (x *client) run(ctx context.Context) error {
	select {
	case x.slots <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	for ctx.Err() == nil {
		if err := x.connection(ctx); err != nil {
			return err
		}
	}
	return nil
}

// connection sends requests one after the other until the connection closes.
func (x *client) connection(ctx context.Context) error {
	d := net.Dialer{Timeout: x.l.Opening}
	conn, err := d.DialContext(ctx, "tcp", x.l.Addr)
	if err != nil {
		return fmt.Errorf("connect to the proxy: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer func() { _ = conn.Close() }()
	for {
		if err := x.exchange(conn); err != nil {
			return err
		}
		if x.reply.Closing() {
			return nil
		}
		if x.l.Pause > 0 && sleep(ctx, x.l.Pause) != nil {
			return nil
		}
	}
}

// exchange sends the request and reads its answer.
func (x *client) exchange(conn net.Conn) error {
	x.reply.Reset()
	x.answer = 0
	x.asked = x.l.Clock()
	x.bound = 0
	if err := x.patience(conn); err != nil {
		return err
	}
	if _, err := conn.Write(x.l.Request); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	for {
		n, err := conn.Read(x.buf)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errClosed
			}
			return fmt.Errorf("read: %w", err)
		}
		x.hear()
		whole, err := x.reply.Feed(x.buf[:n])
		if err != nil {
			return err
		}
		if whole {
			return x.answered()
		}
		if err := x.patience(conn); err != nil {
			return err
		}
	}
}

// patience moves the deadline, once a second at most, because each move costs a timer. Streams that
// are to be silent have none.
func (x *client) patience(conn net.Conn) error {
	now := x.l.Clock()
	var until time.Time
	switch {
	case x.l.Hold > 0 && x.events >= x.l.Hold:
	case x.bound != 0 && now-x.bound < int64(min(time.Second, x.l.Quiet/4)):
		return nil
	default:
		until = time.Now().Add(x.l.Quiet)
	}
	x.bound = now
	if err := conn.SetDeadline(until); err != nil {
		return fmt.Errorf("set a deadline: %w", err)
	}
	return nil
}

// hear lets the next connection open.
func (x *client) hear() {
	if x.heard {
		return
	}
	x.heard = true
	<-x.slots
	if x.l.Hold == 0 {
		x.begin()
	}
}

func (x *client) begin() {
	if !x.ready {
		x.ready = true
		x.begun <- struct{}{}
	}
}

func (x *client) event(sent int64) {
	x.events++
	x.answer++
	if x.events == x.l.Hold {
		x.begin()
	}
	if !x.counting.Load() {
		return
	}
	x.seen.Events++
	if !x.l.Delays {
		return
	}
	now := x.l.Clock()
	x.seen.Delays = append(x.seen.Delays, now-sent)
	if x.answer == 1 {
		x.seen.TTFTs = append(x.seen.TTFTs, now-x.asked)
	}
}

func (x *client) answered() error {
	if x.l.Hold > 0 {
		return errEnded
	}
	if x.counting.Load() {
		x.seen.Requests++
	}
	return nil
}
