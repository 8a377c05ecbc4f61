package handoff

import (
	"sync"
	"time"
)

// Ledger counts the blocks that handles name. The zero value is ready.
type Ledger struct {
	mu   sync.Mutex
	held int
	lost []lostBlocks
}

type lostBlocks struct {
	blocks int
	until  time.Time
}

func (l *Ledger) pin(n int)   { l.mu.Lock(); l.held += n; l.mu.Unlock() }
func (l *Ledger) unpin(n int) { l.mu.Lock(); l.held -= n; l.mu.Unlock() }

func (l *Ledger) strand(n int, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(time.Now())
	l.lost = append(l.lost, lostBlocks{n, until})
}

// forget drops the blocks whose lease has ended.
func (l *Ledger) forget(now time.Time) {
	keep := l.lost[:0]
	for _, e := range l.lost {
		if e.until.After(now) {
			keep = append(keep, e)
		}
	}
	l.lost = keep
}

// Pinned returns how many blocks the handles that have not ended name.
func (l *Ledger) Pinned() float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return float64(l.held)
}

// Stranded returns how many blocks wait for the end of their lease.
func (l *Ledger) Stranded() float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(time.Now())
	n := 0
	for _, e := range l.lost {
		n += e.blocks
	}
	return float64(n)
}
