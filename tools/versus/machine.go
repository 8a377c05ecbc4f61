package versus

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"xpyd/tools/process"
)

// busy is a look at who uses the machine: seconds of CPU so far.
type busy struct {
	at   time.Time
	all  float64 // of every process, and what the hypervisor took
	self float64 // of this process
}

func lookAround() (busy, error) {
	b := busy{at: time.Now()}
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return b, fmt.Errorf("read the machine's CPU time: %w", err)
	}
	fields := strings.Fields(string(stat[:max(0, bytes.IndexByte(stat, '\n'))]))
	if len(fields) < 9 {
		return b, errors.New("read the machine's CPU time: too few fields")
	}
	// user nice system idle iowait irq softirq steal
	for i, text := range fields[1:9] {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return b, fmt.Errorf("read the machine's CPU time: %w", err)
		}
		if i != 3 && i != 4 {
			b.all += n * process.ClockTick.Seconds()
		}
	}
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		return b, fmt.Errorf("read the own CPU time: %w", err)
	}
	b.self = time.Duration(own.Utime.Nano() + own.Stime.Nano()).Seconds()
	return b, nil
}

// foreign returns the percentage of the machine that neither this process nor the proxy used
// between two looks: other programs, and interrupts that are charged to no process.
func foreign(from, to busy, proxy float64) float64 {
	whole := to.at.Sub(from.at).Seconds() * float64(runtime.NumCPU())
	return max(0, (to.all-from.all)-(to.self-from.self)-proxy) / whole * 100
}
