package versus

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"xpyd/tools/process"
)

// busy is a look at who uses the CPUs that this run has: seconds so far.
type busy struct {
	at   time.Time
	cpus int
	all  float64 // of every process, and what the hypervisor took
	self float64 // of this process
}

func lookAround() (busy, error) {
	b := busy{at: time.Now()}
	mine, err := ownCPUs()
	if err != nil {
		return b, err
	}
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return b, fmt.Errorf("read the machine's CPU time: %w", err)
	}
	for line := range strings.Lines(string(stat)) {
		fields := strings.Fields(line)
		if !strings.HasPrefix(line, "cpu") || len(fields) < 9 {
			continue
		}
		cpu, err := strconv.Atoi(fields[0][len("cpu"):])
		if err != nil || !mine.IsSet(cpu) {
			continue // the sum of all, or another's
		}
		used, err := usedOf(fields)
		if err != nil {
			return b, err
		}
		b.cpus++
		b.all += used
	}
	if b.cpus == 0 {
		return b, errors.New("read the machine's CPU time: no CPU of this process is in /proc/stat")
	}
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		return b, fmt.Errorf("read the own CPU time: %w", err)
	}
	b.self = time.Duration(own.Utime.Nano() + own.Stime.Nano()).Seconds()
	return b, nil
}

// usedOf returns the seconds of a line of /proc/stat: user nice system idle iowait irq softirq steal.
func usedOf(fields []string) (sum float64, err error) {
	for i, text := range fields[1:9] {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, fmt.Errorf("read the machine's CPU time: %w", err)
		}
		if i != 3 && i != 4 {
			sum += n * process.ClockTick.Seconds()
		}
	}
	return sum, nil
}

// foreign returns the percentage of this run's CPUs that neither this process nor the proxy used
// between two looks: other programs, and interrupts that are charged to no process.
func foreign(from, to busy, proxy float64) float64 {
	whole := to.at.Sub(from.at).Seconds() * float64(from.cpus)
	return max(0, (to.all-from.all)-(to.self-from.self)-proxy) / whole * 100
}
