package client

import (
	"context"
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"
)

// conn is a connection that reads with raw system calls, which never block: it waits in Go's poller. With the reads of package
// net an event costs a sixth more CPU. It shares no code with the proxy, so that a fault there does not hide itself. One
// goroutine reads at a time, as net/http does.
type conn struct {
	*net.TCPConn
	raw  syscall.RawConn
	look func(fd uintptr) (done bool) // made once: it reads into into

	into []byte
	n    int
	err  syscall.Errno
}

func dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return nc, nil
	}
	c := &conn{TCPConn: tcp}
	if c.raw, err = tcp.SyscallConn(); err != nil {
		_ = tcp.Close()
		return nil, err
	}
	c.look = c.read
	return c, nil
}

// Read implements io.Reader.
func (c *conn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	c.into = b
	err := c.raw.Read(c.look)
	c.into = nil
	switch {
	case err != nil: // closed, or past a deadline
		return 0, err
	case c.err != 0:
		return 0, &net.OpError{Op: "read", Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError("read", c.err)}
	case c.n == 0:
		return 0, io.EOF
	}
	return c.n, nil
}

func (c *conn) read(fd uintptr) bool {
	for {
		n, _, errno := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(&c.into[0])), uintptr(len(c.into)))
		if errno == syscall.EINTR {
			continue
		}
		c.n, c.err = int(n), errno
		return errno != syscall.EAGAIN
	}
}
