package proxy

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// watchTick is how late a departed client may be noticed.
const watchTick = 100 * time.Millisecond

// watcher learns that clients left while nothing is being written to them, which
// fasthttp does not tell: one goroutine polls the descriptors of all waiting clients.
// POLLRDHUP is seen behind pipelined bytes too. A client that closes only its write
// side counts as gone: in HTTP/1.1 that is nearly always a give-up.
type watcher struct {
	mu      sync.Mutex
	entries []*watch
	stopped bool          // stopAll was called; whoever comes after hears it at once
	wake    chan struct{} // a first entry has come; capacity 1
	stop    chan struct{}
	done    chan struct{}
}

// watch is one client under observation. Embedded in what is told, so that watching
// allocates nothing.
type watch struct {
	fd    int32
	index int // in watcher.entries
	seq   uint64
	told  departing // nil when not watched
}

// departing is what is told about its client and about the end of the process. Both
// are called with the watcher's lock held: they must not block or call the watcher.
type departing interface {
	clientGone()
	serverStopping()
}

func newWatcher() *watcher {
	w := &watcher{wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	go w.run()
	return w
}

// close stops the goroutine and waits for it.
func (w *watcher) close() {
	close(w.stop)
	<-w.done
}

// add starts watching fd for told, which hears of a departure at most once.
func (w *watcher) add(e *watch, fd int, told departing) {
	w.mu.Lock()
	e.fd, e.told, e.index = int32(fd), told, len(w.entries)
	e.seq++
	w.entries = append(w.entries, e)
	first := len(w.entries) == 1
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

// remove ends watching. After it returns nothing more is told. The
// descriptor may be closed and used again only after that.
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
	e.told = nil
}

func (w *watcher) run() {
	defer close(w.done)
	var (
		fds  []unix.PollFd
		seen []watchSeen
	)
	tick := time.NewTimer(watchTick)
	defer tick.Stop()
	for {
		if !w.pause(tick) {
			return
		}
		fds, seen = w.copyEntries(fds[:0], seen[:0])
		if len(fds) == 0 {
			continue
		}
		if n, err := unix.Poll(fds, 0); err != nil || n == 0 {
			continue
		}
		for i := range fds {
			if fds[i].Revents != 0 {
				w.fire(seen[i])
			}
		}
	}
}

// pause waits for the next tick, or without entries for the first one to come.
func (w *watcher) pause(tick *time.Timer) bool {
	w.mu.Lock()
	empty := len(w.entries) == 0
	w.mu.Unlock()
	if empty {
		select {
		case <-w.wake:
		case <-w.stop:
			return false
		}
	}
	tick.Reset(watchTick)
	select {
	case <-tick.C:
		return true
	case <-w.stop:
		return false
	}
}

// watchSeen names an entry as it was when polled: its descriptor may belong to
// another client by the time the result is read.
type watchSeen struct {
	entry *watch
	seq   uint64
}

func (w *watcher) copyEntries(fds []unix.PollFd, seen []watchSeen) ([]unix.PollFd, []watchSeen) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.entries {
		fds = append(fds, unix.PollFd{Fd: e.fd, Events: unix.POLLRDHUP})
		seen = append(seen, watchSeen{e, e.seq})
	}
	return fds, seen
}

func (w *watcher) fire(s watchSeen) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.entry.told == nil || s.entry.seq != s.seq {
		return
	}
	told := s.entry.told
	w.drop(s.entry)
	told.clientGone()
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
