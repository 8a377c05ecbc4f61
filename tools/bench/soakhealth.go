package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// ejection is a line of the proxy's log: it leaves a backend alone for its failures.
type ejection struct {
	Role, Backend string
	Reason        string
	For           float64 `json:"for_ms"`

	until time.Time
}

// ejections are those that run, by backend. A reload may end any of them before its time,
// an engine that was started anew its own, so those are forgotten then: what is counted is
// never more than what is. Safe for concurrent use.
type ejections struct {
	mu    sync.Mutex
	alone func() bool // one process writes the log, not also one that has been replaced
	now   map[string]ejection
	most  map[string]int // of a role at a time
	total int
}

// add files one and wants at most half of the pool to be ejected. The pools have three
// or, after a reload, two backends: one.
func (e *ejections) add(next ejection, v *verdict) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	e.total++
	if !e.alone() {
		clear(e.now) // whose they are cannot be told
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
		v.breach(invHealth, "more than half of a pool ejected", "%d of %d %s backends", n, poolSize, next.Role)
	}
}

// logSlack is how late a line may be read after it was written.
const logSlack = 200 * time.Millisecond

// forget drops all of them.
func (e *ejections) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.now)
}

// renewed drops that of a backend whose engine was started anew.
func (e *ejections) renewed(backend string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.now, backend)
}

// heed sets what tells whether one process writes the log.
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

// tookDown judges that the proxy has taken a backend down. One to which nothing was done
// is only taken down on a machine that has no time.
func (s *soak) tookDown(url string) {
	for _, st := range s.fleet.all() {
		if st.relay.URL() != url {
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
		s.verdict.breach(invHealth, "a sound backend taken down", "%s", st.Name())
	}
}

// downAfter is how long after a fault's end its last failed check may still be counted.
const downAfter = 4 * time.Second

// healBound is how long after the last fault a backend may be down: a check 1 s away and
// two that pass, 200 ms apart, and what a busy machine adds.
const healBound = 5 * time.Second

// wellAgain checks at the end of stageHealing, in a very short run some seconds later,
// that all backends are back.
func (s *soak) wellAgain(ctx context.Context) {
	last := s.plan.end(stageFaults)
	for {
		amiss, err := s.notUp(ctx)
		if err == nil && amiss == "" || ctx.Err() != nil {
			return
		}
		if since := time.Since(last); since > healBound {
			s.verdict.breach(invHealth, "backends that are not up again", "%v after the last fault: %s, %v", since, amiss, err)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// notUp names what the proxy does not show as up; "" is nothing.
func (s *soak) notUp(ctx context.Context) (amiss string, err error) {
	_, admin, _ := s.proxy.now()
	body, err := fetch(ctx, "http://"+admin+"/pools")
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
