package netio

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// watchedConn returns a connection whose peer w watches, and a channel that is closed after w has
// reported that the peer left.
func watchedConn(t *testing.T, w *Watcher, tcp *net.TCPConn) (c *backendConn, left chan struct{}) {
	t.Helper()
	c, left = connOn(t, tcp), make(chan struct{})
	c.peer.onLeft = func() { c.lookAgain(); close(left) }
	if err := w.join(&c.peer, c.fd); err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(30 * time.Second)) // ends a wait that nothing else ends
	return c, left
}

// keepTicking makes w look for departures.
func keepTicking(t *testing.T, w *Watcher) {
	t.Helper()
	ticks(t, w)()
}

// ticks returns what makes w look for departures, to be called from any goroutine.
func ticks(t *testing.T, w *Watcher) (begin func()) {
	t.Helper()
	_, near := tcpPair(t)
	p := joined(t, w, near)
	return func() { w.add(&Watch{}, p, newToldOf()) }
}

// intoTheWait is how long a follower may take from its last read to its wait. A watcher that tells of the end
// before that proves nothing, but it fails nothing either.
const intoTheWait = 300 * time.Millisecond

// An end that came with the last bytes wakes no wait. It is found whether the watcher reports it
// before those bytes are read or after.
func TestEndBehindTheLastBytesIsFound(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		end  func(far *net.TCPConn)
		want error
	}{
		{"FIN", func(far *net.TCPConn) { _ = far.CloseWrite() }, io.EOF},
		{"RST", func(far *net.TCPConn) { _ = far.SetLinger(0); _ = far.Close() }, syscall.ECONNRESET},
	} {
		for _, before := range []bool{true, false} {
			t.Run(tc.name+map[bool]string{true: "/told before", false: "/told after"}[before], func(t *testing.T) {
				w := startWatcher(t)
				far, near := tcpPair(t)
				c, left := watchedConn(t, w, near)
				arrive(t, farEnd{far, tc.end}, c, "last")
				if before {
					keepTicking(t, w)
					<-left
				}
				tick := time.AfterFunc(time.Hour, ticks(t, w))
				defer tick.Stop()
				got := ""
				err := c.Follow(nil, nil, &c.in, func() bool {
					got += string(c.in.Unread)
					c.in.Empty()
					if !before {
						tick.Reset(intoTheWait)
					}
					return true
				})
				if got != "last" || !errors.Is(err, tc.want) {
					t.Fatalf("%q, %v: want %q and %v", got, err, "last", tc.want)
				}
			})
		}
	}
}

// farEnd ends the connection as soon as it has written.
type farEnd struct {
	*net.TCPConn
	end func(far *net.TCPConn)
}

func (f farEnd) Write(p []byte) (int, error) {
	n, err := f.TCPConn.Write(p)
	f.end(f.TCPConn)
	return n, err
}

// Every byte is taken once and in order, in whatever pieces it comes. The end is taken too.
func TestFollowTakesWhatComes(t *testing.T) {
	t.Parallel()
	const conns, size = 20, 1 << 20
	w := startWatcher(t)
	keepTicking(t, w)
	for i := range conns {
		far, near := tcpPair(t)
		c, _ := watchedConn(t, w, near)
		rnd := rand.New(rand.NewPCG(1, uint64(i)))
		go sendInPieces(far, size, rnd, i%2 == 0)
		n := 0
		err := c.Follow(nil, nil, &c.in, func() bool {
			for _, b := range c.in.Unread {
				if b != byte(n%251) {
					t.Errorf("byte %d is not the one that was sent", n)
					return false
				}
				n++
			}
			c.in.Empty()
			return n < size || i%2 == 0
		})
		if n != size || i%2 == 0 && !errors.Is(err, io.EOF) || i%2 == 1 && err != nil {
			t.Fatalf("%d of %d bytes, then %v", n, size, err)
		}
	}
}

// sendInPieces sends size bytes. Each byte is its offset modulo 251.
func sendInPieces(far *net.TCPConn, size int, rnd *rand.Rand, end bool) {
	p := make([]byte, size)
	for i := range p {
		p[i] = byte(i % 251)
	}
	most := []int{30, 300, 3 * InboxSize}[rnd.IntN(3)]
	if most == 30 {
		p = p[size-size/16:] // in many writes
		head := make([]byte, size-size/16)
		for i := range head {
			head[i] = byte(i % 251)
		}
		_, _ = far.Write(head)
	}
	for len(p) > 0 {
		n := min(len(p), 1+rnd.IntN(most))
		if rnd.IntN(8) == 0 {
			n = min(len(p), InboxSize) // fills the buffer
		}
		_, _ = far.Write(p[:n])
		if p = p[n:]; rnd.IntN(4) == 0 {
			runtime.Gosched()
		}
	}
	if end {
		_ = far.Close()
	}
}

// A deadline ends the wait, and the connection can be read from again.
func TestFollowEndsAtItsDeadline(t *testing.T) {
	far, near := tcpPair(t)
	c, _ := watchedConn(t, startWatcher(t), near)
	_ = c.SetDeadline(time.Now().Add(20 * time.Millisecond))
	var ne net.Error
	if err := c.Follow(nil, nil, &c.in, func() bool { return true }); !errors.As(err, &ne) || !ne.Timeout() {
		t.Fatalf("%v: want a timeout", err)
	}
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	_, _ = io.WriteString(far, "more")
	if err := c.more(); err != nil || string(c.in.Unread) != "more" {
		t.Fatalf("%q, %v", c.in.Unread, err)
	}
}
