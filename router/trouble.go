package router

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"xpyd/router/price"
)

// Trouble is what is known of an engine that its active checks do not show: that it gives nothing, or is slow.
// Package engines finds it out. All methods may be called at any time.
type Trouble struct {
	wedged atomic.Pointer[Wedged]
	slow   atomic.Pointer[Slow]
	// configured is the backend's part of the heaviest weight, as bits of a float64, before its speed counts. Written under
	// router.mu.
	configured atomic.Uint64
	paces      [3]price.Pace // by work, see Paced
	spared     atomic.Bool   // it has been told that it is slow and not ejected, as half of its pool is
}

// Wedged says of an engine that it gives nothing although it owes answers, and does not answer a request of xpyd's own either.
type Wedged struct {
	Since time.Time     // its last sign of work
	Named time.Time     // when xpyd found it out
	Owed  int           // answers that it owed then
	Limit time.Duration // how long it may give nothing
	Down  bool          // it has been like that for so long that it is down and its streams have ended
}

// Slow says of an engine that it works at a fraction of its peers' speed.
type Slow struct {
	Since time.Time
	Work  string        // of what: prefill, decode, transfer
	Ratio float64       // its speed as a part of its peers'
	Own   time.Duration // its time of a token
	Peers time.Duration // that of its peers
}

// Words says in which work the engine is slow, with the figures.
func (s *Slow) Words() string {
	ms := func(d time.Duration) float64 { return d.Seconds() * 1e3 }
	return fmt.Sprintf("its %s has %.2f of its peers' speed: %.3g ms a token, and theirs %.3g ms", s.Work, s.Ratio, ms(s.Own), ms(s.Peers))
}

// Words says what the engine has been found of.
func (w *Wedged) Words() string {
	return fmt.Sprintf("no answer for %.1fs, nor a token to xpyd itself; it owed %d", w.Named.Sub(w.Since).Seconds(), w.Owed)
}

// Wedged is nil unless the engine is wedged.
func (t *Trouble) Wedged() *Wedged { return t.wedged.Load() }

// Slow is nil unless the engine is slow.
func (t *Trouble) Slow() *Slow { return t.slow.Load() }

// down reports that the engine is down because it is wedged. Its streams end then.
func (t *Trouble) down() bool {
	w := t.wedged.Load()
	return w != nil && w.Down
}

// Speed is the part of its configured weight that the engine takes, above 0 and up to 1.
func (t *Trouble) Speed() float64 {
	if s := t.slow.Load(); s != nil {
		return min(max(s.Ratio, leastSpeed), 1)
	}
	return 1
}

// leastSpeed keeps a slow engine in use, so that it can show that it is no longer slow.
const leastSpeed = 0.02

// weight is the part of the heaviest weight that the engine takes.
func (t *Trouble) weight() float64 { return math.Float64frombits(t.configured.Load()) * t.Speed() }
