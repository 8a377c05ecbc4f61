// Package desk is what the status page of the admin port shows, and how it gets there: the completions
// that ended last, 15 minutes of rates and percentiles, the stream of events to viewers, and the files of
// the page. It knows no prompts, and costs a completion one short lock.
package desk

import (
	"sync"
	"time"

	"xpyd/proxy"
)

// lives is how many completions the desk remembers.
const lives = 60

// Desk collects what the status page shows. It is safe for concurrent use.
type Desk struct {
	Version string // of this build
	Started time.Time
	clock   func() time.Time

	mu       sync.Mutex
	ring     [lives]proxy.Life
	ended    uint64 // completions since the start; the next one goes to ring[ended % lives]
	history  history
	warnings []string
	settings map[string]string
	failures failures
	recent   recent
}

// New returns an empty desk. version is that of this build.
func New(version string, clock func() time.Time) *Desk {
	return &Desk{Version: version, Started: clock(), clock: clock}
}

// Ended takes in a completion that has ended.
func (d *Desk) Ended(l *proxy.Life) {
	now := d.clock()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ring[d.ended%lives] = *l
	d.ended++
	d.history.add(now, l)
	d.failures.add(l)
	d.recent.add(now, l)
}

// Configured takes in the configuration in force: what is questionable about it, and the values of its keys by their paths,
// without secrets.
func (d *Desk) Configured(warnings []string, settings map[string]string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.warnings, d.settings = warnings, settings
}

// Settings returns the values of the configuration's keys by their paths, without secrets.
func (d *Desk) Settings() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.settings
}

// Account is what the desk knows at one moment.
type Account struct {
	Ended    uint64      `json:"ended"` // completions since the start
	Warnings []string    `json:"warnings"`
	Window   Window      `json:"window"`
	Lives    []LifeEntry `json:"lives"` // the newest first
}

// Account returns what the desk knows now. No member is nil.
func (d *Desk) Account() Account {
	now := d.clock()
	d.mu.Lock()
	defer d.mu.Unlock()
	a := Account{Ended: d.ended, Warnings: append([]string{}, d.warnings...), Lives: []LifeEntry{}, Window: d.history.window(now)}
	for i := uint64(1); i <= min(d.ended, lives); i++ {
		n := d.ended - i
		a.Lives = append(a.Lives, entryOf(n, &d.ring[n%lives]))
	}
	return a
}

// Plots returns the series of the last 15 minutes, or since the start.
func (d *Desk) Plots() Plots {
	now := d.clock()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.history.plots(now, d.Started)
}
