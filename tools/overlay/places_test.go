package overlay

import (
	"context"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// onePlace has room for one process that computes, and for another that waits.
func onePlace() *Places {
	p := NewPlaces()
	p.computing, p.running = make(chan struct{}, 1), make(chan struct{}, 2)
	return p
}

func TestAProcessThatWaitsGivesItsPlaceBack(t *testing.T) {
	p := onePlace()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, _, err := p.Run(ctx, exec.CommandContext(ctx, "sleep", "3600"))
		ended <- err
	}()
	for range 3 { // whether before or after the one that waits
		if text, _, err := p.Run(t.Context(), exec.CommandContext(t.Context(), "echo", "done")); err != nil || string(text) != "done\n" {
			t.Errorf("%q, %v", text, err)
		}
	}
	select {
	case err := <-ended:
		t.Errorf("the process that waits has ended: %v", err)
	default:
	}
	cancel()
	if <-ended == nil {
		t.Error("the process that waits has ended well")
	}
	if len(p.computing) != 0 || len(p.running) != 0 {
		t.Errorf("%d and %d places are taken in the end", len(p.computing), len(p.running))
	}
}

func TestAProcessThatComputesKeepsItsPlace(t *testing.T) {
	for name, script := range map[string]string{"itself": "while :; do :; done", "in a child": "sh -c 'while :; do :; done'; :"} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			pid := cmd.Process.Pid
			defer func() {
				_ = syscall.Kill(-pid, syscall.SIGKILL)
				_ = cmd.Wait()
			}()
			for first := used(pid); used(pid) < first+3; time.Sleep(10 * time.Millisecond) {
				if used(pid) < 0 {
					t.Fatal("the system does not tell what a process has used")
				}
			}
		})
	}
}

func TestACommandThatIsNotThereLeavesNoPlaceTaken(t *testing.T) {
	p := onePlace()
	for range 3 {
		if _, _, err := p.Run(t.Context(), exec.CommandContext(t.Context(), "/no/such/program")); err == nil {
			t.Error("it ran")
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	p.computing <- struct{}{}
	if _, _, err := p.Run(over, exec.CommandContext(t.Context(), "true")); err == nil || len(p.running) != 0 {
		t.Errorf("%v, %d places are taken", err, len(p.running))
	}
}
