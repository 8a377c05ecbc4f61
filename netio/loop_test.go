package netio

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// newLoops returns Loops in which each stream takes a seat as soon as it waits, whatever its pace.
func newLoops(t *testing.T) *Loops {
	t.Helper()
	g := NewLoops()
	g.patience, g.quick = 0, -1
	t.Cleanup(g.Close)
	return g
}

// unswept is newLoops, but nobody looks after the loops.
func unswept(t *testing.T) *Loops {
	t.Helper()
	g := newLoops(t)
	g.sweeping = true // as if somebody did
	return g
}

// seated is the number of streams that have a seat.
func (g *Loops) seated() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for _, l := range g.loops {
		l.mu.Lock()
		n += l.taken
		l.mu.Unlock()
	}
	return n
}

// first returns the first loop. Streams that sit down change the list.
func (g *Loops) first(t *testing.T) (l *loop) {
	t.Helper()
	await(t, "there is a loop", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		if len(g.loops) > 0 {
			l = g.loops[0]
		}
		return l != nil
	})
	return l
}

// satAgain reports whether l has had more stays than that, or has ended without streams.
func satAgain(l *loop, stays int32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed || l.nth > stays
}

// await waits until ok holds.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(longEnough); !ok(); time.Sleep(50 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// awaitSeats waits until so many streams have a seat.
func awaitSeats(t *testing.T, g *Loops, n int) {
	t.Helper()
	await(t, "as many streams have a seat as should", func() bool { return g.seated() == n })
}

// stream is a connection that is followed, and what came of it.
type stream struct {
	*backendConn
	far      *net.TCPConn
	ended    chan error // what Follow has returned, or panicked with
	stack    []byte     // of a panic
	returned bool       // set when it has; the race detector sees a take after that
}

// follow follows a new connection.
func follow(t *testing.T, g *Loops, to *Socket, take func(s *stream) bool) *stream {
	t.Helper()
	s := opened(t)
	s.begin(g, to, take)
	return s
}

// opened returns a connection that a watcher watches.
func opened(t *testing.T) *stream {
	t.Helper()
	far, near := tcpPair(t)
	c, _ := watchedConn(t, startWatcher(t), near)
	_ = c.SetReadDeadline(time.Now().Add(3 * longEnough))
	t.Cleanup(func() { _ = c.Close() })
	return &stream{backendConn: c, far: far, ended: make(chan error, 1)}
}

func (s *stream) begin(g *Loops, to *Socket, take func(s *stream) bool) {
	go func() {
		var err error
		defer func() {
			if p := recover(); p != nil {
				err = p.(error)
				s.stack = StackOf(p)
			}
			s.ended <- err
		}()
		err = s.Follow(g, to, &s.in, func() bool {
			if s.returned {
				panic(errors.New("a take after Follow had returned"))
			}
			return take(s)
		})
		s.returned = true
	}()
}

// ignore uses up what has come.
func ignore(s *stream) bool { s.in.Empty(); return true }

// tally returns a take that counts bytes.
func tally() (n *atomic.Int64, take func(s *stream) bool) {
	n = new(atomic.Int64)
	return n, func(s *stream) bool { n.Add(int64(len(s.in.Unread))); s.in.Empty(); return true }
}

func (s *stream) send(t *testing.T, what string) {
	t.Helper()
	if _, err := io.WriteString(s.far, what); err != nil {
		t.Fatal(err)
	}
}

// wantEnd waits until Follow has returned.
func (s *stream) wantEnd(t *testing.T, want error) {
	t.Helper()
	select {
	case err := <-s.ended:
		if !errors.Is(err, want) {
			t.Fatalf("%v: want %v", err, want)
		}
	case <-time.After(longEnough):
		t.Fatal("Follow goes on")
	}
}

