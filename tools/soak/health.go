package soak

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"xpyd/tools/process"
	"xpyd/tools/tally"
)

// ejection is a line of the proxy's log. The proxy stops using a backend for a while because of its
// failures.
type ejection struct {
	Role, Backend string
	Reason        string
	For           float64 `json:"for_ms"`

	until time.Time
}

// ejections has those that are in force, by backend. A reload may end any of them early, and an
// engine that was restarted may end its own. They are forgotten then, so the count is never too
// high. It is safe for concurrent use.
type ejections struct {
	mu    sync.Mutex
	alone func() bool // one process writes the log, and none that has been replaced
	now   map[string]ejection
	most  map[string]int // the most at a time, by role
	total int
}

// add files an ejection and checks that at most half of the pool is ejected. The pools have three
// backends, or two after a reload. So at most one may be ejected.
func (e *ejections) add(next ejection, v *tally.Verdict) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	e.total++
	if !e.alone() {
		clear(e.now) // it is not known which process they belong to
		return
	}
	next.until = now.Add(time.Duration(next.For * float64(time.Millisecond)))
	e.now[next.Backend] = next
	n := 0
	for backend, o := range e.now {
		switch {
		case !o.until.After(now.Add(logSlack)):
			delete(e.now, backend)
		case o.Role == next.Role:
			n++
		}
	}
	e.most[next.Role] = max(e.most[next.Role], n)
	if n > poolSize/2 {
		v.Breach(invHealth, "more than half of a pool ejected", "%d of %d %s backends", n, poolSize, next.Role)
	}
}

// logSlack is how late a line may be read after it was written.
const logSlack = 200 * time.Millisecond

// forget drops all ejections.
func (e *ejections) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.now)
}

// renewed drops the ejection of a backend whose engine was restarted.
func (e *ejections) renewed(backend string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.now, backend)
}

// heed sets the function that reports whether one process writes the log.
func (e *ejections) heed(alone func() bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.alone = alone
}

func (e *ejections) figures() (total, mostPrefill, mostDecode int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.total, e.most["prefill"], e.most["decode"]
}

// tookDown judges that the proxy has taken a backend down. Without a fault, a backend is only taken
// down on an overloaded machine.
func (s *soak) tookDown(url string) {
	for _, st := range s.fleet.all() {
		if st.url() != url {
			continue
		}
		now := time.Now()
		if s.faults.find(now.Add(-downAfter), now, func(f *fault) bool { return f.Engine == st.Name() }) != nil {
			return
		}
		if s.tally.starved(now) {
			s.faults.close(s.faults.open(st.Name(), kindStarved, "", 0))
			return
		}
		s.verdict.Breach(invHealth, "a sound backend taken down", "%s", st.Name())
	}
}

// downAfter is how long after a fault's end its last failed check may still count.
const downAfter = 4 * time.Second

// healBound is how long after the last fault a backend may be down: a check 1 s away, two that
// pass, 200 ms apart, and what a busy machine adds, which may be seconds.
const healBound = 15 * time.Second

// wellAgain checks that all backends are back, at the end of stageHealing. In a very short run it
// does so some seconds later.
func (s *soak) wellAgain(ctx context.Context) {
	last := s.plan.end(stageFaults)
	for {
		amiss, err := s.notUp(ctx)
		if err == nil && amiss == "" || ctx.Err() != nil {
			return
		}
		if since := time.Since(last); since > healBound {
			s.verdict.Breach(invHealth, "backends that are not up again", "%v after the last fault: %s, %v", since, amiss, err)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// notUp names what the proxy does not show as up, or returns "".
func (s *soak) notUp(ctx context.Context) (amiss string, err error) {
	_, admin, _ := s.proxy.now()
	body, err := process.Get(ctx, "http://"+admin+"/pools")
	if err != nil {
		return "", err
	}
	var pools map[string][]struct{ URL, State string }
	if err := json.Unmarshal(body, &pools); err != nil {
		return "", fmt.Errorf("read the pools: %w", err)
	}
	n := 0
	for role, pool := range pools {
		for _, b := range pool {
			n++
			if b.State != "up" {
				amiss += fmt.Sprintf("%s %s is %s; ", role, b.URL, b.State)
			}
		}
	}
	if n != 2*poolSize {
		amiss += fmt.Sprintf("%d backends", n)
	}
	return amiss, nil
}
