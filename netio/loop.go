package netio

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// loop is an epoll set of its own, whose descriptor waits in Go's poller. One goroutine, the leader,
// reads and takes for all streams that are ready. If a take has to wait, another goroutine becomes the
// leader, and the first one waits alone.
type loop struct {
	loops *Loops
	set   int
	file  *os.File // owns set
	raw   syscall.RawConn
	step  func(fd uintptr) bool // collectOnce, bound once

	// These belong to the leader.
	events [64]unix.EpollEvent
	got    int               // events of the last look
	ready  []unix.EpollEvent // not served yet
	woke   time.Duration     // when the leader's rest ended
	period uint32            // the number of its rests

	awake atomic.Int64 // nanoseconds between its rests, in all

	mu     sync.Mutex
	leader *lead
	seats  []seat // by slot
	free   []int32
	taken  int    // seats
	nth    int32  // number of stays
	turns  uint32 // number of turns
	led    uint32 // number of leaders that there were
	closed bool

	// These belong to the sweep.
	share     float64 // of its time that the leader was awake
	looked    time.Duration
	wasAwake  int64
	hadTurned uint32
}

// seat is where a follower stays. The zero seat is free.
type seat struct {
	f   *follower
	due time.Duration // its armed deadline, on the clock of the loops
}

// lead is the time for which one goroutine leads.
type lead struct {
	loop    *loop
	serving bool // a turn is under way; guarded by the loop's mu
}

func newLoop(g *Loops) (*loop, error) {
	set, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create the epoll set of a loop: %w", err)
	}
	if err := unix.SetNonblock(set, true); err != nil { // so that Go's poller takes it
		_ = unix.Close(set)
		return nil, fmt.Errorf("create the epoll set of a loop: %w", err)
	}
	l := &loop{loops: g, set: set, file: os.NewFile(uintptr(set), "epoll"), looked: g.now()}
	if l.raw, err = l.file.SyscallConn(); err != nil {
		_ = l.file.Close()
		return nil, fmt.Errorf("create the epoll set of a loop: %w", err)
	}
	l.step, l.woke = l.collectOnce, l.looked
	l.mu.Lock()
	defer l.mu.Unlock()
	l.succeed()
	return l, nil
}

// succeed makes a new goroutine the leader. l.mu is held.
func (l *loop) succeed() {
	l.led++
	l.leader = &lead{loop: l}
	go l.run(l.leader)
}

// stepAside is called inside a take that has to wait. The loop goes on without it.
func (me *lead) stepAside() {
	l := me.loop
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leader == me {
		l.succeed()
	}
}

// run serves until the loop is closed or another goroutine leads.
func (l *loop) run(me *lead) {
	for {
		for len(l.ready) > 0 {
			ev := l.ready[0]
			l.ready = l.ready[1:]
			if !l.serve(me, ev) {
				return
			}
		}
		if err := l.collect(); err != nil {
			l.close()
			return
		}
	}
}

// collect waits until streams are ready.
func (l *loop) collect() error {
	l.awake.Add(int64(l.loops.now() - l.woke))
	err := l.raw.Read(l.step)
	l.woke = l.loops.now()
	l.ready = l.events[:l.got]
	return err
}

func (l *loop) collectOnce(fd uintptr) (done bool) {
	n, e := uintptr(0), unix.EINTR // after which the poller would not tell of these events again
	for e == unix.EINTR {
		n, _, e = syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, fd, uintptr(unsafe.Pointer(&l.events[0])), uintptr(len(l.events)), 0, 0, 0)
	}
	l.got = 0
	if e == 0 {
		l.got = int(n)
	}
	if l.got == 0 {
		l.period++
	}
	return l.got > 0
}

