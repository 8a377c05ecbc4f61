package churn

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"xpyd/sim"
	"xpyd/tools/completion"
)

// barrierBound is how long an engine waits for a client to leave, and a client for the engine to
// reach the phase. It is far longer than a loaded machine needs. Reaching it fails the run.
const barrierBound = 20 * time.Second

// visit is one request of one client, and the one moment at which the client leaves. The client's
// goroutine owns it. The engine's goroutine meets it through the barrier.
type visit struct {
	id     string
	phase  phase
	manner completion.Manner
	call   completion.Call
	at     int           // phaseStream: index of the event after which it leaves
	loaded bool          // phaseDecode: after the blocks are pulled, not before
	hold   time.Duration // how long the engine stays in the phase once the client has left

	split   atomic.Bool   // a prefill engine has had it
	met     atomic.Bool   // an engine has reached the phase
	entered chan struct{} // closed when an engine has reached the phase
	left    chan struct{} // closed by the client after it has left
	alone   chan struct{} // closed when the request has gone to decode alone, so that the phase never comes
}

// meets reports whether the event is the moment that the visit waits for.
func (v *visit) meets(ev sim.Event) bool {
	switch v.phase {
	case phasePrefill:
		return ev.Phase == sim.PhasePrefillStart
	case phasePrefillEnd:
		return ev.Phase == sim.PhasePrefillEnding
	case phaseAnswered:
		return ev.Phase == sim.PhasePrefillAnswered
	case phaseDecode:
		return !v.loaded && ev.Phase == sim.PhaseDecodeReceived || v.loaded && ev.Phase == sim.PhaseDecodeLoaded
	case phaseStream:
		return ev.Phase == sim.PhaseStreamEvent && ev.Index >= v.at
	}
	return false
}

// needsSplit reports whether only a request that is prefilled apart has the phase.
func (v *visit) needsSplit() bool {
	return v.phase == phasePrefill || v.phase == phasePrefillEnd || v.phase == phaseAnswered || v.phase == phaseDecode && v.loaded
}

// barrier makes engine and client meet. The engine stops in the phase until the client has left. It
// is safe for concurrent use.
type barrier struct {
	tally    *counts
	together bool // both legs start at once, so a decode engine may be the first to have a request

	mu     sync.Mutex
	visits map[string]*visit // by the client's id
	held   sync.WaitGroup    // hooks that hold an engine
}

func newBarrier(t *counts) *barrier { return &barrier{tally: t, visits: map[string]*visit{}} }

func (b *barrier) expect(v *visit) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.visits[v.id] = v
}

func (b *barrier) forget(v *visit) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.visits, v.id)
}

// find takes a hold on the visit of a leg. The caller must then call b.held.Done.
func (b *barrier) find(legID string) *visit {
	if len(legID) <= completion.LegSuffix {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.visits[legID[:len(legID)-completion.LegSuffix]]
	if v != nil {
		b.held.Add(1)
	}
	return v
}

var errNeverLeft = errors.New("the client did not leave while the engine waited for it")

// hook is the engines' sim.Options.Hook.
func (b *barrier) hook(ev sim.Event) {
	v := b.find(ev.RequestID)
	if v == nil {
		return
	}
	defer b.held.Done()
	if ev.Phase == sim.PhasePrefillStart {
		v.split.Store(true)
	}
	switch {
	case v.needsSplit() && !b.together && ev.Phase == sim.PhaseDecodeReceived && !v.split.Load():
		if v.met.CompareAndSwap(false, true) {
			close(v.alone)
			b.forget(v)
		}
	case v.phase == phaseAnswered && ev.Phase == sim.PhaseDecodeReceived:
		// The proxy is faster than the client. D must not be done before the client leaves.
		_ = v.awaitLeft()
	case v.meets(ev) && v.met.CompareAndSwap(false, true):
		b.meet(v)
	}
}

// meet holds the engine in the phase. It counts a hit only if the client has really left meanwhile.
func (b *barrier) meet(v *visit) {
	close(v.entered)
	defer b.forget(v)
	if err := v.awaitLeft(); err != nil {
		b.tally.fail(v, err)
		return
	}
	time.Sleep(v.hold)
	b.tally.hit(v.phase, v.manner)
}

func (v *visit) awaitLeft() error {
	bound := time.NewTimer(barrierBound)
	defer bound.Stop()
	select {
	case <-v.left:
		return nil
	case <-bound.C:
		return errNeverLeft
	}
}

// These errors say why a client does not meet an engine.
var (
	errNeverReached = errors.New("no engine came to this phase")
	errAlone        = errors.New("the request went to decode alone")
)

// awaitPhase waits until an engine holds the request in the phase.
func (v *visit) awaitPhase() error {
	bound := time.NewTimer(barrierBound)
	defer bound.Stop()
	select {
	case <-v.entered:
		return nil
	case <-v.alone:
		return errAlone
	case <-bound.C:
		return errNeverReached
	}
}
