package netio

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// watchTick is how late the watcher may notice that a peer left.
const watchTick = 100 * time.Millisecond

// Watcher notices peers that leave while nobody writes to them or reads from them. Neither fasthttp nor
// Go's poller reports this. One goroutine asks one epoll set, which each connection joins once, so that
// connections that stay cost nothing. EPOLLRDHUP also appears after pipelined bytes. A client that
// closes only its write side counts as gone, because in HTTP/1.1 it has nearly always given up.
type Watcher struct {
	set      int         // the epoll set, which reports each departure once
	panicked func(p any) // see OnPanic; nil if nobody hears

	mu      sync.Mutex
	every   time.Duration // between two looks
	peers   []*peer       // by slot; nil is a free slot
	free    []int32       // free slots
	nth     int32         // number of peers that ever joined
	entries []*Watch
	late    []*peer // left before they were watched, and are reported at the next tick
	doubted []*peer // may have said that they leave, and are looked at again at the next tick
	stopped bool    // StopAll was called; entries added later are told at once
	closed  bool

	began  time.Time    // of the watcher
	looked atomic.Int64 // the last Look, in nanoseconds since began, which no clock that is set changes

	wake  chan struct{} // a first entry has come, or Turns asks; capacity 1
	stop  chan struct{}
	done  chan struct{}
	pulse pulse // of the goroutine that looks
}

// peer is the far end of a connection that has joined a watcher. It is embedded in the connection.
type peer struct {
	w      *Watcher // nil if it has joined none
	secure *secure  // of a client that speaks TLS, which may leave without ending its connection; else nil
	slot   int32
	nth    int32
	// left is set when the peer has closed its write side or is gone. It is never cleared.
	left atomic.Bool
	// onLeft is called with the watcher's lock held when left has become true. It may be nil.
	onLeft func()
	client *Watch // the watch that is told when it leaves; guarded by the watcher's mu
}

// Watch is the observation of one client. Its Departing embeds it, so that watching allocates nothing.
// The zero value watches no client.
type Watch struct {
	peer  *peer
	index int       // in watcher.entries
	told  Departing // nil when not watched
}

// Departing hears when its client leaves and when the process ends. The watcher holds its lock when it
// calls the two methods. They must not block or call the watcher.
type Departing interface {
	ClientGone()
	ServerStopping()
}

// NewWatcher starts a Watcher. Close ends it.
func NewWatcher() (*Watcher, error) {
	set, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create the epoll set that watches for departures: %w", err)
	}
	w := &Watcher{set: set, began: time.Now(), every: watchTick, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}), pulse: newPulse()}
	go w.run()
	return w, nil
}

// Close stops the goroutine and waits for it.
func (w *Watcher) Close() {
	close(w.stop)
	<-w.done
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	_ = unix.Close(w.set)
}

// LookEvery sets how late the watcher may notice that a peer has left. The default is 100 ms.
func (w *Watcher) LookEvery(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.every = d
}

// join makes p the far end of fd. Closing fd removes it from the epoll set, and part removes the rest.
func (w *Watcher) join(p *peer, fd int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errors.New("watch a connection: the server is closed")
	}
	if len(w.free) == 0 {
		w.free = append(w.free, int32(len(w.peers)))
		w.peers = append(w.peers, nil)
	}
	slot := w.free[len(w.free)-1]
	w.nth++
	// Descriptors and slots are used again while reports about their last users are under way.
	ev := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLET, Fd: slot, Pad: w.nth}
	if p.secure != nil {
		ev.Events |= unix.EPOLLIN
	}
	if err := unix.EpollCtl(w.set, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return fmt.Errorf("watch a connection: %w", err)
	}
	w.free = w.free[:len(w.free)-1]
	w.peers[slot] = p
	p.w, p.slot, p.nth = w, slot, w.nth
	return nil
}

// part forgets the peer before its connection is closed. Later calls do nothing.
func (p *peer) part() {
	w := p.w
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.peers[p.slot] == p {
		w.peers[p.slot] = nil
		w.free = append(w.free, p.slot)
	}
}

// Add starts to watch the client of conn, which has joined w. told hears of a departure at most once. e
// belongs to the watcher until Remove.
func (w *Watcher) Add(e *Watch, conn *Conn, told Departing) { w.add(e, &conn.peer, told) }

func (w *Watcher) add(e *Watch, p *peer, told Departing) {
	w.mu.Lock()
	e.peer, e.told, e.index = p, told, len(w.entries)
	p.client = e
	w.entries = append(w.entries, e)
	first := len(w.entries) == 1
	if p.left.Load() {
		w.late = append(w.late, p)
	}
	w.doubt(p)
	if w.stopped {
		w.call(told.ServerStopping)
	}
	w.mu.Unlock()
	if first {
		w.rouse()
	}
}

