package versus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"syscall"
	"time"
)

// load is what the clients do.
type load struct {
	conns  int
	chat   bool          // streams; otherwise whole answers of /v1/completions
	body   int           // bytes of a request's body, about
	pause  time.Duration // between an answer and the next request on its connection
	warm   time.Duration // before anything is counted, from when all connections are up
	window time.Duration // in which it is
	delays bool          // keep the delay of each event
	hold   int           // all streams stay open and silent after this event; with 0 they do not
	want   int           // events of a whole stream; another number is an error
}

// counts is what the clients saw within the window.
type counts struct {
	Requests, Events int
	Seconds          float64
	delays, ttfts    []int64 // ns; of each event, of each request
}

// clients sends the requests of a load, on the caller's thread.
type clients struct {
	l        load
	to       syscall.SockaddrInet4
	request  []byte
	poll     *poller
	conns    map[int]*clientConn
	paused   []*clientConn
	scratch  []byte
	opening  int // connections on which no byte has come
	begun    int // connections whose answer has begun and, with hold, has got this far
	counting bool
	seen     counts
	err      error
}

type clientConn struct {
	sendBuffer
	reply  reply
	sent   int64 // when the request was, ns since epoch
	events int   // of all answers
	until  int64 // when the pause ends
	heard  bool  // a byte has come
	begun  bool
}

// openAtOnce bounds how many connections wait for their first byte. A crowd that comes all at once
// is another measurement.
const openAtOnce = 64

// runEpoll runs the load on one thread. It calls sample at the start and at the end of the window.
func runEpoll(ctx context.Context, addr string, l load, sample func(end bool) error) (counts, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return counts{}, fmt.Errorf("send load: %w", err)
	}
	c := &clients{
		l: l, to: syscall.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}, request: requestOf(l),
		conns: map[int]*clientConn{}, scratch: make([]byte, 256<<10),
	}
	if c.poll, err = newPoller(); err != nil {
		return counts{}, err
	}
	defer c.close()
	if err := c.open(ctx); err != nil {
		return counts{}, err
	}
	if err := c.spin(ctx, l.warm); err != nil {
		return counts{}, err
	}
	return c.measure(ctx, sample)
}

func (c *clients) measure(ctx context.Context, sample func(end bool) error) (counts, error) {
	if err := c.aside(ctx, func() error { return sample(false) }); err != nil {
		return counts{}, err
	}
	c.counting = true
	from := time.Now()
	err := c.spin(ctx, c.l.window)
	if err == nil {
		err = c.aside(ctx, func() error { return sample(true) })
	}
	c.seen.Seconds = time.Since(from).Seconds()
	c.counting = false
	return c.seen, err
}

// aside handles what comes until do has ended. A look at the proxy takes milliseconds. If it took them from
// this thread, all that came meanwhile would seem late.
func (c *clients) aside(ctx context.Context, do func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- do() }()
	for {
		select {
		case err := <-ended:
			return err
		default:
		}
		if err := c.once(ctx, 1); err != nil {
			return errors.Join(err, <-ended)
		}
	}
}

func (c *clients) close() {
	for _, x := range c.conns {
		_ = syscall.Close(x.fd)
	}
	c.poll.close()
}

// open connects until every connection has an answer that has begun.
func (c *clients) open(ctx context.Context) error {
	bound := time.Now().Add(time.Minute)
	for len(c.conns) < c.l.conns || c.opening > 0 || c.begun < c.l.conns {
		for len(c.conns) < c.l.conns && c.opening < openAtOnce {
			if err := c.connect(); err != nil {
				return err
			}
		}
		if err := c.once(ctx, 10); err != nil {
			return err
		}
		if time.Now().After(bound) {
			return fmt.Errorf("open %d connections: %d of them have an answer after a minute", c.l.conns, c.begun)
		}
	}
	return nil
}

// spin handles what comes for d.
func (c *clients) spin(ctx context.Context, d time.Duration) error {
	for end := time.Now().Add(d); ; {
		left := time.Until(end)
		if left <= 0 {
			return nil
		}
		if err := c.once(ctx, int(min(left, 50*time.Millisecond)/time.Millisecond)+1); err != nil {
			return err
		}
	}
}

// once waits for sockets, at most timeout ms, and serves them.
func (c *clients) once(ctx context.Context, timeout int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(c.paused) > 0 {
		timeout = 1
	}
	ready, err := c.poll.wait(timeout)
	if err != nil {
		return err
	}
	for _, ev := range ready {
		if x := c.conns[int(ev.Fd)]; x != nil {
			c.serve(x, ev.Events)
		}
	}
	c.resume()
	return c.err
}

