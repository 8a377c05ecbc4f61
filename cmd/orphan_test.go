package cmd

import (
	"syscall"
	"testing"
	"time"

	"xpyd/cmd/daemon"
)

// If a process is killed while its successor starts, no other process serves. So the successor takes
// over and does not wait for its engines first.
func TestSuccessorOutlivesAKilledPredecessor(t *testing.T) {
	t.Parallel()
	engP, engD := pairOfEngines(t, -1)
	p := serveProcess(t, urls(engP), urls(engD))
	first := p.serving(1)
	engP.Freeze() // the successor does not find it up, and waits
	engD.Freeze()
	p.signal(first, syscall.SIGUSR2)
	p.await(1, "USR2: started a successor")
	p.signal(first, syscall.SIGKILL)
	began := time.Now()
	second := p.serving(2)
	if took := time.Since(began); took > daemon.ReadyTime*3/4 {
		t.Errorf("it began to serve %s after the other one's end", took)
	}
	p.await(1, "the process before this one ended before the hand-over; this one serves")
	engP.Thaw()
	engD.Thaw()
	p.awaitReady()
	c := &client{addr: p.addr}
	if _, err := c.ask("to the one that is left", 3, true); err != nil {
		t.Error(err)
	}
	p.signal(second, syscall.SIGTERM)
	p.gone()
}

// At whatever moment the predecessor is killed, one of the two goes on serving.
func TestPredecessorKilledAtAnyMoment(t *testing.T) {
	for _, after := range []time.Duration{0, time.Millisecond, 3 * time.Millisecond, 6 * time.Millisecond, 10 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			t.Parallel()
			engP, engD := pairOfEngines(t, -1)
			p := serveProcess(t, urls(engP), urls(engD), "--log-flush", "0") // each line is written when it happens
			first := p.serving(1)
			p.signal(first, syscall.SIGUSR2)
			p.await(1, "USR2: started a successor")
			time.Sleep(after)                        // this moment is what the case varies
			_ = syscall.Kill(first, syscall.SIGKILL) // it may have handed over and ended
			second := p.serving(2)
			p.awaitReady()
			c := &client{addr: p.addr}
			if _, err := c.ask("to the one that is left", 3, false); err != nil {
				t.Error(err)
			}
			p.signal(second, syscall.SIGTERM)
			p.gone()
		})
	}
}
