package versus

import (
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// ownCPUs are those that the calling thread may run on. All threads of a run have the same.
func ownCPUs() (unix.CPUSet, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return set, fmt.Errorf("ask for the CPUs of this process: %w", err)
	}
	return set, nil
}

// firstOf returns the first n CPUs of a set, or all if it has fewer.
func firstOf(set unix.CPUSet, n int) unix.CPUSet {
	var first unix.CPUSet
	for cpu := 0; first.Count() < min(n, set.Count()); cpu++ {
		if set.IsSet(cpu) {
			first.Set(cpu)
		}
	}
	return first
}

// confine moves all threads of this process to CPUs. What it starts from now on inherits them, so a
// run on 4 of 16 CPUs is like one on a machine of 4.
func confine(to unix.CPUSet) error {
	if now, err := ownCPUs(); err != nil || now == to {
		return err
	}
	runtime.GOMAXPROCS(to.Count())
	for range 2 { // a thread that was born meanwhile may have missed the first pass
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("list the threads of this process: %w", err)
		}
		for _, t := range threads {
			tid, err := strconv.Atoi(t.Name())
			if err != nil {
				continue
			}
			if err := unix.SchedSetaffinity(tid, &to); err != nil && err != unix.ESRCH {
				return fmt.Errorf("move thread %d to %d CPUs: %w", tid, to.Count(), err)
			}
		}
	}
	return nil
}