// resume sends the requests of connections whose pause is over.
func (c *clients) resume() {
	if len(c.paused) == 0 {
		return
	}
	now := stamp()
	keep := c.paused[:0]
	for _, x := range c.paused {
		if x.until > now {
			keep = append(keep, x)
		} else {
			c.ask(x)
		}
	}
	c.paused = keep
}

func (c *clients) connect() error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a client's socket: %w", err)
	}
	if err := syscall.Connect(fd, &c.to); err != nil {
		_ = syscall.Close(fd)
		return fmt.Errorf("connect to the proxy: %w", err)
	}
	_ = syscall.SetNonblock(fd, true)
	_ = syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)
	x := &clientConn{sendBuffer: sendBuffer{fd: fd, poll: c.poll}}
	x.reply.onEvent = func(sent int64) { c.event(x, sent) }
	x.reply.want = c.l.want
	c.conns[fd] = x
	c.opening++
	if err := c.poll.add(fd, wantRead); err != nil {
		return err
	}
	c.ask(x)
	return c.err
}

func (c *clients) ask(x *clientConn) {
	x.reply.reset()
	x.sent = stamp()
	c.fail(x.write(c.request))
}

// fail ends the run, because a proxy that loses a request is not measured.
func (c *clients) fail(err error) {
	if c.err == nil && err != nil {
		c.err = fmt.Errorf("client: %w", err)
	}
}

func (c *clients) serve(x *clientConn, ready uint32) {
	if ready&syscall.EPOLLOUT != 0 {
		c.fail(x.flush())
	}
	if ready&^syscall.EPOLLOUT == 0 {
		return
	}
	n, err := receive(x.fd, c.scratch)
	if n == 0 {
		c.fail(err)
		return
	}
	c.hear(x)
	whole, err := x.reply.feed(c.scratch[:n])
	c.fail(err)
	if whole {
		c.answered(x)
	}
}

func (c *clients) event(x *clientConn, sent int64) {
	x.events++
	if x.events == c.l.hold {
		c.begin(x)
	}
	if !c.counting {
		return
	}
	c.seen.Events++
	if !c.l.delays {
		return
	}
	now := stamp()
	c.seen.delays = append(c.seen.delays, now-sent)
	if x.reply.events == 1 {
		c.seen.ttfts = append(c.seen.ttfts, now-x.sent)
	}
}

// hear lets the next connection open.
func (c *clients) hear(x *clientConn) {
	if x.heard {
		return
	}
	x.heard = true
	c.opening--
	if c.l.hold == 0 {
		c.begin(x)
	}
}

func (c *clients) begin(x *clientConn) {
	if !x.begun {
		x.begun = true
		c.begun++
	}
}

func (c *clients) answered(x *clientConn) {
	if c.l.hold > 0 {
		c.fail(errors.New("a stream ended that was to stay open"))
	}
	if c.counting {
		c.seen.Requests++
	}
	if x.reply.closing {
		c.again(x)
		return
	}
	if c.l.pause > 0 {
		x.until = stamp() + int64(c.l.pause)
		c.paused = append(c.paused, x)
		return
	}
	c.ask(x)
}

// again replaces a connection that the proxy closes.
func (c *clients) again(x *clientConn) {
	_ = syscall.Close(x.fd)
	delete(c.conns, x.fd)
	c.begun--
	c.fail(c.connect())
}

// requestOf is the one request that all connections send.
func requestOf(l load) []byte {
	path, before, after := "/v1/completions", `{"model":"`+model+`","prompt":"`, `","max_tokens":6,"temperature":0}`
	if l.chat {
		path = "/v1/chat/completions"
		before = `{"model":"` + model + `","messages":[{"role":"user","content":"`
		after = `"}],"max_tokens":4000,"temperature":0,"stream":true,"stream_options":{"include_usage":true}}`
	}
	// Text with an escape here and there, as prompts have them.
	line := []byte(`the router and the prefill engine of the request queue, \"the lease\" and its handle\n`)
	text := bytes.Repeat(line, max(1, (l.body-len(before)-len(after))/len(line)))
	size := len(before) + len(text) + len(after)
	head := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, size)
	return bytes.Join([][]byte{head, []byte(before), text, []byte(after)}, nil)
}
