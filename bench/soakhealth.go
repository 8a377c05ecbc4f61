package bench

import (
	"context"
	"encoding/json"
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

// ejections are those that run, by backend. A reload and the end of an engine may end
// some before their time, so those are forgotten then: what is counted is never more
// than what is. Safe for concurrent use.
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

// wellAgain checks at the end of stageHealing that all backends are back.
func (s *soak) wellAgain(ctx context.Context) {
	_, admin, _ := s.proxy.now()
	body, err := fetch(ctx, "http://"+admin+"/pools")
	var pools map[string][]struct{ URL, State string }
	if err == nil {
		err = json.Unmarshal(body, &pools)
	}
	if err != nil {
		s.verdict.breach(invHealth, "pools that cannot be read", "%v", err)
		return
	}
	n := 0
	for role, pool := range pools {
		for _, b := range pool {
			n++
			if b.State != "up" {
				s.verdict.breach(invHealth, "a backend that is not up again", "%s %s is %s %v after the last fault", role, b.URL, b.State, s.plan.end(stageHealing).Sub(s.plan.end(stageFaults)))
			}
		}
	}
	if n != 2*poolSize {
		s.verdict.breach(invHealth, "a pool that is not whole again", "%d backends", n)
	}
}
