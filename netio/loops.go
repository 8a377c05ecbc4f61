package netio

import (
	"math"
	"runtime"
	"slices"
	"sync"
	"time"
)

const (
	// sweepEvery is how often the loops are looked at. A stream whose deadline comes within two sweeps waits
	// for it on its own goroutine.
	sweepEvery = 100 * time.Millisecond
	// pacePause is the least wait between two reads of a stream that suits a loop. At a shorter one its
	// goroutine hardly sleeps, and waking it costs little.
	pacePause = 2 * time.Millisecond
	// quickPause is the longest between two turns of a stream that comes again at once.
	quickPause = 500 * time.Microsecond
	// mostQuick is how many turns in a row may be quick. An event may come in several pieces.
	mostQuick = 8
	// mostPatience bounds how many waits at a pace a stream must show before it gets a seat again.
	mostPatience = 128
	// fewSeats is how many streams a loop takes before the next one is made. A decode engine writes the events of a
	// step all at once, and a loop passes them on one after the other, so other processors may have a part.
	fewSeats = 64
	// mostSeats bounds the streams of one loop when no further one can be made. Thousands of streams on a few processors
	// are slow ones, or they would be too many. Their events come one at a time, and then a loop only costs a look.
	mostSeats = 256
)

// Loops follow streams whose events come at a pace, in place of one goroutine for each stream. One
// goroutine serves all ready streams of a loop, so no event wakes a thread of its own. A stream's own
// goroutine follows it if it comes without a pause, if its client does not read, if its deadline is near,
// or while all loops are busy. The owner closes the loops.
type Loops struct {
	born            time.Time
	patience        uint8         // of a new stream; see follower
	pause, quick    time.Duration // pacePause, quickPause
	most            func() int    // loops
	mu              sync.Mutex    // is taken after the readBy.mu of a socket, and before the mu of a loop
	loops           []*loop
	sweeper         *time.Timer // nil before the first seat
	sweeping, ended bool
}

// NewLoops returns Loops that start no goroutine before a stream suits them.
func NewLoops() *Loops {
	return &Loops{
		born: time.Now(), patience: 1, pause: pacePause, quick: quickPause,
		most: func() int { return runtime.GOMAXPROCS(0) },
	}
}

// Close ends the loops. Their streams continue, each on its own goroutine.
func (g *Loops) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
	if g.sweeper != nil {
		g.sweeper.Stop()
	}
	for _, l := range g.loops {
		l.close()
	}
}

// now is the time since the loops were made.
func (g *Loops) now() time.Duration { return time.Since(g.born) }

// seat gives f a seat, unless its deadline is near. f's readBy.mu is held.
func (g *Loops) seat(f *follower, deadline time.Time) bool {
	due := time.Duration(math.MaxInt64)
	if !deadline.IsZero() {
		due = deadline.Sub(g.born)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended || due < g.now()+2*sweepEvery {
		return false
	}
	l := g.pick()
	if l == nil {
		return false
	}
	g.beginSweeps() // also if f cannot join, because nothing else ends a loop without streams
	return l.join(f, due)
}

// beginSweeps has the loops looked at, while there are any. g.mu is held.
func (g *Loops) beginSweeps() {
	if g.sweeping {
		return
	}
	g.sweeping = true
	if g.sweeper == nil {
		g.sweeper = time.AfterFunc(sweepEvery, g.sweep)
	} else {
		g.sweeper.Reset(sweepEvery)
	}
}

// pick returns the first loop that has few streams, then a new one. If there can be no more, it returns the one with the
// fewest. A loop that is half busy or full is passed by, so the result may be nil. A loop that cannot be made, as
// descriptors lack, costs nothing but its gain. g.mu is held.
func (g *Loops) pick() *loop {
	g.loops = slices.DeleteFunc(g.loops, (*loop).ended)
	var least *loop
	fewest := mostSeats
	for _, l := range g.loops {
		n := l.streams()
		switch {
		case l.share >= 0.5:
		case n < fewSeats:
			return l
		case n < fewest:
			least, fewest = l, n
		}
	}
	if len(g.loops) >= g.most() {
		return least
	}
	l, err := newLoop(g)
	if err != nil {
		return least
	}
	g.loops = append(g.loops, l)
	return l
}

// sweep looks at all loops, ends those without streams, and comes again while a stream has a seat.
func (g *Loops) sweep() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return
	}
	now, seated := g.now(), 0
	g.loops = slices.DeleteFunc(g.loops, func(l *loop) bool {
		streams := l.look(now)
		if streams == 0 {
			l.close() // nothing of it stays behind while there are no streams
		}
		seated += streams
		return streams == 0
	})
	if g.sweeping = seated > 0; g.sweeping {
		g.sweeper.Reset(sweepEvery)
	}
}