// Every byte is taken once and in order, in whatever pieces it comes, while streams come and go and
// others make them get up. The end is taken too.
func TestLoopTakesWhatComes(t *testing.T) {
	t.Parallel()
	const size = 1 << 17
	g := newLoops(t)
	var wg sync.WaitGroup
	for i := range 12 {
		s := opened(t)
		n := 0
		s.begin(g, nil, func(s *stream) bool {
			for _, b := range s.in.Unread {
				if b != byte(n%251) {
					t.Errorf("byte %d is not the one that was sent", n)
					return false
				}
				n++
			}
			s.in.Empty()
			return n < size || i%2 == 0
		})
		stop := make(chan struct{})
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
					s.lookAgain()
				}
			}
		})
		wg.Go(func() {
			defer close(stop)
			sendInPieces(s.far, size, rand.New(rand.NewPCG(1, uint64(i))), i%2 == 0)
			err := <-s.ended
			if n != size || i%2 == 0 && !errors.Is(err, io.EOF) || i%2 == 1 && err != nil {
				t.Errorf("%d of %d bytes, then %v", n, size, err)
			}
		})
	}
	wg.Wait()
	awaitSeats(t, g, 0)
}

// Each byte is sent only after the one before was taken, so one event that is lost stops the stream.
// Meanwhile the stream is made to get up again and again.
func TestNoEventIsLostAsSeatsChange(t *testing.T) {
	t.Parallel()
	g := newLoops(t)
	g.patience, g.pause = 0, -1 // each wait suits a loop
	took, take := tally()
	s := follow(t, g, nil, take)
	var stop atomic.Bool
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for !stop.Load() {
			s.lookAgain()
			runtime.Gosched()
		}
	}()
	for n := range int64(500) {
		s.send(t, "x")
		await(t, "the byte is taken", func() bool { return took.Load() == n+1 })
	}
	stop.Store(true)
	<-stopped
	_ = s.far.Close()
	s.wantEnd(t, io.EOF)
}

// An end is found on a seat, alone or behind bytes that come with it.
func TestEndOnASeatIsFound(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, last string
		end        func(far *net.TCPConn)
		want       error
	}{
		{"FIN", "", func(far *net.TCPConn) { _ = far.CloseWrite() }, io.EOF},
		{"FIN behind bytes", "last", func(far *net.TCPConn) { _ = far.CloseWrite() }, io.EOF},
		{"RST", "", func(far *net.TCPConn) { _ = far.SetLinger(0); _ = far.Close() }, syscall.ECONNRESET},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := unswept(t)
			entered, release := make(chan struct{}), make(chan struct{})
			other := follow(t, g, nil, func(s *stream) bool { close(entered); <-release; return false })
			took, take := tally()
			s := follow(t, g, nil, take)
			awaitSeats(t, g, 2)
			other.send(t, "x") // the loop is busy, so bytes and end are one event
			<-entered
			s.send(t, tc.last)
			tc.end(s.far)
			close(release)
			s.wantEnd(t, tc.want)
			if took.Load() != int64(len(tc.last)) {
				t.Errorf("%d bytes were taken, want %d", took.Load(), len(tc.last))
			}
		})
	}
}

// A deadline ends a stay, a later one that was noted prolongs it, and the connection can be read afterwards.
func TestDeadlineOnASeat(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name        string
		first, then time.Duration // from the beginning; then is set on the seat
		least       time.Duration
	}{
		{"armed", 400 * time.Millisecond, 0, 400 * time.Millisecond},
		{"later", 400 * time.Millisecond, 900 * time.Millisecond, 900 * time.Millisecond},
		{"earlier", time.Hour, 300 * time.Millisecond, 300 * time.Millisecond},
		{"now, as Cut sets it", time.Hour, -time.Second, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
		again:
			g, s := newLoops(t), opened(t)
			start := time.Now()
			_ = s.SetReadDeadline(start.Add(tc.first))
			s.begin(g, nil, ignore)
			if tc.first == time.Hour {
				awaitSeats(t, g, 1)
			}
			if tc.then != 0 {
				_ = s.SetReadDeadline(start.Add(tc.then))
			}
			late := tc.then > tc.first && time.Since(start) >= tc.first
			s.wantEnd(t, os.ErrDeadlineExceeded)
			if late { // the first deadline came before it was moved
				goto again
			}
			if took := time.Since(start); took < tc.least {
				t.Errorf("the deadline came after %v, want %v", took, tc.least)
			}
			_ = s.SetReadDeadline(time.Now().Add(longEnough))
			s.send(t, "more")
			if err := s.more(); err != nil || string(s.in.Unread) != "more" {
				t.Fatalf("%q, %v", s.in.Unread, err)
			}
		})
	}
}

