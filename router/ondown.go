package router

import (
	"sync"
	"sync/atomic"
)

// downList holds the watches on one backend. They are linked through themselves, so registering one
// allocates nothing.
type downList struct {
	mu   sync.Mutex // never held while the function of a watch runs
	idle sync.Cond  // the function of a watch has returned
	head *Watch
}

// Watch tells a leg that a backend it depends on goes Down. The zero value watches nothing. Only
// its owner calls On and Off. It is never copied.
type Watch struct {
	b  *Backend
	on atomic.Bool // On has been called, and Off has not

	// Guarded by b.down.mu.
	f          func()
	next, prev *Watch
	listed     bool
	running    bool
}

// On makes b call f, at most once, when it goes Down, or at once if it is Down already. A later
// call replaces an earlier one. f runs on the goroutine of the active check and should only wake
// the leg, for example by a read deadline.
func (w *Watch) On(b *Backend, f func()) {
	w.Off()
	w.begin(b)
	w.enter(f, nil)
}

// begin sets the backend before on, so that a reader who sees on also sees the backend.
func (w *Watch) begin(b *Backend) {
	w.b = b
	w.on.Store(true)
}

// Off ends what On began. Once it has returned, f is not running and will not run. It waits for a
// running f, so f must not wait for it.
func (w *Watch) Off() {
	if !w.on.Load() {
		return
	}
	w.on.Store(false)
	d := &w.b.down
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remove(w)
}

// enter registers f, unless void says under the lock that it is no longer wanted.
func (w *Watch) enter(f func(), void func() bool) {
	d := &w.b.down
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remove(w)
	if void != nil && void() {
		return
	}
	w.f = f
	if w.b.State() == Down {
		d.call(w)
		return
	}
	d.insert(w)
}

// OnDown is Watch.On for the backend of a held lease. nil ends it, and so does Release.
func (l *Lease) OnDown(f func()) {
	if f == nil {
		l.watch.Off()
		return
	}
	if !l.held.Load() {
		return
	}
	l.watch.Off()
	l.watch.begin(l.Backend) // before held is read again: see Release
	l.watch.enter(f, func() bool { return !l.held.Load() })
}

func (d *downList) insert(w *Watch) {
	w.next, w.prev, w.listed = d.head, nil, true
	if d.head != nil {
		d.head.prev = w
	}
	d.head = w
}

func (d *downList) unlink(w *Watch) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		d.head = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	}
	w.next, w.prev, w.listed = nil, nil, false
}

// remove takes w out of the list, or waits until its function has returned.
func (d *downList) remove(w *Watch) {
	if w.listed {
		d.unlink(w)
	}
	for w.running {
		d.idle.Wait()
	}
	w.f = nil
}

// call runs the function of w without the lock. w is not in the list.
func (d *downList) call(w *Watch) {
	f := w.f
	w.running = true
	d.mu.Unlock()
	f()
	d.mu.Lock()
	w.running = false
	d.idle.Broadcast()
}

// fire calls all registered functions.
func (d *downList) fire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.head != nil {
		w := d.head
		d.unlink(w)
		d.call(w)
	}
}
