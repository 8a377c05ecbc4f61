package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ClockTick is the unit of CPU times in /proc, 100 a second on every Linux.
const ClockTick = 10 * time.Millisecond

// Usage is what a process and all its descendants use.
type Usage struct {
	CPU float64 // seconds of user and system time so far, all threads
	RSS float64 // bytes
}

// Usage sums up over the processes that are there now.
func (p *Process) Usage() (Usage, error) {
	var sum Usage
	pids, err := Descendants(p.PID())
	if err != nil {
		return sum, err
	}
	for _, pid := range pids {
		cpu, err := CPU(pid)
		if err != nil {
			return sum, err
		}
		rss, err := RSS(pid)
		if err != nil {
			return sum, err
		}
		sum.CPU += cpu
		sum.RSS += rss
	}
	return sum, nil
}

// Descendants lists a process and those below it.
func Descendants(root int) ([]int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	children := map[int][]int{}
	for _, path := range stats {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		fields, err := statFields(pid)
		if err != nil {
			continue // it has ended since
		}
		parent, err := strconv.Atoi(fields[1])
		if err != nil {
			return nil, fmt.Errorf("read the parent of process %d: %w", pid, err)
		}
		children[parent] = append(children[parent], pid)
	}
	all := []int{root}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all, nil
}

// statFields are the fields of /proc/PID/stat from the third on. The second is the name in
// parentheses, which may hold spaces.
func statFields(pid int) ([]string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, fmt.Errorf("read process %d: %w", pid, err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return nil, fmt.Errorf("read process %d: %d fields", pid, len(fields))
	}
	return fields, nil
}

// CPU is the seconds of user and system time that a process has used so far: all its threads, those
// that have ended too, and none of its children. It is read from the process's clock, in ns, because
// /proc/PID/stat counts in hundredths of a second, which is 4 % of what 64 streams use in a second.
func CPU(pid int) (float64, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(processClock(pid), &t); err != nil {
		return 0, fmt.Errorf("read the CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()).Seconds(), nil
}

// processClock is clock_getcpuclockid(3): the kernel's number for the clock of a process.
func processClock(pid int) int32 {
	const scheduled = 2 // CPUCLOCK_SCHED: user and system time as the scheduler counts it
	return int32(^pid)<<3 | scheduled
}

// RSS is the resident memory of a process, in bytes.
func RSS(pid int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0, fmt.Errorf("read the memory of process %d: %q", pid, b)
	}
	pages, err := strconv.Atoi(fields[1])
	return float64(pages * os.Getpagesize()), err
}