// rouse ends a pause without entries.
func (w *Watcher) rouse() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Remove stops watching. After it returns, the watcher makes no more calls. Only then may the caller
// close the connection.
func (w *Watcher) Remove(e *Watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop(e)
}

func (w *Watcher) drop(e *Watch) {
	if e.told == nil {
		return
	}
	last := len(w.entries) - 1
	moved := w.entries[last]
	w.entries[e.index], moved.index = moved, e.index
	w.entries[last] = nil
	w.entries = w.entries[:last]
	if e.peer.client == e { // it has not been told
		e.peer.client = nil
	}
	e.peer, e.told = nil, nil
}

func (w *Watcher) run() {
	defer w.pulse.beat()
	defer close(w.done)
	events := make([]unix.EpollEvent, 64)
	tick := time.NewTimer(watchTick)
	defer tick.Stop()
	for w.pause(tick) {
		w.tellLate()
		w.lookAtDoubted()
		for n := len(events); n == len(events); {
			n, _ = unix.EpollWait(w.set, events, 0)
			w.report(events[:max(n, 0)])
		}
		w.pulse.beat()
	}
}

// pause waits for the next tick, or for the first entry if there is none.
func (w *Watcher) pause(tick *time.Timer) bool {
	w.mu.Lock()
	empty, every := len(w.entries) == 0, w.every
	w.mu.Unlock()
	if empty {
		select {
		case <-w.wake:
		case <-w.stop:
			return false
		}
	}
	tick.Reset(every)
	select {
	case <-tick.C:
		return true
	case <-w.stop:
		return false
	}
}

// lookSpacing is the least time between two looks of Look.
const lookSpacing = 2 * time.Millisecond

// Look tells of the peers that have left by now, without waiting for the next tick. It does so at most once in lookSpacing.
func (w *Watcher) Look(now time.Time) {
	last := w.looked.Load()
	if at := int64(now.Sub(w.began)); at-last < int64(lookSpacing) || !w.looked.CompareAndSwap(last, at) {
		return
	}
	var events [64]unix.EpollEvent
	w.mu.Lock()
	n := 0
	if !w.closed {
		n, _ = unix.EpollWait(w.set, events[:], 0)
	}
	w.mu.Unlock()
	w.report(events[:max(n, 0)])
}

// report notes which peers have left, and tells those that watch them.
func (w *Watcher) report(events []unix.EpollEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ev := range events {
		p := w.peers[ev.Fd]
		if p == nil || p.nth != ev.Pad {
			continue
		}
		if ev.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) == 0 {
			w.doubt(p)
			continue
		}
		p.left.Store(true)
		if p.onLeft != nil {
			w.call(p.onLeft)
		}
		w.tell(p)
	}
}

// doubt remembers a watched peer that may have said that it leaves. Only its handler could read that,
// which reads nothing while it answers. So a tick later it is read here: bytes that the handler reads are gone by then.
// w.mu is held.
func (w *Watcher) doubt(p *peer) {
	if p.secure != nil && p.client != nil && p.secure.mayLeave() {
		w.doubted = append(w.doubted, p)
	}
}

func (w *Watcher) lookAtDoubted() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.doubted {
		if w.peers[p.slot] == p && p.secure.mayLeave() {
			go w.settle(p) // TLS may answer what it reads, and so wait for the client
		}
	}
	clear(w.doubted)
	w.doubted = w.doubted[:0]
}

// settle reads what a doubted peer has said.
func (w *Watcher) settle(p *peer) {
	if !p.secure.departed() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.peers[p.slot] == p {
		p.left.Store(true)
		w.tell(p)
	}
}

// tellLate tells the entries whose clients had left before they were added.
func (w *Watcher) tellLate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.late {
		w.tell(p)
	}
	clear(w.late)
	w.late = w.late[:0]
}

// tell tells the client's watch once. The watch stays, because the end of the process concerns those whose client has
// left too: their legs may be held for long.
func (w *Watcher) tell(p *peer) {
	if e := p.client; e != nil {
		p.client = nil
		w.call(e.told.ClientGone)
	}
}

// StopAll tells all entries that the process is about to end.
func (w *Watcher) StopAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	for _, e := range w.entries {
		w.call(e.told.ServerStopping)
	}
}

// OnPanic has f hear the panics of those that are told something. Without it, they end the process. Call it before
// anything is watched.
func (w *Watcher) OnPanic(f func(p any)) { w.panicked = f }

// call tells somebody something. Nobody else would recover from a panic there, and the others still have to be told.
func (w *Watcher) call(tell func()) {
	defer func() {
		if w.panicked == nil {
			return
		}
		if p := recover(); p != nil {
			w.panicked(p)
		}
	}()
	tell()
}

// departed reports without waiting whether the peer of fd has left.
func departed(fd int) bool {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(fds[:], 0)
	return err == nil && n == 1
}