// A stream waits for a near deadline on its own goroutine, and sits down again if a later one was noted.
func TestStreamGetsUpForItsDeadline(t *testing.T) {
	t.Parallel()
	g, s := newLoops(t), opened(t)
	s.begin(g, nil, ignore)
	awaitSeats(t, g, 1)
	l := g.first(t)
	l.mu.Lock()
	before := l.nth
	l.seats[s.following.by.slot].due = g.now() // as if the armed deadline were near
	l.mu.Unlock()
	await(t, "it gets up and sits down again", func() bool { return g.seated() == 1 && satAgain(l, before) })
	_ = s.far.Close()
	s.wantEnd(t, io.EOF)
}

// Whoever closes or cuts a connection ends its Follow, and no take runs after that. The descriptor stays the
// connection's until then, however soon it is used again.
func TestCloseAndCutDuringStays(t *testing.T) {
	t.Parallel()
	g := newLoops(t)
	for i := range 200 {
		s := follow(t, g, nil, ignore)
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			for range 1 + i%7 {
				_, _ = io.WriteString(s.far, "event")
			}
		}()
		if i%3 == 0 {
			awaitSeats(t, g, 1)
		}
		if i%2 == 0 {
			_ = s.Close()
			s.wantEnd(t, net.ErrClosed)
		} else {
			_ = s.SetReadDeadline(time.Now())
			s.wantEnd(t, os.ErrDeadlineExceeded)
		}
		<-sent
		_ = s.Close()
		_ = s.far.Close()
	}
	awaitSeats(t, g, 0)
}

// A client that does not read holds up its own stream, and no other. It loses nothing.
func TestClientWithoutRoomWaitsAlone(t *testing.T) {
	t.Parallel()
	g := unswept(t)
	g.most = func() int { return 1 }
	near, client := tcpPair(t)
	_ = near.SetWriteBuffer(4 << 10) // client keeps its own: with a small one it would tell of room only now and then
	to := connOn(t, near)
	piece := bytes.Repeat([]byte("0123456789abcde\n"), 4<<10)
	writing := make(chan struct{}, 100)
	slow := follow(t, g, &to.Socket, func(s *stream) bool {
		s.in.Empty()
		writing <- struct{}{}
		n, err := to.Write(piece)
		return err == nil && n == len(piece)
	})
	took, take := tally()
	fast := follow(t, g, nil, take)
	awaitSeats(t, g, 2)
	const pieces = 100 // more than any buffer holds
	go func() {
		for range pieces {
			_, _ = io.WriteString(slow.far, "x")
			<-writing
		}
		_ = slow.far.Close()
	}()
	await(t, "the slow client's stream gets up", func() bool { return g.leads() > 1 })
	for n := range int64(100) {
		fast.send(t, "x")
		await(t, "the other stream goes on", func() bool { return took.Load() == n+1 })
	}
	got, err := io.ReadAll(io.LimitReader(client, pieces*int64(len(piece))))
	if err != nil || !bytes.Equal(got, bytes.Repeat(piece, pieces)) {
		t.Fatalf("%d bytes of %d, or others, %v", len(got), pieces*len(piece), err)
	}
	slow.wantEnd(t, io.EOF)
}

