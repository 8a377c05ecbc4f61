package sim

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// serveHTTP is uvicorn's side of one connection. It keeps connections alive. The end of the
// client's writing, whole or half, is a disconnect that aborts the request.
//
// It uses net/http's parser but not its server, because the tests are about the bytes of an answer
// (names in lower case, one write for each event, no clean end).
func (c *core) serveHTTP(nc net.Conn) {
	in := bufio.NewReader(nc)
	for {
		_ = nc.SetReadDeadline(time.Now().Add(c.o.KeepAlive))
		_, err := in.Peek(1)
		c.gate.wait()
		if err != nil {
			return
		}
		_ = nc.SetReadDeadline(time.Time{})
		x, err := readExchange(c, nc, in)
		if err != nil {
			c.refuseMalformed(nc, err)
			return
		}
		c.gate.wait()
		ctx, unwatch := x.watch(in)
		c.route(ctx, x)
		unwatch()
		if x.last || c.life.Err() != nil {
			return
		}
	}
}

// refuseMalformed answers what is not HTTP. A connection that simply ended gets no answer.
func (c *core) refuseMalformed(nc net.Conn, err error) {
	var op *net.OpError
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &op) {
		return
	}
	_, _ = io.WriteString(nc, "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n"+
		"connection: close\r\n\r\nInvalid HTTP request received.") // a client that has gone misses it
}

// exchange is one request on a connection and the answer to it.
type exchange struct {
	c    *core
	nc   net.Conn
	req  *http.Request
	body []byte
	last bool // the connection ends after this answer
	buf  []byte

	chunked bool // false for a streamed answer to HTTP/1.0
}

func readExchange(c *core, nc net.Conn, in *bufio.Reader) (*exchange, error) {
	req, err := http.ReadRequest(in)
	if err != nil {
		return nil, err
	}
	if strings.EqualFold(req.Header.Get("Expect"), "100-continue") {
		if _, err := io.WriteString(nc, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return nil, err
		}
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	http11 := req.ProtoAtLeast(1, 1)
	return &exchange{c: c, nc: nc, req: req, body: body, last: req.Close || !http11, chunked: http11}, nil
}

// watch returns a context that ends when the client leaves or the engine dies.
// The returned function must be called before the connection is read again.
func (x *exchange) watch(in *bufio.Reader) (context.Context, func()) {
	ctx, cancel := context.WithCancel(x.c.life)
	var over atomic.Bool
	done := make(chan struct{})
	go func() { // the returned function, or stop by closing the connection, ends it and waits for it
		defer close(done)
		if _, err := in.Peek(1); err == nil || over.Load() {
			return // the next request, pipelined, or this one is over
		}
		x.c.gate.wait()
		if !over.Load() {
			_ = x.nc.SetWriteDeadline(time.Now()) // nothing is sent to a client that has gone
			cancel()
		}
	}()
	return ctx, func() {
		over.Store(true)
		_ = x.nc.SetReadDeadline(time.Now())
		<-done
		cancel()
		_ = x.nc.SetReadDeadline(time.Time{})
	}
}

// gone asks the socket itself about a disconnect, because the watcher may not have run since.
func (x *exchange) gone() bool {
	nc := x.nc
	s, secure := nc.(*secured)
	if secure {
		nc = s.NetConn()
	}
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		// Over TLS a farewell comes first. Nobody pipelines, so it is what waits there.
		gone = err == nil && (n == 0 || secure) || errors.Is(err, syscall.ECONNRESET)
	})
	return gone || err != nil
}

// reset breaks the connection with RST, hangup with FIN.
func (x *exchange) reset() {
	linger0(x.nc)
	x.hangup()
}

func (x *exchange) hangup() {
	x.last = true
	_ = x.nc.Close() // the fault wants it closed, whoever closes it
}

// answer writes a whole response: the head, then the body, as uvicorn does.
func (x *exchange) answer(status int, contentType string, body []byte, extra ...string) error {
	if err := x.head(status, contentType, len(body), extra...); err != nil {
		return err
	}
	return x.write(body)
}

// head writes the head of a response with length bytes of body.
func (x *exchange) head(status int, contentType string, length int, extra ...string) error {
	b := x.startHead(status)
	for _, line := range extra {
		b = append(append(b, line...), "\r\n"...)
	}
	b = append(b, "content-length: "...)
	b = appendInt(b, length)
	b = append(b, "\r\n"...)
	if contentType != "" {
		b = append(append(append(b, "content-type: "...), contentType...), "\r\n"...)
	}
	return x.write(x.endHead(b))
}

// stream writes the head of an event stream.
func (x *exchange) stream() error {
	b := append(x.startHead(http.StatusOK), "content-type: text/event-stream; charset=utf-8\r\n"...)
	b = x.endHead(b)
	if x.chunked {
		b = append(b[:len(b)-2], "transfer-encoding: chunked\r\n\r\n"...)
	}
	return x.write(b)
}

func (x *exchange) startHead(status int) []byte {
	b := append(x.buf[:0], "HTTP/1.1 "...)
	b = appendInt(b, status)
	b = append(append(b, ' '), http.StatusText(status)...)
	b = append(b, "\r\ndate: "...)
	b = time.Now().UTC().AppendFormat(b, http.TimeFormat)
	return append(b, "\r\nserver: uvicorn\r\n"...)
}

func (x *exchange) endHead(b []byte) []byte {
	b = append(b, "vary: Origin\r\n"...)
	if x.last {
		b = append(b, "connection: close\r\n"...)
	}
	x.buf = append(b, "\r\n"...)
	return x.buf
}

// frame wraps payload as one chunk. The result is valid until the next call.
func (x *exchange) frame(payload []byte) []byte {
	if !x.chunked {
		return payload
	}
	b := appendHex(x.buf[:0], len(payload))
	b = append(append(append(b, "\r\n"...), payload...), "\r\n"...)
	x.buf = b
	return b
}

// endStream writes the chunk that ends a stream cleanly.
func (x *exchange) endStream() error {
	if !x.chunked {
		return nil
	}
	return x.write([]byte("0\r\n\r\n"))
}

func (x *exchange) write(b []byte) error {
	x.c.gate.wait()
	if len(b) == 0 {
		return nil
	}
	if _, err := x.nc.Write(b); err != nil {
		x.last = true
		return err
	}
	return nil
}
