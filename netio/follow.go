package netio

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// following is a connection whose bytes are taken as they come, in one wait from the first to the
// last. While that wait goes on, Go's poller reports everything that comes, whichever goroutine runs
// meanwhile. So a read that does not fill its buffer has emptied the socket, and the next one may wait
// for an event. This spares a read that would find nothing, which is one of three system calls for
// each event. An end that came with the last bytes raises no further event. The watcher finds it.
type following struct {
	on   atomic.Bool
	shut bool      // Close was called; guarded by readBy.mu
	by   *follower // nil while nobody follows; others than its own goroutine hold readBy.mu
}

// follower is one Follow. Its goroutine waits for the bytes itself, or rests while the follower has a
// seat in a loop. Then the loop reads and takes in its place.
type follower struct {
	s, to *Socket // to is what take writes to; may be nil
	in    *Inbox
	take  func() (more bool)
	loops *Loops // nil: it never gets a seat

	last     time.Duration // when something last came, on the clock of loops
	calm     uint8         // waits of a pace that suits a loop, in a row
	patience uint8         // as many make it ask for a seat
	quick    uint8         // bytes in a loop that came again at once, in a row

	// The loop's lock guards what follows, except that loop itself changes under readBy.mu.
	loop      *loop
	slot, nth int32
	period    uint32         // of the loop, when it was last served
	served    bool           // the loop is reading or taking
	recalled  bool           // it must get up when that is done
	outcome   outcome        // of the stay, valid once away is done
	panicked  *panicked      // of take; nil if it did not
	away      sync.WaitGroup // done when the stay has ended
}

// outcome says why a follower has left its loop, or that it stays.
type outcome uint8

const (
	stays    outcome = iota
	over             // take wants no more, or the connection has ended
	unsuited         // its bytes come without a pause, or take waited
	recalled         // a deadline, Close or the end of the loop concerns it
)

// taken is what one read brought.
type taken uint8

const (
	tookNone taken = iota
	tookAll        // that had come
	tookFull       // as much as the buffer holds, so there may be more
	tookLast       // take wants no more, or the connection has ended
)

// Follow calls take each time bytes have arrived in the inbox, which is empty at the start. It returns
// nil when take wants no more. take uses up the inbox and must not close the connection. On a socket
// without a watcher, Follow reads until it finds nothing. With loops, take may run on one of their
// goroutines. No take runs after Follow has returned, and Follow passes on a panic of take. to is the
// socket to which take writes, and for which it may wait. Both may be nil.
func (s *Socket) Follow(loops *Loops, to *Socket, in *Inbox, take func() (more bool)) error {
	if s.secure != nil {
		return s.followSecure(in, take)
	}
	f := &follower{s: s, to: to, in: in, take: take, loops: loops}
	if loops != nil {
		f.last, f.patience = loops.now(), loops.patience
	}
	s.follow(f)
	s.following.on.Store(true)
	defer func() {
		s.following.on.Store(false)
		s.follow(nil)
	}()
	s.reading = transfer{pool: in.pool}
	err := s.waitRead(s.followOnce)
	t := &s.reading
	switch {
	case err != nil:
		return err
	case t.err != 0:
		return os.NewSyscallError("read", t.err)
	case t.n == 0:
		return io.EOF
	}
	return nil
}

func (s *Socket) follow(f *follower) {
	s.readBy.mu.Lock()
	defer s.readBy.mu.Unlock()
	s.following.by = f
}

// followSecure is Follow over TLS. Each read tries first, so no end is missed.
func (s *Socket) followSecure(in *Inbox, take func() (more bool)) error {
	for {
		if err := s.More(in); err != nil || !take() {
			return err
		}
	}
}

// followOnce reads and calls take until the socket is empty. Its stays in a loop are part of the one wait
// too, so the descriptor remains this connection's until they are over.
func (s *Socket) followOnce(fd uintptr) (done bool) {
	f := s.following.by
	f.woke()
	for {
		switch s.takeOnce(f, fd) {
		case tookLast:
			return true
		case tookFull:
			continue
		case tookAll:
			// The order matters. The watcher first notes that the peer has left and then looks for a follower.
			if s.peer.w == nil || s.peer.left.Load() {
				continue
			}
		}
		if !s.sit(f) {
			return false
		}
		if f.rest() == over {
			return true
		}
	}
}

