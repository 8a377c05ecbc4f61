package versus

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// epoch is the zero of all stamps, because client and engines share this clock.
var epoch = time.Now()

// stamp is the time since epoch in nanoseconds.
func stamp() int64 { return int64(time.Since(epoch)) }

// poller waits for sockets. It belongs to one thread.
type poller struct {
	fd     int
	events [256]syscall.EpollEvent
}

func newPoller() (*poller, error) {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create a poller: %w", err)
	}
	return &poller{fd: fd}, nil
}

func (p *poller) close() { _ = syscall.Close(p.fd) }

const (
	wantRead  = syscall.EPOLLIN | syscall.EPOLLRDHUP
	wantWrite = syscall.EPOLLOUT
)

func (p *poller) add(fd int, events uint32) error {
	if err := syscall.EpollCtl(p.fd, syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{Events: events, Fd: int32(fd)}); err != nil {
		return fmt.Errorf("watch a socket: %w", err)
	}
	return nil
}

func (p *poller) modify(fd int, events uint32) {
	if err := syscall.EpollCtl(p.fd, syscall.EPOLL_CTL_MOD, fd, &syscall.EpollEvent{Events: events, Fd: int32(fd)}); err != nil {
		panic("BUG: a socket that is watched cannot be changed: " + err.Error())
	}
}

// wait returns what is ready. timeout is in ms, and -1 waits forever. The slice is valid until the
// next call.
func (p *poller) wait(timeout int) ([]syscall.EpollEvent, error) {
	n, err := syscall.EpollWait(p.fd, p.events[:], timeout)
	if errors.Is(err, syscall.EINTR) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("wait for sockets: %w", err)
	}
	return p.events[:n], nil
}

// sendBuffer is what a socket has not taken so far. While it holds something, poll waits until the
// socket takes more, and then flush must be called.
type sendBuffer struct {
	fd   int
	rest []byte
	poll *poller // has the socket
}

func (s *sendBuffer) blocked() bool { return len(s.rest) > 0 }

// write sends b after what is left over, and keeps what the socket does not take.
func (s *sendBuffer) write(b []byte) error {
	if !s.blocked() {
		n, err := send(s.fd, b)
		if err != nil || n == len(b) {
			return err
		}
		b = b[n:]
		s.poll.modify(s.fd, wantRead|wantWrite)
	}
	s.rest = append(s.rest, b...)
	return nil
}

func (s *sendBuffer) flush() error {
	n, err := send(s.fd, s.rest)
	s.rest = s.rest[n:]
	if !s.blocked() {
		s.rest = nil // a body of several MiB is not kept
		s.poll.modify(s.fd, wantRead)
	}
	return err
}

// send writes as much as the socket takes.
func send(fd int, b []byte) (n int, err error) {
	for n < len(b) {
		m, err := syscall.Write(fd, b[n:])
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return n, nil
		case err != nil:
			return n, fmt.Errorf("write: %w", err)
		default:
			n += m
		}
	}
	return n, nil
}

// receive reads once. n is 0 with a nil error if nothing has come. An end is errEnd.
func receive(fd int, b []byte) (n int, err error) {
	n, err = syscall.Read(fd, b)
	switch {
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EINTR):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("read: %w", err)
	case n == 0:
		return 0, errEnd
	}
	return n, nil
}

var errEnd = errors.New("the connection was closed")
