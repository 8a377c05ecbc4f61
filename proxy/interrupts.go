package proxy

import (
	"sync"
	"sync/atomic"
	"time"

	"xpyd/proxy/fault"
)

// state says how far a completion has come. Every exit from a state settles three things: the leases,
// the handle and the client.
type state uint8

const (
	stateAdmitted   state = iota // no backend has had any of it
	statePrefilling              // encoders or P work, and there is still no handle
	stateHandedOff               // xpyd holds a handle that no decode backend has seen
	stateDecoding                // D has the request, and nothing has reached the client
	stateCommitted               // the client has the first byte, so nothing can be tried again
	states
)

// String returns the phase as xpyd_client_gone_total and the log name it.
func (s state) String() string {
	return [states]string{"admitted", "prefill", "handoff", "decode", "stream"}[s]
}

// atomicState is a state that its owner writes and the watcher also reads.
type atomicState struct{ v atomic.Uint32 }

func (a *atomicState) set(s state) { a.v.Store(uint32(s)) }
func (a *atomicState) get() state  { return state(a.v.Load()) }

// stopGrace is how long a client may take to read the end of its answer when the drain time is over.
const stopGrace = 500 * time.Millisecond

// interrupts is what may end a request before its time, whatever it is doing. The watcher writes it, and the goroutine
// of the request reads it.
type interrupts struct {
	left atomic.Uint32 // the state of a completion in which the client left, plus 1; 0 while it stays
	// orphan says that its prefill runs for nobody, see budget.Counts.
	orphan atomic.Bool
	stop   atomic.Bool // the process is about to end
	state  atomicState

	mu    sync.Mutex // guards done and woken
	done  chan struct{}
	woken bool
}

// gone reports that the client has left.
func (i *interrupts) gone() bool { return i.left.Load() > 0 }

// interrupted returns the error of a request that must end now, whatever it is doing.
func (i *interrupts) interrupted() *fault.Error {
	if ended := i.endedBy(); ended != fault.NoCause {
		return fault.Fault{Cause: ended}.Tell(fault.CodeNone)
	}
	return nil
}

// endedBy says why the request must end now, if it must.
func (i *interrupts) endedBy() fault.Cause {
	switch {
	case i.gone():
		return fault.Gone
	case i.stop.Load():
		return fault.Stopped
	}
	return fault.NoCause
}

// ending returns a channel that is closed when the request is interrupted. It is made on demand,
// as few requests wait.
func (i *interrupts) ending() <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.done == nil {
		i.done = make(chan struct{})
	}
	if i.interrupted() != nil {
		i.wake()
	}
	return i.done
}

// wake closes done once. The caller holds mu.
func (i *interrupts) wake() {
	if i.done != nil && !i.woken {
		i.woken = true
		close(i.done)
	}
}

// leaveQueue ends the wait of a request that was interrupted.
func (i *interrupts) leaveQueue() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.wake()
}
