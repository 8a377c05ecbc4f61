package daemon

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"xpyd/cmd/config"
)

// limitMemory tells Go's collector how much memory the process may have, so that it works harder instead of being
// killed. GOMEMLIMIT, which Go reads itself, goes before.
func limitMemory(cfg config.Config) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	limit := cfg.SoftLimit()
	if limit == 0 {
		limit = math.MaxInt64
	}
	debug.SetMemoryLimit(limit)
}

const (
	restEvery = 10 * time.Second // how often the memory is looked at
	restFrom  = 64 << 20         // how much more than after the last time has to be spare
)

// rest gives memory back to the system after a load. Go itself collects what a burst has left only when two minutes have
// passed without a collection, and gives most of it back long after.
type rest struct {
	proxy  lender
	sample []metrics.Sample
	spare  int64  // what the process held beyond what it had lent, when it last gave memory back
	cycles uint64 // of the collector, at the last look
}

// lender is the part of the proxy that holds bodies and answers.
type lender interface {
	Lent() int64
	DropIdle()
}

func newRest(proxy lender) *rest {
	r := &rest{proxy: proxy, sample: []metrics.Sample{
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}, {Name: "/gc/cycles/total:gc-cycles"},
	}}
	r.spare, r.cycles = r.read()
	return r
}

// run looks until ctx ends.
func (r *rest) run(ctx context.Context) {
	tick := time.NewTicker(restEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.look()
		case <-ctx.Done():
			return
		}
	}
}

// look gives memory back if much more is spare than after the last time, and so little was allocated since the last look
// that no collection ran. Then one more is in nobody's way.
func (r *rest) look() {
	spare, cycles := r.read()
	calm := cycles == r.cycles
	r.cycles = cycles
	if !calm || spare < r.spare+restFrom {
		return
	}
	r.proxy.DropIdle()
	debug.FreeOSMemory()
	r.spare, r.cycles = r.read()
}

// read returns how many bytes the process holds beyond what requests hold, and how many collections there were.
func (r *rest) read() (spare int64, cycles uint64) {
	metrics.Read(r.sample)
	held := r.sample[0].Value.Uint64() - r.sample[1].Value.Uint64()
	return int64(held) - r.proxy.Lent(), r.sample[2].Value.Uint64()
}
