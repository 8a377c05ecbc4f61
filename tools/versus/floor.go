package versus

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Floor is what the kernel needs for the bytes alone: a write to and a read from a TCP connection
// on this host, without a wait, a wake-up or a look at them. No proxy that copies can need less.
type Floor struct {
	Bytes   int     `json:"bytes"`
	WriteUs float64 `json:"write_us"` // with the way through the stack to the other end
	ReadUs  float64 `json:"read_us"`
}

// floorSizes are those of an event with its chunk, and of the requests.
var floorSizes = []int{eventSize + len("dc\r\n\r\n"), oneKiB, 512 * oneKiB, 4 * oneKiB * oneKiB}

// measureFloor takes d for each size.
func measureFloor(d time.Duration) ([]Floor, error) {
	runtime.LockOSThread() // its CPU clock is read
	defer runtime.UnlockOSThread()
	from, to, err := loopback()
	if err != nil {
		return nil, err
	}
	defer func() { _ = syscall.Close(from); _ = syscall.Close(to) }()
	var all []Floor
	for _, size := range floorSizes {
		f, err := floorOf(from, to, size, d)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

// floorOf passes messages of a size. Small ones go in rows, with one clock reading for each row,
// because reading the clock costs about as much as a call.
func floorOf(from, to, size int, d time.Duration) (Floor, error) {
	row := max(1, min(64, 64*oneKiB/size))
	out, in := make([]byte, size), make([]byte, min(size, 256*oneKiB))
	var writing, reading time.Duration
	n := 0
	for end := time.Now().Add(d); n == 0 || time.Now().Before(end); n += row {
		for sent, got := 0, 0; got < row*size; {
			began := threadTime()
			for blocked := false; sent < row*size && !blocked; {
				m, err := send(from, out[sent%size:])
				if err != nil {
					return Floor{}, err
				}
				blocked = m < size-sent%size
				sent += m
			}
			wrote := threadTime()
			for got < sent {
				m, err := receive(to, in)
				if err != nil {
					return Floor{}, err
				}
				got += m
			}
			writing += wrote - began
			reading += threadTime() - wrote
		}
	}
	per := func(d time.Duration) float64 { return float64(d) / float64(n) / 1e3 }
	return Floor{size, per(writing), per(reading)}, nil
}

// threadTime returns the CPU time of this thread, which does not depend on what others do.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic("BUG: a thread without a clock: " + err.Error())
	}
	return time.Duration(t.Nano())
}

// loopback is a connection of this process with itself, as two sockets that do not block.
func loopback() (from, to int, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, 0, fmt.Errorf("listen: %w", err)
	}
	defer func() { _ = l.Close() }()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return 0, 0, fmt.Errorf("connect to this process: %w", err)
	}
	defer func() { _ = a.Close() }()
	b, err := l.Accept()
	if err != nil {
		return 0, 0, fmt.Errorf("connect to this process: %w", err)
	}
	defer func() { _ = b.Close() }()
	from, err1 := ownSocket(a)
	to, err2 := ownSocket(b)
	return from, to, errors.Join(err1, err2)
}

// ownSocket returns a descriptor of its own for a connection. It does not block.
func ownSocket(c net.Conn) (int, error) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		panic(fmt.Sprintf("BUG: a %T without a socket", c))
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("reach the socket: %w", err)
	}
	var fd int
	var dupErr error
	if err := raw.Control(func(x uintptr) { fd, dupErr = unix.FcntlInt(x, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return 0, fmt.Errorf("reach the socket: %w", err)
	}
	if dupErr != nil {
		return 0, fmt.Errorf("copy the socket: %w", dupErr)
	}
	return fd, nil
}
