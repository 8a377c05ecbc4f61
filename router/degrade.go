package router

import (
	"math"
	"slices"
)

// slotsUncapped is how many requests a decode backend is assumed to run at once if no
// decode_max_in_flight is set. It is vLLM's default of --max-num-seqs, which its metrics do not
// show.
const slotsUncapped = 256

// degradedLine is the line of requests that wait for their part of the share. They have their own
// line, because slots beyond the share are free for other requests.
const degradedLine = int(roleCount)

// Capped reports whether requests that go without the prefill that they should have had may take only a
// share of the decode pool.
func (s *Snapshot) Capped() bool { return s.maxShare < 1 }

// line is the number of the queue in which the request waits.
func (s *Snapshot) line(w *Want) int {
	if w.Degraded && s.Capped() && !s.roleless {
		return degradedLine
	}
	return int(w.Role)
}

// Degrade marks a held decode lease whose request goes without the prefill that it should have had. It
// returns false and changes nothing if the share of such requests is spent, or if others wait for it. An engine without a
// role may serve any request whole, so nothing is counted there.
// The request then releases the lease and waits with Want.Degraded.
func (s *Snapshot) Degrade(l *Lease) bool {
	if l.degraded || l.Backend.Twin() != nil {
		return true
	}
	if s.Capped() && s.router.queues[degradedLine].waiting.Load() > 0 || !s.takeShare() {
		return false
	}
	l.degraded = true
	return true
}

// takeShare counts one more degraded request, unless that would exceed the share.
func (s *Snapshot) takeShare() bool {
	limit := s.degradedLimit()
	for n := s.router.degraded.Load(); n < limit; n = s.router.degraded.Load() {
		if s.router.degraded.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

// degradedLimit is the share in requests. It is a part of the slots of those backends that are
// not down. It is at least one, unless the share is 0.
func (s *Snapshot) degradedLimit() int64 {
	if !s.Capped() {
		return math.MaxInt64
	}
	if s.maxShare <= 0 {
		return 0
	}
	slots := s.decode.limit
	if slots == 0 {
		slots = slotsUncapped
	}
	usable := 0
	for _, b := range s.decode.backends {
		if b.State() != Down {
			usable++
		}
	}
	if usable == 0 {
		return math.MaxInt64 // the choice of a backend reports that there is none
	}
	return max(1, int64(s.maxShare*float64(slots)*float64(usable)))
}

// acquireDegraded is AcquireFor for a request that may take only a part of the share. It holds the
// lock of its line. Otherwise another request could find the share spent while this one holds a
// part that it gives back because there is no slot.
func (s *Snapshot) acquireDegraded(w *Want, l *Lease) error {
	q := &s.router.queues[degradedLine]
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting.Load() > 0 {
		return ErrBusy // it must not overtake those that wait
	}
	return s.acquire(w, l)
}

// Outage reports whether every prefill backend is down or not ready although requests would go to them.
func (s *Snapshot) Outage() bool {
	if !s.Splits() || !s.Pooled(Prefill) {
		return false
	}
	for _, b := range s.prefill.backends {
		if b.State() != Down {
			return false
		}
	}
	return true
}

// Unjudged reports whether the checks have found no prefill backend up, but not yet each of them down,
// although requests would go to them.
func (s *Snapshot) Unjudged() bool {
	return s.Splits() && !s.AnyUp(Prefill) && slices.ContainsFunc(s.Backends(Prefill), func(b *Backend) bool { return !b.judged() })
}
