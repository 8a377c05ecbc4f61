// Package progress shows how far a benchmark is: a bar on a terminal, a line now and then
// elsewhere.
package progress

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
)

// Meter counts requests that ended. Its methods may be called concurrently.
type Meter struct {
	mu      sync.Mutex
	out     io.Writer
	bar     *progressbar.ProgressBar // nil: lines
	total   int                      // 0: not known
	started time.Time
	told    time.Time // when the last line was written
	ok      int
	failed  int
}

const (
	barPace  = 100 * time.Millisecond
	linePace = 5 * time.Second
)

// New begins to count. total is the expected number of requests; 0 if it is not known.
func New(out io.Writer, terminal bool, total int) *Meter {
	m := &Meter{out: out, total: total, started: time.Now(), told: time.Now()}
	if !terminal {
		return m
	}
	length := total
	if total == 0 {
		length = -1 // a spinner
	}
	m.bar = progressbar.NewOptions(length,
		progressbar.OptionSetWriter(out),
		progressbar.OptionThrottle(barPace),
		progressbar.OptionShowCount(),
		progressbar.OptionShowIts(),
		progressbar.OptionSetItsString("req"),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionFullWidth(),
		progressbar.OptionSetDescription(m.words()),
	)
	return m
}

// Add counts a request that ended.
func (m *Meter) Add(ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ok {
		m.ok++
	} else {
		m.failed++
	}
	if m.bar != nil {
		m.bar.Describe(m.words())
		_ = m.bar.Add(1) // a terminal that has gone loses the bar alone
		return
	}
	if time.Since(m.told) >= linePace {
		m.told = time.Now()
		m.line()
	}
}

// Say writes a line of its own above the bar.
func (m *Meter) Say(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bar != nil {
		_ = m.bar.Clear() // as in Add; the next Add draws it again
	}
	fmt.Fprintln(m.out, text)
}

func (m *Meter) words() string {
	if m.failed == 0 {
		return "completed"
	}
	return fmt.Sprintf("%d completed, %d failed", m.ok, m.failed)
}

// Close ends the bar, or writes the last line.
func (m *Meter) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bar == nil {
		m.line()
		return
	}
	_ = m.bar.Exit() // as above
	fmt.Fprintln(m.out)
}

func (m *Meter) line() {
	done, elapsed := m.ok+m.failed, time.Since(m.started)
	rate := float64(done) / elapsed.Seconds()
	of, left := "", ""
	if m.total > 0 {
		of = fmt.Sprintf("/%d", m.total)
		if rate > 0 && done < m.total {
			left = fmt.Sprintf(", %s left", (time.Duration(float64(m.total-done)/rate) * time.Second).Round(time.Second))
		}
	}
	fmt.Fprintf(m.out, "%d%s requests: %d completed, %d failed, %.2f req/s%s\n", done, of, m.ok, m.failed, rate, left)
}
