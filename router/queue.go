package router

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// The errors of a wait that ends without a lease. The first two are also ErrBusy.
var (
	ErrQueueFull    = fmt.Errorf("%w: the queue is full", ErrBusy)
	ErrQueueTimeout = fmt.Errorf("%w: waited too long in the queue", ErrBusy)
	ErrQueueLeft    = errors.New("left the queue")
)

// Line bounds the wait for a pool whose backends are full.
type Line struct {
	Length int           `mapstructure:"length"` // how many requests may wait for this pool at once; 0: none
	Wait   time.Duration `mapstructure:"wait"`   // how long one of them may wait
}

// queue is the line of one pool, or of the requests that wait for their part of the share. It outlives
// snapshots.
type queue struct {
	waiting atomic.Int64 // in line; each release reads it without the lock
	mu      sync.Mutex
	line    fairLine
	needs   map[need]int // the plain waiters by their need
}

// kind is what keeps a request from some backends for as long as it waits: its model, the connector and the release of
// its other leg, and that it has no prefill.
type kind struct {
	model, connector, release string
	paired, unbound           bool
}

// need is a kind, with what else a choice depends on. Requests of one need are served alike.
type need struct {
	kind
	peer       *Backend
	apart      *Backend // see query.apart
	alone      bool
	skip, gone [fewTried]*Backend
}

// fewTried is how many backends a plain waiter may have tried of each role.
const fewTried = 2

// free reports whether a request with the need may have all backends of its kind.
func (n *need) free() bool { return n.skip[0] == nil && n.gone[0] == nil && n.apart == nil }

func needOf(w *Want) need {
	n := need{kind: kind{model: string(w.Model), unbound: w.Unbound, paired: w.Like != nil}, peer: w.Peer, alone: w.Alone}
	copy(n.skip[:], w.Skip)
	copy(n.gone[:], w.Gone)
	if w.Model == nil && w.Peer != nil { // see serving
		if ids := w.Peer.Models(); len(ids) > 0 {
			n.model = ids[0]
		}
	}
	if n.paired {
		n.connector = w.Like.Connector
	}
	if m := w.mate(); m != nil {
		if n.release = m.Version(); m.router.shared.Load() {
			n.apart = m
		}
	}
	return n
}

// waiter is a request in the line. The goroutine that takes it out of the line answers it.
type waiter struct {
	want         Want
	lease        *Lease
	seen         *Snapshot // the last one that it was served from
	flow         *flow     // while it is in the line
	client       *client   // while it is in the line, as older and newer of the same client
	older, newer *waiter
	need         need       // while plain
	plain        bool       // only its need keeps it from some backends, so it counts in queue.needs
	ended        chan error // capacity 1; nil means that the lease is held, and a panicked that the choice panicked
}

// panicked is the panic of a choice for a waiter. Whoever served the line then recovered from it. It goes on in
// the waiter's own goroutine, which has another stack.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprint(p.value) }

// Stack is that of the goroutine that served the line.
func (p *panicked) Stack() []byte { return p.stack }

// AcquireWait is like AcquireFor, but waits where AcquireFor would return ErrBusy. The wait ends when a
// request releases a lease (with Want.Degraded, also when one releases its part of the share), when a
// backend comes up, or when all go down. Without a lease, it ends with ErrQueueFull, ErrQueueTimeout,
// or ErrQueueLeft when done is closed. A request that has waited gets a backend of the snapshot at that
// moment.
func (s *Snapshot) AcquireWait(w Want, l *Lease, line Line, done <-chan struct{}) error {
	if err := s.AcquireFor(w, l); err != ErrBusy {
		return err
	}
	q := &s.router.queues[s.line(&w)]
	wt := &waiter{want: w, lease: l, ended: make(chan error, 1)}
	q.join(s.router, wt, line.Length)
	err := q.await(wt, line.Wait, done)
	if p, ok := err.(*panicked); ok {
		panic(p)
	}
	return err
}

// await returns how the wait ended.
func (q *queue) await(wt *waiter, wait time.Duration, done <-chan struct{}) (err error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case err = <-wt.ended:
		return err
	case <-timer.C:
		err = ErrQueueTimeout
	case <-done:
		err = ErrQueueLeft
	}
	if q.leave(wt) {
		return err
	}
	return <-wt.ended // it was served at the same moment
}

// join puts wt into the line. It serves the line at once, because a slot may have become free since wt
// was refused one. If the line is then longer than it may be, the newest of the client with most waiters leaves it,
// so that nobody keeps others out.
func (q *queue) join(r *Router, wt *waiter, length int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := r.Snapshot()
	wt.see(s)
	q.add(wt)
	q.waiting.Add(1) // before serve looks, so that a release sees it or is seen
	q.serve(s)
	if int(q.waiting.Load()) > length {
		out := q.line.crowd.newest()
		q.remove(out)
		q.waiting.Add(-1)
		out.ended <- ErrQueueFull
	}
}

// acquire takes the lease for wt. If the choice panics, the panic is the error, because it must not reach those
// who release a slot, nor keep the other waiters from it.
func (wt *waiter) acquire(s *Snapshot) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicked{p, debug.Stack()}
		}
	}()
	return s.acquire(&wt.want, wt.lease)
}

// leave takes wt out of the line. It returns false if wt has been answered.
func (q *queue) leave(wt *waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if wt.flow == nil {
		return false
	}
	q.remove(wt)
	q.waiting.Add(-1)
	return true
}

