package bench

import (
	"maps"
	"sync"
	"time"
)

// ending is how one request of a soak came out.
type ending struct {
	Load string // what kind of client
	What string // complete, left, or the error it was told
}

// soakTally counts what clients and engines saw. Safe for concurrent use.
type soakTally struct {
	mu      sync.Mutex
	plan    plan // the zero one until the load begins: nothing is counted
	endings [stages]map[ending]int
	added   [stages]histogram // time to the first token, beyond what the engine takes
	gaps    [stages]histogram // between two events of a stream
	beside  histogram         // gaps of streams on a sound D while another one is frozen
	seconds []second          // since plan.begin
}

// second is what happened in one second of the run.
type second struct {
	requests, prefills, decodes int // completions asked for; legs that reached an engine
	lines                       int // of the proxy's log
}

func newSoakTally() *soakTally {
	t := &soakTally{}
	for s := range t.endings {
		t.endings[s] = map[ending]int{}
	}
	return t
}

// start sets the plan, once.
func (t *soakTally) start(p plan) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.plan = p
}

// stage is the present one.
func (t *soakTally) stage() stage {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.plan.at(time.Now())
}

// ended counts a request that ended now.
func (t *soakTally) ended(load, what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.plan.begin.IsZero() {
		return
	}
	t.endings[t.plan.at(time.Now())][ending{load, what}]++
}

// first observes the time to a stream's first token, less the engine's own.
func (t *soakTally) first(added time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.plan.at(time.Now())
	t.added[s].observe(added)
}

// gap observes the time between two events; beside, on a D that is well while another
// one is not.
func (t *soakTally) gap(d time.Duration, beside bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gaps[t.plan.at(time.Now())].observe(d)
	if beside {
		t.beside.observe(d)
	}
}

// in runs edit on the second of at.
func (t *soakTally) in(at time.Time, edit func(*second)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := int(at.Sub(t.plan.begin) / time.Second)
	if i < 0 || t.plan.begin.IsZero() {
		return
	}
	for len(t.seconds) <= i {
		t.seconds = append(t.seconds, second{})
	}
	edit(&t.seconds[i])
}

// total of the endings of some stages that match.
func (t *soakTally) total(from, to stage, match func(ending) bool) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for s := from; s <= to; s++ {
		for e, count := range t.endings[s] {
			if match(e) {
				n += count
			}
		}
	}
	return n
}

// amplifyOver is the span over which legs are compared with requests, in seconds.
const amplifyOver = 10

// amplification is the most legs a request in any such span between two moments.
func (t *soakTally) amplification(from, to time.Time, legs func(second) int) (most float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	first, last := int(from.Sub(t.plan.begin)/time.Second), int(to.Sub(t.plan.begin)/time.Second)
	for i := max(first, 0); i+amplifyOver <= min(last, len(t.seconds)); i++ {
		requests, got := 0, 0
		for _, s := range t.seconds[i : i+amplifyOver] {
			requests += s.requests
			got += legs(s)
		}
		if requests >= 5*amplifyOver { // fewer make no ratio
			most = max(most, float64(got)/float64(requests))
		}
	}
	return most
}

// lines of the log in all, and the most in a second beyond two for each request.
func (t *soakTally) lines() (all, over int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.seconds {
		all += s.lines
		over = max(over, s.lines-2*s.requests)
	}
	return all, over
}

// endingsOf is a copy of a stage's.
func (t *soakTally) endingsOf(s stage) map[ending]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.endings[s])
}

// quantiles are the p99 of a stage.
type quantiles struct{ added, gap time.Duration }

func (t *soakTally) quantiles(s stage) quantiles {
	t.mu.Lock()
	defer t.mu.Unlock()
	return quantiles{t.added[s].quantile(.99), t.gaps[s].quantile(.99)}
}

// besides is the p99 of the gaps beside a D that stands still, and how many there were.
func (t *soakTally) besides() (p99 time.Duration, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.beside.quantile(.99), t.beside.n
}

// histogram counts durations by the millisecond, up to 10 s.
type histogram struct {
	buckets []int
	n       int
	most    time.Duration
}

const histogramTop = 10_000 // ms

func (h *histogram) observe(d time.Duration) {
	if h.buckets == nil {
		h.buckets = make([]int, histogramTop+1)
	}
	h.buckets[min(max(d.Milliseconds(), 0), histogramTop)]++
	h.n++
	h.most = max(h.most, d)
}

// quantile is the upper edge of the bucket that holds the q-th part, 0 when empty.
func (h *histogram) quantile(q float64) time.Duration {
	rank := int(q * float64(h.n))
	for ms, n := range h.buckets {
		if rank -= n; rank < 0 {
			return time.Duration(ms+1) * time.Millisecond
		}
	}
	return 0
}
