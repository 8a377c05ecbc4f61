package reload

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// linger is how long an engine that has left goes on listening, so that what still comes is
// seen. It is longer than staleBound.
const linger = 25 * time.Second

// fleet has all engines: those in the configuration, and those that have left and still
// listen.
type fleet struct {
	r       *run
	started int // numbers the engines, and so their addresses

	mu     sync.Mutex
	in     []*engine
	left   []*engine // oldest first
	closes sync.WaitGroup
}

func newFleet(r *run) *fleet { return &fleet{r: r} }

// fill starts n engines of each role.
func (f *fleet) fill(n int) error {
	for i := range 2 * n {
		e, err := f.start(i < n)
		if err != nil {
			return err
		}
		f.in = append(f.in, e)
	}
	return nil
}

// start runs an engine at a new address, like a new pod.
func (f *fleet) start(prefill bool) (*engine, error) {
	f.started++
	n := f.started
	return startEngine(f.r, fmt.Sprintf("127.%d.%d.%d", 16+n>>16, n>>8&255, n&255), prefill)
}

func (f *fleet) urls(prefill bool) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for _, e := range f.in {
		if e.prefill == prefill {
			all = append(all, e.url)
		}
	}
	return all
}

// exchange replaces n random engines by as many with the same roles. Three in four are new, and one
// in four is an engine that left before. The caller still has to write the file.
func (f *fleet) exchange(random *rand.Rand, n int) (left []*engine, joined int, err error) {
	f.sweep()
	for range n {
		f.mu.Lock()
		i := random.IntN(len(f.in))
		for slices.Contains(left, f.in[i]) || f.in[i].joinedNow {
			i = random.IntN(len(f.in))
		}
		old := f.in[i]
		back := f.back(random, old.prefill)
		f.mu.Unlock()
		next := back
		if next == nil {
			if next, err = f.start(old.prefill); err != nil {
				return nil, 0, err
			}
		}
		next.join()
		f.mu.Lock()
		f.in[i] = next
		f.mu.Unlock()
		left = append(left, old)
	}
	return left, n, nil
}

// back returns an engine of the role that has left, or nil if there is none. mu is held.
func (f *fleet) back(random *rand.Rand, prefill bool) *engine {
	if random.IntN(4) > 0 {
		return nil
	}
	for i, e := range f.left {
		if e.prefill == prefill && time.Since(e.removedAt()) < linger/2 {
			f.left = slices.Delete(f.left, i, i+1)
			f.r.tally.back.Add(1)
			return e
		}
	}
	return nil
}

// removed is called when the reload without these engines is in force.
func (f *fleet) removed(left []*engine) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.in {
		e.joinedNow = false
	}
	for _, e := range left {
		e.leave(now)
	}
	f.left = append(f.left, left...)
}

// sweep closes the engines that left long ago. A connection of the proxy that is open then is a
// fault.
func (f *fleet) sweep() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.left) > 0 && time.Since(f.left[0].removedAt()) > linger {
		e := f.left[0]
		f.left = f.left[1:]
		e.judge()
		f.closes.Go(e.close)
	}
}

// clinging counts the proxy's connections to engines that have left.
func (f *fleet) clinging() (n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.left {
		n += e.conns.Load()
	}
	return n
}

// judge checks the engines that left recently, when the proxy is at rest.
func (f *fleet) judge() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.left {
		e.judge()
	}
}

func (f *fleet) close() {
	f.mu.Lock()
	for _, e := range slices.Concat(f.in, f.left) {
		f.closes.Go(e.close)
	}
	f.mu.Unlock()
	f.closes.Wait()
}

// openHandles knows which engines have issued handles that are neither read nor given back.
type openHandles struct {
	mu          sync.Mutex
	by          map[string]string // URL of the prefill engine by remote_request_id
	n, returned int
}

func newOpenHandles() *openHandles { return &openHandles{by: map[string]string{}} }

// issue names a new handle.
func (h *openHandles) issue(url string) (id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.n++
	id = fmt.Sprintf("cmpl-%d", h.n)
	h.by[id] = url
	return id
}

// end ends the handle by a decode engine's read or by a release. ok is false if it is not open.
func (h *openHandles) end(id string, released bool) (ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok = h.by[id]
	delete(h.by, id)
	if released {
		h.returned++
	}
	return ok
}

func (h *openHandles) open() (issuers []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, url := range h.by {
		issuers = append(issuers, url)
	}
	return issuers
}

func (h *openHandles) issued() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n
}

func (h *openHandles) released() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.returned
}