func (q *queue) add(wt *waiter) {
	q.line.add(wt)
	w := &wt.want
	if wt.plain = len(w.Skip) <= fewTried && len(w.Gone) <= fewTried; wt.plain {
		if q.needs == nil {
			q.needs = map[need]int{}
		}
		wt.need = needOf(w)
		q.needs[wt.need]++
	}
}

func (q *queue) remove(wt *waiter) {
	q.line.remove(wt)
	q.restrict(wt)
}

// restrict takes wt out of needs.
func (q *queue) restrict(wt *waiter) {
	if !wt.plain {
		return
	}
	wt.plain = false
	if n := wt.need; q.needs[n] > 1 {
		q.needs[n]--
	} else {
		delete(q.needs, n)
	}
}

// serve answers the waiters in their order as far as there are slots. It stops at the first waiter
// that no backend has a slot for. A waiter that cannot go to every backend does not stop it, and
// those after it get what it cannot use. If a waiter gets nothing, the others with its need are not tried, and
// nobody is once only such are left: the line may be long, and each arrival serves it too.
func (q *queue) serve(s *Snapshot) {
	var wt *waiter
	defer func() {
		if p := recover(); p != nil {
			q.dissolve(wt, &panicked{p, debug.Stack()})
		}
	}()
	defer q.line.rewind()
	full, none := map[need]bool{}, false // the needs that nothing is left for, and whether those are all free ones
	left := int(q.waiting.Load())        // waiters with others
	for wt = q.line.next(); wt != nil && left > 0; wt = q.line.next() {
		if wt.plain && (none && wt.need.free() || full[wt.need]) {
			q.line.pass(wt)
			continue
		}
		if wt.see(s) {
			q.restrict(wt)
		}
		err := wt.acquire(s)
		switch {
		case err == ErrBusy && wt.choosy(s):
			gone, all := q.fill(full, wt, s)
			left, none = left-gone, none || all
			q.line.pass(wt)
			continue
		case err == ErrBusy:
			return
		case err == nil:
			q.line.charge(wt)
		}
		left--
		q.remove(wt)
		q.waiting.Add(-1)
		wt.ended <- err
	}
}

// fill adds to full the needs that nothing is left for, as wt gets nothing: its own, and those of its kind where no backend
// for that has a slot. all says that all backends are up and full, which goes for all free needs. If one is down, waiters
// for its model may have to hear that. So may those that have tried some backends, if none is left to them. It returns how
// many need not be tried any more.
func (q *queue) fill(full map[need]bool, wt *waiter, s *Snapshot) (waiters int, all bool) {
	w := &wt.want
	switch {
	case !wt.plain:
		return 1, false
	case !wt.need.free() || s.poolFor(w.Role, w).roomy():
		full[wt.need] = true
		return q.needs[wt.need], false
	}
	all = s.pool(w.Role).full()
	for n, count := range q.needs {
		if !n.free() || !all && n.kind != wt.need.kind || full[n] {
			continue
		}
		if waiters += count; !all {
			full[n] = true
		}
	}
	return waiters, all
}

// roomy reports whether some backend has a slot.
func (p *pool) roomy() bool {
	return slices.ContainsFunc(p.backends, func(b *Backend) bool { return b.usable() && occupied(b) < p.limit })
}

// full reports that no backend is down, and none has a slot.
func (p *pool) full() bool {
	return !slices.ContainsFunc(p.backends, func(b *Backend) bool { return !b.usable() || occupied(b) < p.limit })
}

// dissolve ends the wait of all, and of the last one that was served, with the panic of a line that cannot be
// trusted any more. Left in it, they would make each later release panic, and get leases of completions that are
// over.
func (q *queue) dissolve(last *waiter, why *panicked) {
	waits := q.line.waits
	q.line, q.needs = fairLine{}, nil
	q.waiting.Store(0)
	all := []*waiter{}
	if last != nil {
		all = append(all, last)
	}
	for _, f := range waits {
		all = append(all, f.line...)
	}
	for _, wt := range all {
		wt.flow = nil
		select {
		case wt.ended <- why:
		default: // it has been answered
		}
	}
}

// see reports whether wt gets less in s than its need says, because an engine has had two roles since wt joined: it gets
// no backend on the engine of its other leg.
func (wt *waiter) see(s *Snapshot) (less bool) {
	if wt.seen == s {
		return false
	}
	wt.seen = s
	return s.router.shared.Load() && wt.need.apart != wt.want.mate()
}

// choosy reports whether another request might be served where this one cannot be.
func (wt *waiter) choosy(s *Snapshot) bool {
	return len(wt.want.Skip) > 0 || s.router.shared.Load() && wt.want.mate() != nil || !wt.want.Alone && s.pairs.bans.Load() != nil || s.Mixed(wt.want.Role) || s.severalWires()
}

// serve gives the free slots of a pool to those that wait. Requests without the prefill that they
// should have had come last.
func (r *Router) serve(role Role) {
	r.queues[role].wake(r)
	if role == Decode {
		r.queues[degradedLine].wake(r)
	}
}

// serveAll is serve for all pools, after a change that may be of use to any of those that wait.
func (r *Router) serveAll() {
	for _, role := range Roles() {
		r.serve(role)
	}
}

// wake serves the line, if there is one.
func (q *queue) wake(r *Router) {
	if q.waiting.Load() == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.serve(r.Snapshot())
}
