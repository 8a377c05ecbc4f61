package report

import (
	"bytes"
	"os"
	"runtime"
	"strings"
)

// Machine is the machine of a run.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
}

// thisMachine describes the machine that this program runs on.
func thisMachine() Machine {
	m := Machine{CPU: "unknown CPU", Cores: runtime.NumCPU(), Kernel: "unknown kernel", Go: runtime.Version()}
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		cores := 0 // of the machine, also if this process may run on some of them alone
		for line := range bytes.Lines(info) {
			switch name, value, _ := strings.Cut(string(line), ":"); strings.TrimSpace(name) {
			case "model name":
				m.CPU = strings.TrimSpace(value)
			case "processor":
				cores++
			}
		}
		m.Cores = max(m.Cores, cores)
	}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = "Linux " + strings.TrimSpace(string(release))
	}
	return m
}
