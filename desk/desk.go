// Package desk is what the status page of the admin port shows, and how it gets there: the completions
// that ended last, 15 minutes of rates and percentiles, the transfers of each pair, the stream of events
// to viewers, and the files of the page. It knows no prompts, and costs a completion one short lock.
package desk

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// lives is how many completions the desk remembers.
const lives = 60

// Desk collects what the status page shows. It is safe for concurrent use.
type Desk struct {
	Version string // of this build
	Started time.Time
	clock   func() time.Time

	mu       sync.Mutex
	ring     [lives]Life
	ended    uint64 // completions since the start; the next one goes to ring[ended % lives]
	history  history
	pairs    map[pair]*counts
	warnings []string
}

type pair struct{ prefill, decode string }

type counts struct{ transfers, failures int64 }

// New returns an empty desk. version is that of this build.
func New(version string, clock func() time.Time) *Desk {
	return &Desk{Version: version, Started: clock(), clock: clock, pairs: map[pair]*counts{}}
}

// Ended takes in a completion that has ended.
func (d *Desk) Ended(l *Life) {
	now := d.clock()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ring[d.ended%lives] = *l
	d.ended++
	d.history.add(now, l)
	if l.pulled() {
		d.pair(l.Prefill, l.Decode).transfers++
	}
}

// TransferFailed counts a transfer that the decode engine could not make.
func (d *Desk) TransferFailed(prefill, decode string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pair(prefill, decode).failures++
}

// pair returns the counts of a pair. mu is held.
func (d *Desk) pair(prefill, decode string) *counts {
	key := pair{prefill, decode}
	c := d.pairs[key]
	if c == nil {
		c = &counts{}
		d.pairs[key] = c
	}
	return c
}

// Forget drops the counts of a backend that has left.
func (d *Desk) Forget(backend string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key := range d.pairs {
		if key.prefill == backend || key.decode == backend {
			delete(d.pairs, key)
		}
	}
}

// Warn replaces the warnings about the configuration in force.
func (d *Desk) Warn(lines []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.warnings = lines
}

// Pair counts the transfers of a prefill and a decode backend since both have been in the pools.
type Pair struct {
	Prefill   string `json:"prefill"`
	Decode    string `json:"decode"`
	Transfers int64  `json:"transfers"`
	Failures  int64  `json:"failures"`
}

// Account is what the desk knows at one moment.
type Account struct {
	Ended    uint64      `json:"ended"` // completions since the start
	Warnings []string    `json:"warnings"`
	Pairs    []Pair      `json:"pairs"` // that had a transfer
	Window   Window      `json:"window"`
	Lives    []LifeEntry `json:"lives"` // the newest first
}

// Account returns what the desk knows now. No member is nil.
func (d *Desk) Account() Account {
	now := d.clock()
	d.mu.Lock()
	defer d.mu.Unlock()
	a := Account{Ended: d.ended, Warnings: append([]string{}, d.warnings...), Pairs: []Pair{}, Lives: []LifeEntry{}, Window: d.history.window(now)}
	for key, c := range d.pairs {
		a.Pairs = append(a.Pairs, Pair{key.prefill, key.decode, c.transfers, c.failures})
	}
	slices.SortFunc(a.Pairs, func(x, y Pair) int {
		return cmp.Or(cmp.Compare(x.Prefill, y.Prefill), cmp.Compare(x.Decode, y.Decode))
	})
	for i := uint64(1); i <= min(d.ended, lives); i++ {
		n := d.ended - i
		a.Lives = append(a.Lives, d.ring[n%lives].entry(n))
	}
	return a
}

// Plots returns the series of the last 15 minutes.
func (d *Desk) Plots() Plots {
	now := d.clock()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.history.plots(now)
}
