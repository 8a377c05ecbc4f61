package proxy

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// watchTick is how late a departed peer may be noticed.
const watchTick = 100 * time.Millisecond

// watcher learns that peers left while nothing is being written to them or read from
// them, which neither fasthttp nor Go's poller tells: one goroutine asks one epoll set,
// which each connection joins once, so that those that stay cost nothing. EPOLLRDHUP is
// seen behind pipelined bytes too. A client that closes only its write side counts as
// gone: in HTTP/1.1 that is nearly always a give-up.
type watcher struct {
	set int // the epoll set; each departure is reported once

	mu      sync.Mutex
	every   time.Duration
	peers   []*peer // by slot; nil: free
	free    []int32 // slots
	nth     int32   // of the peers that ever joined
	entries []*watch
	late    []*peer // had left before they were watched; told at the next tick
	stopped bool    // stopAll was called; whoever comes after hears it at once
	closed  bool

	wake chan struct{} // a first entry has come; capacity 1
	stop chan struct{}
	done chan struct{}
}

// peer is the far end of a connection that has joined a watcher. Embedded in the
// connection.
type peer struct {
	w    *watcher // nil: it has joined none
	slot int32
	nth  int32
	// left: it has closed its write side or is gone. Never taken back.
	left atomic.Bool
	// onLeft is called, with the watcher's lock held, when left has become true. nil: nobody.
	onLeft func()
	client *watch // who is told that it left; guarded by the watcher's mu
}

// watch is one client under observation. Embedded in what is told, so that watching
// allocates nothing.
type watch struct {
	peer  *peer
	index int       // in watcher.entries
	told  departing // nil when not watched
}

// departing is what is told about its client and about the end of the process. Both
// are called with the watcher's lock held: they must not block or call the watcher.
type departing interface {
	clientGone()
	serverStopping()
}

func newWatcher() (*watcher, error) {
	set, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create the epoll set that watches for departures: %w", err)
	}
	w := &watcher{set: set, every: watchTick, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	go w.run()
	return w, nil
}

// close stops the goroutine and waits for it.
func (w *watcher) close() {
	close(w.stop)
	<-w.done
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	_ = unix.Close(w.set)
}

// join makes p the far end of fd. Closing fd ends the kernel's part of it, leave the rest.
func (w *watcher) join(p *peer, fd int) error {
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
	// Descriptors and slots are used again while reports of their last users are under way.
	ev := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLET, Fd: slot, Pad: w.nth}
	if err := unix.EpollCtl(w.set, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return fmt.Errorf("watch a connection: %w", err)
	}
	w.free = w.free[:len(w.free)-1]
	w.peers[slot] = p
	p.w, p.slot, p.nth = w, slot, w.nth
	return nil
}

// leave forgets the peer, whose connection is about to be closed. Later calls do nothing.
func (p *peer) leave() {
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

// add starts watching the client p for told, which hears of a departure at most once.
func (w *watcher) add(e *watch, p *peer, told departing) {
	w.mu.Lock()
	e.peer, e.told, e.index = p, told, len(w.entries)
	p.client = e
	w.entries = append(w.entries, e)
	first := len(w.entries) == 1
	if p.left.Load() {
		w.late = append(w.late, p)
	}
	if w.stopped {
		told.serverStopping()
	}
	w.mu.Unlock()
	if first {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// remove ends watching. After it returns nothing more is told. The connection may be
// closed only after that.
func (w *watcher) remove(e *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop(e)
}

func (w *watcher) drop(e *watch) {
	if e.told == nil {
		return
	}
	last := len(w.entries) - 1
	moved := w.entries[last]
	w.entries[e.index], moved.index = moved, e.index
	w.entries[last] = nil
	w.entries = w.entries[:last]
	e.peer.client = nil
	e.peer, e.told = nil, nil
}

func (w *watcher) run() {
	defer close(w.done)
	events := make([]unix.EpollEvent, 64)
	tick := time.NewTimer(watchTick)
	defer tick.Stop()
	for w.pause(tick) {
		w.tellLate()
		for n := len(events); n == len(events); {
			n, _ = unix.EpollWait(w.set, events, 0)
			w.report(events[:max(n, 0)])
		}
	}
}

// pause waits for the next tick, or without entries for the first one to come.
func (w *watcher) pause(tick *time.Timer) bool {
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

// report notes who has left and tells whoever watches them.
func (w *watcher) report(events []unix.EpollEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ev := range events {
		p := w.peers[ev.Fd]
		if p == nil || p.nth != ev.Pad {
			continue
		}
		p.left.Store(true)
		if p.onLeft != nil {
			p.onLeft()
		}
		w.tell(p)
	}
}

// tellLate tells those whose clients had left before.
func (w *watcher) tellLate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.late {
		w.tell(p)
	}
	clear(w.late)
	w.late = w.late[:0]
}

func (w *watcher) tell(p *peer) {
	if e := p.client; e != nil {
		told := e.told
		w.drop(e)
		told.clientGone()
	}
}

// stopAll tells everything under observation that the process ends now.
func (w *watcher) stopAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	for _, e := range w.entries {
		e.told.serverStopping()
	}
}

// hungUp asks once, without waiting, whether the peer of fd has left.
func hungUp(fd int) bool {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(fds[:], 0)
	return err == nil && n == 1
}