// leads is how many goroutines have led the first loop.
func (g *Loops) leads() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.loops) == 0 { // it had no streams
		return 0
	}
	l := g.loops[0]
	l.mu.Lock()
	defer l.mu.Unlock()
	return int(l.led)
}

// A take that waits for something else holds up others no longer than until the next sweep.
func TestTakeThatWaitsIsLeftBehind(t *testing.T) {
	t.Parallel()
	g := newLoops(t)
	g.most = func() int { return 1 }
	entered, release := make(chan struct{}), make(chan struct{})
	hung := follow(t, g, nil, func(s *stream) bool {
		s.in.Empty()
		close(entered)
		<-release
		return true
	})
	took, take := tally()
	other := follow(t, g, nil, take)
	awaitSeats(t, g, 2)
	hung.send(t, "x")
	<-entered
	for n := range int64(100) {
		other.send(t, "x")
		await(t, "the other stream goes on", func() bool { return took.Load() == n+1 })
	}
	close(release)
	_ = hung.far.Close()
	hung.wantEnd(t, io.EOF)
}

// Streams without a pause are followed each by its own goroutine, so their takes run at the same time.
func TestUnpacedStreamsGetUp(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		quick time.Duration
		event []byte
	}{
		{"again at once", time.Hour, []byte("event")},
		{"a read that fills the buffer", -1, bytes.Repeat([]byte("x"), InboxSize)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := newLoops(t)
			g.quick, g.pause = tc.quick, time.Hour // what has got up stays up
			var own [2]*stream
			var took [2]*atomic.Int64
			for i := range own {
				n, take := tally()
				own[i], took[i] = follow(t, g, nil, take), n
			}
			awaitSeats(t, g, 2)
			for end := time.Now().Add(longEnough); g.seated() > 0; {
				if time.Now().After(end) {
					t.Fatal("they share a goroutine")
				}
				for i, s := range own {
					before := took[i].Load()
					s.send(t, string(tc.event))
					await(t, "it is taken", func() bool { return took[i].Load() == before+int64(len(tc.event)) })
				}
			}
			for _, s := range own {
				_ = s.far.Close()
				s.wantEnd(t, io.EOF)
			}
		})
	}
}

// A stream that got up sits down again when it comes at a pace.
func TestPacedStreamSitsDownAgain(t *testing.T) {
	t.Parallel()
	g := newLoops(t)
	took, take := tally()
	s := follow(t, g, nil, take)
	awaitSeats(t, g, 1)
	l := g.first(t)
	s.send(t, string(bytes.Repeat([]byte("x"), InboxSize)))
	await(t, "it is taken", func() bool { return took.Load() == InboxSize })
	await(t, "it gets up and sits down again", func() bool {
		time.Sleep(2 * g.pause)
		s.send(t, "x")
		return g.seated() == 1 && satAgain(l, 1)
	})
	_ = s.far.Close()
	s.wantEnd(t, io.EOF)
}

//go:noinline
func panicHere(err error) { panic(err) }

// A panic comes out of the stream's own Follow, and the loop goes on.
func TestPanicOnALoop(t *testing.T) {
	t.Parallel()
	g := newLoops(t)
	g.most = func() int { return 1 }
	broken := errors.New("broken")
	bad := follow(t, g, nil, func(*stream) bool { panicHere(broken); return true })
	took, take := tally()
	good := follow(t, g, nil, take)
	awaitSeats(t, g, 2)
	bad.send(t, "x")
	bad.wantEnd(t, broken)
	if !bytes.Contains(bad.stack, []byte("panicHere")) {
		t.Errorf("the stack does not tell where the panic was:\n%s", bad.stack)
	}
	good.send(t, "x")
	await(t, "the other stream goes on", func() bool { return took.Load() == 1 })
	awaitSeats(t, g, 1)
}