// takeOnce reads once, and calls take if that brought something.
func (s *Socket) takeOnce(f *follower, fd uintptr) taken {
	t := &s.reading
	if !s.readOnce(fd) {
		return tookNone
	}
	if t.err != 0 || t.n == 0 {
		t.giveBack()
		return tookLast
	}
	got := tookAll
	if t.n == min(len(t.buf), RawLimit) {
		got = tookFull
	}
	f.in.buf, f.in.Unread = t.lent, t.buf[:t.n]
	t.lent, t.buf = nil, nil
	if !f.take() {
		return tookLast
	}
	return got
}

// lookAgain is called by the watcher when the peer has left.
func (s *Socket) lookAgain() {
	if s.following.on.Load() {
		s.readBy.again(s.armRead)
	}
}

// armRead moves the armed deadline of reads. A follower that has a seat gets up for it, and then waits for
// it where all others do. readBy.mu is held.
func (s *Socket) armRead(at time.Time) error {
	err := s.tcp.SetReadDeadline(at)
	s.recall()
	return err
}

// recall makes a follower that has a seat get up, after the take that is under way. readBy.mu is held.
func (s *Socket) recall() {
	if f := s.following.by; f != nil && f.loop != nil {
		f.loop.recall(f)
	}
}

// shut ends the stay in a loop before the connection is closed, because that waits for its reader.
func (s *Socket) shut() {
	s.readBy.mu.Lock()
	defer s.readBy.mu.Unlock()
	s.following.shut = true
	s.recall()
}

// sit gives f a seat in a loop if its bytes come at a pace, and the armed deadline is not near. It must not arm another
// one: the watcher may just have armed one that is over, and nothing else would make the stream look again.
func (s *Socket) sit(f *follower) bool {
	if f.loops == nil || f.calm < f.patience {
		return false
	}
	d := &s.readBy
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.following.shut {
		return false
	}
	if !f.loops.seat(f, d.armed) {
		f.discourage()
		return false
	}
	return true
}

// discourage makes it longer until the follower asks for a seat again.
func (f *follower) discourage() {
	f.calm = 0
	f.patience = uint8(min(max(2*int(f.patience), 1), mostPatience))
}

// woke notes that the follower's own wait has ended, and how long it was.
func (f *follower) woke() {
	if f.loops == nil {
		return
	}
	now := f.loops.now()
	if now-f.last < f.loops.pause {
		f.calm = 0
	} else if f.calm < mostPatience {
		f.calm++
	}
	f.last = now
}

// rest waits until the stay in the loop has ended.
func (f *follower) rest() outcome {
	f.away.Wait()
	f.s.readBy.mu.Lock()
	f.loop = nil
	f.s.readBy.mu.Unlock()
	if f.panicked != nil {
		panic(f.panicked)
	}
	if f.outcome == unsuited {
		f.discourage()
	}
	return f.outcome
}

// turn is takeOnce for the loop, until nothing is left. left tells that the peer has ended its side.
func (f *follower) turn(left bool) (end outcome) {
	defer func() {
		if p := recover(); p != nil {
			f.panicked, end = &panicked{value: p, stack: debug.Stack()}, over
		}
	}()
	for {
		switch f.s.takeOnce(f, uintptr(f.s.fd)) {
		case tookLast:
			return over
		case tookFull:
			return unsuited
		case tookNone:
			return stays
		case tookAll:
			if !left {
				return stays
			}
		}
	}
}

// panicked is a panic of a take on a loop. It goes on in the stream's own goroutine, which has another stack.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprint(p.value) }

func (p *panicked) Stack() []byte { return p.stack }

func (p *panicked) Unwrap() error {
	err, _ := p.value.(error)
	return err
}

// StackOf returns the stack of a recovered panic. The function that has recovered it calls StackOf.
func StackOf(recovered any) []byte {
	if p, ok := recovered.(interface{ Stack() []byte }); ok { // it was recovered elsewhere before
		return p.Stack()
	}
	return debug.Stack()
}
