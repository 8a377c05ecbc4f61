package process

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// PoolWorker marks the goroutines of fasthttp's worker pools.
const PoolWorker = "fasthttp.(*workerPool).workerFunc"

// Census is what a process of the proxy holds while it has no requests.
type Census struct {
	Goroutines, FDs int
	Heap, RSS       float64 // bytes; heap after a collection
}

func (c Census) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, heap %.1f MiB, RSS %.1f MiB", c.Goroutines, c.FDs, c.Heap/(1<<20), c.RSS/(1<<20))
}

// TakeCensus asks the process of the proxy at that admin port, and the kernel.
func TakeCensus(ctx context.Context, pid int, admin string) (c Census, err error) {
	for range 2 { // the second collection drops a pool's content
		if _, err := Get(ctx, "http://"+admin+"/debug/pprof/heap?gc=1"); err != nil {
			return c, err
		}
	}
	dump, err := Get(ctx, "http://"+admin+"/debug/pprof/goroutine?debug=1")
	if err != nil {
		return c, err
	}
	if c.Goroutines, err = countGoroutines(string(dump)); err != nil {
		return c, err
	}
	series, err := Series(ctx, admin)
	if err != nil {
		return c, err
	}
	c.Heap = series["go_memstats_heap_alloc_bytes"]
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return c, fmt.Errorf("count the proxy's descriptors: %w", err)
	}
	c.FDs = len(fds)
	c.RSS, err = RSS(pid)
	return c, err
}

// Smallest keeps the lower figures.
func (c Census) Smallest(o Census) Census {
	return Census{min(c.Goroutines, o.Goroutines), min(c.FDs, o.FDs), min(c.Heap, o.Heap), min(c.RSS, o.RSS)}
}

// countGoroutines reads a goroutine profile with debug=1. It does not count fasthttp's idle
// workers, which stay for 10 to 20 s.
func countGoroutines(profile string) (n int, err error) {
	for record := range strings.SplitSeq(profile, "\n\n") {
		counts, frames, found := strings.Cut(record, " @ ")
		if !found {
			continue
		}
		if _, last, ok := strings.Cut(counts, "\n"); ok {
			counts = last // after the profile's title
		}
		k, err := strconv.Atoi(counts)
		if err != nil {
			return 0, fmt.Errorf("count the proxy's goroutines: %q", counts)
		}
		_, inner, _ := strings.Cut(frames, "\n")
		if inner, _, _ = strings.Cut(inner, "\n"); !strings.Contains(inner, PoolWorker) {
			n += k
		}
	}
	return n, nil
}
