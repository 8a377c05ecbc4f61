package router

import (
	"maps"
	"sync/atomic"
	"time"
)

// banFor is how long a pair is avoided before one request may try it again.
const banFor = 60 * time.Second

// ban is the ban of a pair. A probe moves until forward by banFor, so that only one request probes.
// If its result never comes, another request probes after the same time.
type ban struct {
	at    int64
	until atomic.Int64
	ask   atomic.Bool // a request has to be the probe
}

func (m *Pairs) ban(x Pair, now int64) {
	bans := map[Pair]*ban{}
	if old := m.bans.Load(); old != nil {
		bans = maps.Clone(*old)
	}
	bn := &ban{at: now}
	bn.until.Store(now + int64(banFor))
	bans[x] = bn
	m.publish(bans)
	m.router.wakeAt(bn.until.Load())
}

func (m *Pairs) publish(bans map[Pair]*ban) {
	if len(bans) == 0 {
		m.bans.Store(nil)
		return
	}
	m.bans.Store(&bans)
}

func (m *Pairs) banOf(x Pair) *ban {
	if bans := m.bans.Load(); bans != nil {
		return (*bans)[x]
	}
	return nil
}

// Unprobed notes that no probe of a banned pair was possible. The ban ends now, and the next request is
// the probe.
func (m *Pairs) Unprobed(x Pair) {
	if bn := m.banOf(x); bn != nil {
		bn.ask.Store(true)
		bn.until.Store(m.router.now())
		m.router.serveAll()
	}
}