// serve gives a stream its turn. It reports whether this goroutine still leads.
func (l *loop) serve(me *lead, ev unix.EpollEvent) (leads bool) {
	f := l.begin(me, ev)
	if f == nil {
		return true
	}
	if f.to != nil {
		f.to.lead = me
	}
	end := f.turn(ev.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0)
	if f.to != nil {
		f.to.lead = nil
	}
	if end == stays && f.quick >= mostQuick {
		end = unsuited
	}
	return l.end(me, f, end)
}

// begin returns the follower that an event is about. It returns nil if that has left, and while a goroutine that
// led before still takes for it. That one makes it get up, and then it reads again. When begin returns, another
// goroutine may become the leader.
func (l *loop) begin(me *lead, ev unix.EpollEvent) *follower {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.seats[ev.Fd].f
	if f == nil || f.served || f.nth != ev.Pad { // slots are used again while events of their last users are under way
		return nil
	}
	if f.period == l.period || l.woke-f.last < l.loops.quick {
		f.quick++
	} else {
		f.quick = 0
	}
	f.period, f.last = l.period, l.woke
	f.served, me.serving = true, true
	l.turns++
	return f
}

func (l *loop) end(me *lead, f *follower, end outcome) (leads bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	leads = l.leader == me
	f.served, me.serving = false, false
	switch {
	case end != stays:
	case !leads:
		end = unsuited
	case f.recalled:
		end = recalled
	}
	if end != stays {
		l.leave(f, end)
	}
	return leads
}

// join gives f a seat. An event that came before is reported too.
func (l *loop) join(f *follower, due time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	if len(l.free) == 0 {
		l.free = append(l.free, int32(len(l.seats)))
		l.seats = append(l.seats, seat{})
	}
	slot := l.free[len(l.free)-1]
	l.nth++
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLET, Fd: slot, Pad: l.nth}
	if unix.EpollCtl(l.set, unix.EPOLL_CTL_ADD, f.s.fd, &ev) != nil {
		return false
	}
	l.free = l.free[:len(l.free)-1]
	l.seats[slot] = seat{f: f, due: due}
	l.taken++
	f.loop, f.slot, f.nth, f.quick, f.period = l, slot, l.nth, 0, 0
	f.served, f.recalled, f.outcome = false, false, stays
	f.away.Add(1)
	return true
}

// streams returns how many seats are taken.
func (l *loop) streams() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken
}

// ended reports whether nobody can join any more.
func (l *loop) ended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// leave ends the stay of f and wakes its goroutine. l.mu is held.
func (l *loop) leave(f *follower, why outcome) {
	l.seats[f.slot] = seat{}
	l.free = append(l.free, f.slot)
	l.taken--
	if !l.closed {
		_ = unix.EpollCtl(l.set, unix.EPOLL_CTL_DEL, f.s.fd, nil)
	}
	f.outcome = why
	f.away.Done()
}

// recall makes f get up. If it has a turn, that ends first.
func (l *loop) recall(f *follower) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recallSeated(f)
}

func (l *loop) recallSeated(f *follower) {
	switch {
	case l.seats[f.slot].f != f: // it has got up already
	case f.served:
		f.recalled = true
	default:
		l.leave(f, recalled)
	}
}

// close makes all followers get up, and ends the leader's wait.
func (l *loop) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	for _, s := range l.seats {
		if s.f != nil {
			l.recallSeated(s.f)
		}
	}
	_ = l.file.Close()
}

// look recalls the streams whose deadline is near, and measures how busy the loop was. If one turn has
// lasted since the last look, whatever take waits for, the loop goes on without it. look returns how many streams
// there were.
func (l *loop) look(now time.Duration) (streams int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	awake := l.awake.Load()
	l.share = float64(awake-l.wasAwake) / float64(max(now-l.looked, 1))
	l.looked, l.wasAwake = now, awake
	streams = l.taken
	for _, s := range l.seats {
		if s.f != nil && s.due < now+2*sweepEvery {
			l.recallSeated(s.f)
		}
	}
	if l.leader.serving && l.turns == l.hadTurned {
		l.succeed()
	}
	l.hadTurned = l.turns
	return streams
}
