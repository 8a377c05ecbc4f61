package router

import "sync"

// downList holds the leases of one backend that want to know when it goes Down. They
// are linked through the leases themselves: registering allocates nothing.
type downList struct {
	mu   sync.Mutex // never held while a lease's function runs
	idle sync.Cond  // a lease's function has returned
	head *Lease
}

// downLink is a lease's place in its backend's downList, guarded by downList.mu.
type downLink struct {
	f          func()
	next, prev *Lease
	listed     bool
	running    bool
}

// OnDown has f called, at most once, when the lease's backend goes Down; at once if
// it is Down already. One function a lease: a later call replaces it, nil and
// Release take it back. Once OnDown(nil), or the Release that ended the lease, has
// returned, f is not running and will not run: both wait for an f under way, which
// therefore must not wait for them, nor call them on its own lease. f runs on the
// goroutine of the active check and should only wake the leg, as by a read deadline.
func (l *Lease) OnDown(f func()) {
	if f == nil && !l.watched.Load() || f != nil && !l.held.Load() {
		return
	}
	l.watched.Store(f != nil) // before held is read again: see Release
	d := &l.Backend.down
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remove(l)
	if f == nil || !l.held.Load() {
		return
	}
	l.down.f = f
	if l.Backend.State() == Down {
		d.call(l)
		return
	}
	d.insert(l)
}

func (d *downList) insert(l *Lease) {
	l.down.next, l.down.prev, l.down.listed = d.head, nil, true
	if d.head != nil {
		d.head.down.prev = l
	}
	d.head = l
}

func (d *downList) unlink(l *Lease) {
	if l.down.prev != nil {
		l.down.prev.down.next = l.down.next
	} else {
		d.head = l.down.next
	}
	if l.down.next != nil {
		l.down.next.down.prev = l.down.prev
	}
	l.down.next, l.down.prev, l.down.listed = nil, nil, false
}

// remove takes l out, or waits until its function has returned.
func (d *downList) remove(l *Lease) {
	if l.down.listed {
		d.unlink(l)
	}
	for l.down.running {
		d.idle.Wait()
	}
	l.down.f = nil
}

// call runs l's function with the lock let go. l is not listed.
func (d *downList) call(l *Lease) {
	f := l.down.f
	l.down.running = true
	d.mu.Unlock()
	f()
	d.mu.Lock()
	l.down.running = false
	d.idle.Broadcast()
}

// fire calls all functions that are registered.
func (d *downList) fire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.head != nil {
		l := d.head
		d.unlink(l)
		d.call(l)
	}
}