// A stream joins the first loop that has time. While none has, it is followed alone.
func TestStreamJoinsALoopThatHasTime(t *testing.T) {
	t.Parallel()
	g := newLoops(t)
	g.most = func() int { return 2 }
	g.ended = true // so that nothing is measured here
	busy := func(shares ...float64) *loop {
		g.mu.Lock()
		defer g.mu.Unlock()
		for i, share := range shares {
			g.loops[i].share = share
		}
		return g.pick()
	}
	first := busy()
	if first == nil || busy(0.49) != first {
		t.Fatal("a loop that has time is passed by")
	}
	second := busy(0.5)
	if second == nil || second == first || busy(0.5, 0.1) != second || busy(0.2, 0.1) != first {
		t.Fatal("want the second loop only while the first one is busy")
	}
	if busy(0.5, 0.9) != nil {
		t.Fatal("there are more loops than allowed")
	}
	taken := func(seats ...int) {
		for i, l := range []*loop{first, second} {
			l.mu.Lock()
			l.taken = seats[i]
			l.mu.Unlock()
		}
	}
	taken(fewSeats, fewSeats-1)
	if busy(0.2, 0.1) != second {
		t.Fatal("a loop with many streams is not passed by")
	}
	taken(fewSeats+1, fewSeats)
	if busy(0.2, 0.1) != second || busy(0.2, 0.5) != first {
		t.Fatal("of two loops with many streams, want the one with fewer, unless it is busy")
	}
	taken(mostSeats, mostSeats)
	if busy(0.2, 0.1) != nil {
		t.Fatal("a full loop is not passed by")
	}
	taken(0, 0)
	g.ended = false
}

// A stream that is refused asks less and less often, and then as seldom as that.
func TestPatienceGrowsToItsBound(t *testing.T) {
	t.Parallel()
	f := &follower{patience: 1}
	for want := 2; want <= 4*mostPatience; want *= 2 {
		if f.discourage(); int(f.patience) != min(want, mostPatience) {
			t.Fatalf("patience %d, want %d", f.patience, min(want, mostPatience))
		}
	}
}

// A loop that was made for a stream which cannot join it ends too.
func TestLoopThatNobodyCouldJoinEnds(t *testing.T) {
	t.Parallel()
	g := newLoops(t)
	if g.seat(&follower{s: &Socket{fd: -1}, loops: g}, time.Time{}) {
		t.Fatal("a descriptor that is none got a seat")
	}
	await(t, "the loop ends", g.first(t).ended)
}

// Loops without streams end, so nothing of them stays behind.
func TestLoopsWithoutStreamsEnd(t *testing.T) {
	t.Parallel()
	g := newLoops(t)
	s := follow(t, g, nil, ignore)
	awaitSeats(t, g, 1)
	l := g.first(t)
	_ = s.far.Close()
	s.wantEnd(t, io.EOF)
	await(t, "the loop ends", l.ended)
	follow(t, g, nil, ignore)
	awaitSeats(t, g, 1)
}

// A loop that has ended, as one without descriptors does, is passed by too.
func TestStreamJoinsNoLoopThatHasEnded(t *testing.T) {
	t.Parallel()
	g := newLoops(t)
	g.most = func() int { return 2 }
	g.mu.Lock()
	ended := g.pick()
	g.mu.Unlock()
	ended.close()
	follow(t, g, nil, func(s *stream) bool { s.in.Empty(); return true })
	awaitSeats(t, g, 1)
}

