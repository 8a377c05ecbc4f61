package churn

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"xpyd/tools/process"
)

// census is what the process holds, except what pools keep on purpose. The engines' side-channel
// connections stay open forever, like those of real engines. fasthttp keeps an idle worker for 10
// to 20 s.
type census struct {
	goroutines int
	fds        int
	byFunc     map[string]int // goroutines by the function they were started with

	sideReaders, idleWorkers int // goroutines of pools, which are not counted above
}

// sideReader marks the goroutines that read the engines' side-channel connections.
const sideReader = "xpyd/sim.(*core).serveSide"

func takeCensus() (census, error) {
	c := census{byFunc: map[string]int{}}
	for _, frames := range goroutineStacks() {
		switch {
		case slices.Contains(frames, sideReader):
			c.sideReaders++
		case len(frames) > 0 && strings.HasSuffix(frames[0], process.PoolWorker):
			c.idleWorkers++
		default:
			c.goroutines++
			c.byFunc[started(frames)]++
		}
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return c, fmt.Errorf("count descriptors: %w", err)
	}
	c.fds = len(fds) - 2*c.sideReaders // both ends of such a connection belong to this process
	return c, nil
}

// goroutineStacks returns each goroutine's functions, innermost first, without the
// runtime's own.
func goroutineStacks() [][]string {
	records := make([]runtime.StackRecord, runtime.NumGoroutine()+64)
	n, ok := runtime.GoroutineProfile(records)
	for !ok {
		records = make([]runtime.StackRecord, 2*n)
		n, ok = runtime.GoroutineProfile(records)
	}
	all := make([][]string, 0, n)
	for i := range n {
		var names []string
		frames := runtime.CallersFrames(records[i].Stack())
		for more := true; more; {
			var f runtime.Frame
			f, more = frames.Next()
			if f.Function != "" && !strings.HasPrefix(f.Function, "runtime.") {
				names = append(names, f.Function)
			}
		}
		all = append(all, names)
	}
	return all
}

func started(frames []string) string {
	if len(frames) == 0 {
		return "runtime"
	}
	return frames[len(frames)-1]
}

// within reports whether c holds no more than the baseline.
func (c census) within(base census) bool {
	return c.goroutines <= base.goroutines && c.fds <= base.fds
}

// smallest keeps the lower figures of two censuses.
func (c census) smallest(other census) census {
	if other.goroutines < c.goroutines {
		c.goroutines, c.byFunc = other.goroutines, other.byFunc
	}
	c.fds = min(c.fds, other.fds)
	return c
}

// grown names the functions that run in more goroutines than in the baseline.
func (c census) grown(base census) string {
	var all []string
	for name, n := range c.byFunc {
		if more := n - base.byFunc[name]; more > 0 {
			all = append(all, fmt.Sprintf("%d of %s", more, name))
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// quietest takes the smallest census of a span.
func quietest(span time.Duration) (census, error) {
	least, err := takeCensus()
	for end := time.Now().Add(span); err == nil && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		var next census
		next, err = takeCensus()
		least = least.smallest(next)
	}
	return least, err
}

// settle waits for at most bound until the process holds no more than the baseline. Otherwise it
// returns the smallest census that it has seen.
func settle(base census, bound time.Duration) (census, error) {
	least, err := takeCensus()
	for end := time.Now().Add(bound); err == nil && !least.within(base) && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		var now census
		if now, err = takeCensus(); now.within(base) {
			return now, err
		}
		least = least.smallest(now)
	}
	return least, err
}
