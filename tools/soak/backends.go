package soak

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// linger is how long an engine that has left goes on listening, so that what still comes is
// seen. It is longer than staleBound.
const linger = 25 * time.Second

// backends has all engines: those in the configuration, and those that have left and still
// listen.
type backends struct {
	r       *reload
	started int // numbers the engines, and so their addresses

	mu     sync.Mutex
	in     []*backend
	left   []*backend           // oldest first
	out    map[string]time.Time // by URL: when it left, of all that are not back
	closes sync.WaitGroup
}

// fill starts n engines of each role.
func (f *backends) fill(n int) error {
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
func (f *backends) start(prefill bool) (*backend, error) {
	f.started++
	n := f.started
	return startBackend(f.r, fmt.Sprintf("127.%d.%d.%d", 16+n>>16, n>>8&255, n&255), prefill)
}

func (f *backends) urls(prefill bool) []string {
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
func (f *backends) exchange(random *rand.Rand, n int) (left []*backend, joined int, err error) {
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
func (f *backends) back(random *rand.Rand, prefill bool) *backend {
	if random.IntN(4) > 0 {
		return nil
	}
	for i, e := range f.left {
		if e.prefill == prefill && time.Since(e.removedAt()) < linger/2 {
			f.left = slices.Delete(f.left, i, i+1)
			f.r.back.Add(1)
			return e
		}
	}
	return nil
}

// removed is called when the reload without these engines is in force.
func (f *backends) removed(left []*backend) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.in {
		e.joinedNow = false
		delete(f.out, e.url)
	}
	for _, e := range left {
		e.leave(now)
		f.out[e.url] = now
	}
	f.left = append(f.left, left...)
}

// seriesKept is how long the proxy shows the counters of a backend that has left, and what its last requests and
// handles may add.
const seriesKept = 5*time.Minute + 40*time.Second

// keeps reports whether the proxy may still show a series of a backend: a counter, of one that left a while ago.
func (f *backends) keeps(series, url string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, left := f.out[url]
	counts := func(family string) bool { return strings.HasPrefix(series, family) }
	return left && time.Since(at) < seriesKept && slices.ContainsFunc([]string{
		"xpyd_leg_requests_total{", "xpyd_leg_errors_total{", "xpyd_backend_ejections_total{",
		"xpyd_backend_first_token_seconds_", "xpyd_backend_time_per_output_token_seconds_",
	}, counts)
}

// sweep closes the engines that left long ago. A connection of the proxy that is open then is a
// fault.
func (f *backends) sweep() {
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
func (f *backends) clinging() (n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.left {
		n += e.conns.Load()
	}
	return n
}

// judge checks the engines that left recently, when the proxy is at rest.
func (f *backends) judge() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.left {
		e.judge()
	}
}

func (f *backends) close() {
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
