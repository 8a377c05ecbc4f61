package main

import (
	"os"
	"os/exec"
	"syscall"
)

// netAdmin reports whether this process can make a user and a network namespace, in
// which it has CAP_NET_ADMIN; it tries, as kernels and containers forbid it in many ways.
func netAdmin() bool {
	cmd := exec.Command("/proc/self/exe", "-h") // any program will do
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	if cmd.Start() != nil {
		return false
	}
	_ = cmd.Wait() // that it started is the answer
	return true
}