// The last bytes and the end come as one event. The watcher tells of the end after the stream has looked for it, and before it
// is refused a seat. It must find the end all the same.
func TestEndIsToldWhileASeatIsRefused(t *testing.T) {
	t.Parallel()
	g := newLoops(t)
	g.patience, g.most = 0, func() int { return 0 } // it asks at once, and in vain
	far, near := tcpPair(t)
	c := connOn(t, near)
	c.peer.onLeft = c.lookAgain
	if err := startWatcher(t).join(&c.peer, c.fd); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	s := &stream{backendConn: c, far: far, ended: make(chan error, 1)}
	_, _ = io.WriteString(far, "last")
	_ = far.CloseWrite()
	time.Sleep(20 * time.Millisecond) // so that both are there at the first look
	entered, release := make(chan struct{}), make(chan struct{})
	s.begin(g, nil, func(s *stream) bool { s.in.Empty(); close(entered); <-release; return true })
	<-entered
	c.readBy.mu.Lock() // it stops in sit
	close(release)
	time.Sleep(30 * time.Millisecond)
	c.peer.left.Store(true)
	c.readBy.armed = time.Now().Add(-time.Second)
	_ = c.tcp.SetReadDeadline(c.readBy.armed)
	c.readBy.mu.Unlock()
	s.wantEnd(t, io.EOF)
}

// A loop that works nearly all the time is found to be busy, and streams that come then go elsewhere.
func TestBusyLoopIsFoundOut(t *testing.T) {
	t.Parallel()
	g := newLoops(t)
	g.most = func() int { return 1 }
	var stop atomic.Bool
	busy := follow(t, g, nil, func(s *stream) bool {
		s.in.Empty()
		for end := time.Now().Add(20 * time.Millisecond); time.Now().Before(end) && !stop.Load(); { //nolint:revive // it is to be busy
		}
		return true
	})
	awaitSeats(t, g, 1)
	share := func() float64 {
		g.mu.Lock()
		defer g.mu.Unlock()
		if len(g.loops) == 0 { // it had no streams
			return 0
		}
		return g.loops[0].share
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for !stop.Load() {
			_, _ = io.WriteString(busy.far, "x")
			time.Sleep(time.Millisecond)
		}
	}()
	await(t, "the loop is found to be busy", func() bool { return share() >= 0.5 })
	stop.Store(true)
	<-sent
	await(t, "the loop is found to have time again", func() bool { return share() < 0.5 })
}

// Streams go on when the loops are closed, and no stream joins them any more.
func TestStreamsOutliveTheirLoops(t *testing.T) {
	t.Parallel()
	g := newLoops(t)
	took, take := tally()
	s := follow(t, g, nil, take)
	awaitSeats(t, g, 1)
	g.Close()
	for n := range int64(3) {
		s.send(t, "x")
		await(t, "the stream goes on", func() bool { return took.Load() == n+1 })
	}
	if g.seated() != 0 {
		t.Error("it joined a closed loop")
	}
	_ = s.far.Close()
	s.wantEnd(t, io.EOF)
}

// A slot is used again while an event of its last user may be under way.
func TestLoopTakesNobodyForAnother(t *testing.T) {
	t.Parallel()
	g := newLoops(t)
	set, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(set) }()
	l := &loop{loops: g, set: set} // this goroutine leads
	me := &lead{loop: l}
	first, second := &follower{s: &opened(t).Socket}, &follower{s: &opened(t).Socket}
	if !l.join(first, time.Hour) {
		t.Fatal("no seat")
	}
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: first.slot, Pad: first.nth}
	l.recall(first)
	if !l.join(second, time.Hour) || second.slot != first.slot {
		t.Fatalf("slot %d, want the freed %d", second.slot, first.slot)
	}
	l.recall(first) // as late as it may be
	if l.begin(me, event) != nil {
		t.Fatal("an event was put down to the next stream")
	}
	if l.begin(me, unix.EpollEvent{Events: unix.EPOLLIN, Fd: second.slot, Pad: second.nth}) != second {
		t.Fatal("forgotten")
	}
	if l.begin(me, unix.EpollEvent{Events: unix.EPOLLIN, Fd: second.slot, Pad: second.nth}) != nil {
		t.Fatal("two goroutines would take for one stream")
	}
	l.end(me, second, over)
}
