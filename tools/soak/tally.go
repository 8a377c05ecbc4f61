package soak

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"xpyd/tools/tally"
)

// ending is how one request of a soak ended.
type ending struct {
	Load string // what kind of client
	What string // complete, left, or the error that the client got
}

// counts has what clients and engines saw. It is safe for concurrent use.
type counts struct {
	mu      sync.Mutex
	plan    plan // zero until the load begins, and nothing is counted before
	endings [stages]map[ending]int
	proxied [stages]latency
	control [stages]latency // of streams straight from an engine without faults
	beside  tally.Histogram // gaps of streams on a sound D while another one is frozen
	seconds []second        // since plan.begin
}

// second is what happened in one second of the run.
type second struct {
	requests, heard, ended int           // completions that were sent; whose first byte came, or never will; and that ended
	prefills, decodes      int           // legs that reached an engine
	lines                  int           // in the proxy's log
	late                   time.Duration // the most that an event of the control was late
}

func newCounts() *counts {
	t := &counts{}
	for s := range t.endings {
		t.endings[s] = map[ending]int{}
	}
	return t
}

// start sets the plan once.
func (t *counts) start(p plan) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.plan = p
}

// stage returns the present stage.
func (t *counts) stage() stage {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.plan.at(time.Now())
}

// ended counts a request that ended now.
func (t *counts) ended(load, what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.plan.begin.IsZero() {
		return
	}
	t.endings[t.plan.at(time.Now())][ending{load, what}]++
}

// latency is the latency of streams.
type latency struct {
	first tally.Histogram // time to the first event, less what the prefill takes
	gaps  tally.Histogram // between two events
}

// starvedBy is how late an event of a control stream is on an overloaded machine. Checks of sound
// engines then run into their timeouts, and engines take longer than they should.
const starvedBy = 200 * time.Millisecond

// starved reports whether the machine was overloaded at the moment or shortly before.
func (t *counts) starved(at time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := int(at.Sub(t.plan.begin) / time.Second)
	for j := max(i-3, 0); j <= i+1 && j < len(t.seconds); j++ {
		if t.seconds[j].late >= starvedBy {
			return true
		}
	}
	return false
}

// observe runs edit on the latency of the present stage.
func (t *counts) observe(control bool, edit func(*latency)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.plan.at(time.Now()); control {
		edit(&t.control[s])
	} else {
		edit(&t.proxied[s])
	}
}

// gapBeside observes a gap on a sound D while another one is not sound.
func (t *counts) gapBeside(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.beside.Observe(d)
}

// in runs edit on the second of at.
func (t *counts) in(at time.Time, edit func(*second)) {
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

// total counts the endings of some stages that match.
func (t *counts) total(from, to stage, match func(ending) bool) int {
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

// These are how many requests of such a span make a ratio. The budget of retries allows 2 a second
// and 10 at once, however few requests there are. In a storm that would be most of the legs of few
// requests.
const (
	makeRatio       = 5 * amplifyOver
	makeStormyRatio = 30 * amplifyOver
)

// amplified is such a span. It has the second of the run at which it begins, and what was in it.
type amplified struct {
	ratio              float64
	at, requests, legs int
}

// String says where to look in the fault log.
func (a amplified) String() string {
	return fmt.Sprintf("%.3f (%d for %d from %d s on)", a.ratio, a.legs, a.requests, a.at)
}

// amplification returns the span with the most legs for each request between two moments. With
// waiting, requests that waited for their first byte when the span began count too, because their
// legs are in it. Where each client waits for its answer, no other requests come in a span of
// failures. After the first byte a request has no more legs.
func (t *counts) amplification(from, to time.Time, waiting bool, legs func(second) int) (most amplified) {
	t.mu.Lock()
	defer t.mu.Unlock()
	first, last := int(from.Sub(t.plan.begin)/time.Second), int(to.Sub(t.plan.begin)/time.Second)
	unheard := t.underWay(func(s second) int { return s.heard })
	for i := max(first, 0); i+amplifyOver <= min(last, len(t.seconds)); i++ {
		asked, got := 0, 0
		for _, s := range t.seconds[i : i+amplifyOver] {
			asked += s.requests
			got += legs(s)
		}
		if asked < makeRatio || waiting && asked < makeStormyRatio {
			continue
		}
		if waiting {
			asked += unheard[i]
		}
		if ratio := float64(got) / float64(asked); ratio > most.ratio {
			most = amplified{ratio, i, asked, got}
		}
	}
	return most
}

// underWay returns how many requests were not over when each second began. mu is held.
func (t *counts) underWay(over func(second) int) []int {
	all, n := make([]int, len(t.seconds)), 0
	for i, s := range t.seconds {
		all[i] = max(n, 0) // those from before the plan's begin only have an end
		n += s.requests - over(s)
	}
	return all
}

// lines returns the lines of the log in all, and the most in a second beyond two for each request
// and one for each that was under way.
func (t *counts) lines() (all, over int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	underWay := t.underWay(func(s second) int { return s.ended })
	for i, s := range t.seconds {
		all += s.lines
		over = max(over, s.lines-2*s.requests-underWay[i])
	}
	return all, over
}

// endingsOf returns a copy of a stage's endings.
func (t *counts) endingsOf(s stage) map[ending]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.endings[s])
}

// quantiles are the p99 of a stage, of streams through the proxy and of the control.
type quantiles struct {
	first, gap, controlFirst, controlGap time.Duration
	firsts, gaps                         int // observed streams through the proxy
}

func (t *counts) quantiles(s stage) quantiles {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, c := &t.proxied[s], &t.control[s]
	return quantiles{p.first.Quantile(.99), p.gaps.Quantile(.99), c.first.Quantile(.99), c.gaps.Quantile(.99), p.first.N, p.gaps.N}
}

// besides returns the p99 of the gaps beside a D that is frozen, and how many there were.
func (t *counts) besides() (p99 time.Duration, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.beside.Quantile(.99), t.beside.N
}
