package router

import (
	"sync"
	"sync/atomic"
	"time"
)

// downList holds the watches on one backend. They are linked through themselves, so registering one
// allocates nothing.
type downList struct {
	mu        sync.Mutex // never held while the function of a watch runs
	idle      sync.Cond  // the function of a watch has returned
	head      *Watch
	restarted time.Time // when the engine last restarted, as far as is known; guarded by mu
	up        time.Time // when the backend last came up after it was Down; guarded by mu
}

// Watch tells a leg that a backend on which it depends goes Down. The zero value watches nothing. Only
// its owner calls On and Off, and must not copy it.
type Watch struct {
	b  *Backend
	on atomic.Bool // On has been called, and Off has not
	of watched     // what on b it is about, see watches

	// Guarded by b.down.mu.
	f          func()
	next, prev *Watch
	listed     bool
	running    bool
	since      time.Time // f is called for a restart after it, too; zero for none
}

// watched is what a watch is about.
type watched uint8

const (
	ofBlocks watched = iota // what b has in memory
	ofLeg                   // a leg on b that has given nothing, see Backend.Irreplaceable
	ofStream                // a stream of b that has begun
)

// On makes b call f, at most once, when it goes Down, or at once if it is Down already. A later call
// replaces an earlier one. f runs on the goroutine that notices this, which may be a check, a poll or
// another request. f should only wake the leg, for example by a read deadline.
func (w *Watch) On(b *Backend, f func()) {
	w.Off()
	w.begin(b)
	w.enter(f, time.Time{}, nil)
}

// OnGone is On for a user of what b has had in memory since the given time. b also calls f when the
// router notices that its engine has restarted after that time.
func (w *Watch) OnGone(b *Backend, then time.Time, f func()) {
	w.Off()
	w.begin(b)
	w.enter(f, then, nil)
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
func (w *Watch) enter(f func(), since time.Time, void func() bool) {
	d := &w.b.down
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remove(w)
	if void != nil && void() {
		return
	}
	w.f, w.since = f, since
	if w.b.State() == Down && watches(w.b, !w.b.Irreplaceable())(w) || d.gone(w) {
		d.call(w)
		return
	}
	d.insert(w)
}

// OnDown is Watch.On for the backend of a held lease, unless that is Irreplaceable. nil and Release end it.
func (l *Lease) OnDown(f func()) {
	l.watchFor(ofLeg, f)
}

// OnWedged is OnDown for a leg whose answer has begun: f is called only if the backend is down because it is wedged.
func (l *Lease) OnWedged(f func()) { l.watchFor(ofStream, f) }

func (l *Lease) watchFor(what watched, f func()) {
	if f == nil {
		l.watch.Off()
		return
	}
	if !l.held.Load() {
		return
	}
	l.watch.Off()
	l.watch.of = what
	l.watch.begin(l.Backend) // before held is read again: see Release
	l.watch.enter(f, time.Time{}, func() bool { return !l.held.Load() })
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
	defer func() { // if f panics, too: nobody may wait for it for ever
		d.mu.Lock()
		w.running = false
		d.idle.Broadcast()
	}()
	f()
}

// fire calls the registered functions of those watches.
func (d *downList) fire(these func(*Watch) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for w := d.first(these); w != nil; w = d.first(these) {
		d.unlink(w)
		d.call(w)
	}
}

// first returns the first one of those watches. d.mu is held.
func (d *downList) first(these func(*Watch) bool) *Watch {
	w := d.head
	for w != nil && !these(w) {
		w = w.next
	}
	return w
}

// cameUp notes that the backend is up again.
func (d *downList) cameUp() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.up = time.Now()
}

// gone reports whether what w's user has had in memory of the engine is gone with a restart. d.mu is held.
func (d *downList) gone(w *Watch) bool { return !w.since.IsZero() && d.restarted.After(w.since) }

// Restarted notes that b's engine has restarted at some time after the given one, and tells those who watch
// for this. The engine's metrics and its handles may both show the same restart, so Restarted ignores one
// that an earlier note covers. If checks have seen the engine come up since then, it restarted before that,
// and what it has given since is not gone.
func (b *Backend) Restarted(after time.Time) {
	eachRole(b, func(x *Backend) { x.down.restart(after) })
}

func (d *downList) restart(after time.Time) {
	d.mu.Lock()
	if d.restarted.After(after) {
		d.mu.Unlock()
		return
	}
	if d.restarted = time.Now(); d.up.After(after) {
		d.restarted = d.up
	}
	d.mu.Unlock()
	d.fire(d.gone)
}

// RestartedAfter reports whether b's engine is known to have restarted after t. What it had in memory at t is
// gone.
func (b *Backend) RestartedAfter(t time.Time) bool {
	b.down.mu.Lock()
	defer b.down.mu.Unlock()
	return b.down.restarted.After(t)
}
