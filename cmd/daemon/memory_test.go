package daemon

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// lent stands for a proxy whose requests hold so many bytes.
type lent struct{ bytes, dropped int64 }

func (l *lent) Lent() int64 { return l.bytes }
func (l *lent) DropIdle()   { l.dropped++ }

// What a burst has held goes back to the system once the process is idle, not before, and also if requests that took
// their time held it meanwhile.
func TestIdleMemoryGoesBack(t *testing.T) {
	debug.FreeOSMemory()
	p := &lent{}
	r := newRest(p)
	before := r.spare
	burst := make([]byte, 256<<20)
	for i := range burst {
		burst[i] = 1
	}
	p.bytes = int64(len(burst))
	calm := func() {
		r.look() // now no collection is new, unless other tests need one
		r.look()
	}
	if calm(); p.dropped != 0 {
		t.Fatal("memory was given back that requests hold")
	}
	runtime.KeepAlive(burst)
	p.bytes, r.cycles = 0, 0 // a collection ran since the last look
	if r.look(); p.dropped != 0 {
		t.Fatal("a busy process gave memory back")
	}
	for deadline := time.Now().Add(10 * time.Second); p.dropped == 0 && time.Now().Before(deadline); {
		calm()
	}
	if spare, _ := r.read(); p.dropped != 1 || spare > before+restFrom/2 {
		t.Errorf("an idle process holds %d MiB, and held %d before a burst; idle buffers were dropped %d times", spare>>20, before>>20, p.dropped)
	}
	if calm(); p.dropped != 1 {
		t.Error("memory was given back again without a load between")
	}
}
