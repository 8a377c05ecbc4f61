package netio

import (
	"context"
	"net"
	"time"
)

// pulse shows that a loop turns. The loop beats at each turn that may have been asked for.
type pulse chan struct{}

func newPulse() pulse { return make(pulse, 1) }

// beat is called by the loop. It never waits.
func (p pulse) beat() {
	select {
	case p <- struct{}{}:
	default:
	}
}

// await lets ask bring the loop to a turn, and waits for one. It reports false if ctx ends first.
func (p pulse) await(ctx context.Context, ask func()) bool {
	select {
	case <-p: // of a turn before this question
	default:
	}
	ask()
	select {
	case <-p:
		return true
	case <-ctx.Done():
		return false
	}
}

// Turns asks the accept loop for a turn, and reports whether the loop made one before ctx ended. It
// also reports true for a closed listener, which needs no loop. Only one goroutine may ask at a time.
func (l *Listener) Turns(ctx context.Context) bool {
	port, ok := l.Listener.(*net.TCPListener)
	if !ok {
		return true
	}
	return l.pulse.await(ctx, func() {
		// This deadline is over at once. So Accept returns without a client, whether it waits for one
		// or is called later.
		if port.SetDeadline(time.Now()) != nil {
			l.pulse.beat() // closed
		}
	})
}

// turned lets Accept wait again after a question. It lifts the deadline before it answers, because the
// next question may come at once.
func (l *Listener) turned() {
	if port, ok := l.Listener.(*net.TCPListener); ok {
		_ = port.SetDeadline(time.Time{})
	}
	l.pulse.beat()
}

// Turns asks the watcher for a turn, and reports whether the watcher made one before ctx ended. It also
// reports true for a closed watcher. Only one goroutine may ask at a time.
func (w *Watcher) Turns(ctx context.Context) bool {
	select {
	case <-w.done:
		return true
	default:
	}
	return w.pulse.await(ctx, w.rouse)
}
