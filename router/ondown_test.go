package router

import (
	"testing"
	"time"
)

// An engine that restarts comes up, gives handles, and is only then read for the first time. Those handles
// are not gone, and those of before are.
func TestRestartIsBeforeTheEngineCameUp(t *testing.T) {
	r, clock := newRouterOf(t, 1, 1, nil)
	p := r.Snapshot().Backends(Prefill)[0]
	reading := EngineState{Running: -1, Waiting: -1, KVUsage: -1, Started: 100}
	p.SetEngine(reading, 0, time.Second)
	old := time.Now()
	var cut [2]bool
	var watches [2]Watch
	watches[0].OnGone(p, old, func() { cut[0] = true })
	p.force(Down)
	p.force(Up)
	cut[0] = false
	watches[0].OnGone(p, old, func() { cut[0] = true })
	fresh := time.Now()
	watches[1].OnGone(p, fresh, func() { cut[1] = true })
	reading.Started = 200
	clock.advance(time.Second)
	if !p.SetEngine(reading, 0, time.Second) {
		t.Fatal("no restart noticed")
	}
	if !p.RestartedAfter(old) || !cut[0] {
		t.Error("what the engine had before it went is not gone")
	}
	if p.RestartedAfter(fresh) || cut[1] {
		t.Error("what the engine has given since it came up is gone")
	}
	late := false
	watches[1].OnGone(p, old, func() { late = true })
	if !late {
		t.Error("a watch that begins after the restart was not told of what is gone")
	}
	for i := range watches {
		watches[i].Off()
	}
}

// While the watches of a restart are told, another one may begin with what the new engine has given.
func TestRestartTellsNoYoungerWatch(t *testing.T) {
	r, _ := newRouterOf(t, 1, 1, nil)
	p := r.Snapshot().Backends(Prefill)[0]
	var first, second Watch
	younger := false
	first.OnGone(p, time.Now(), func() {
		second.OnGone(p, time.Now(), func() { younger = true })
	})
	p.Restarted(time.Now())
	if younger {
		t.Error("a watch that began after the restart was told of it")
	}
	first.Off()
	second.Off()
}

// A function that panics neither keeps the lock from others nor keeps its owner waiting.
func TestWatchThatPanics(t *testing.T) {
	r, _ := newRouterOf(t, 1, 1, nil)
	p := r.Snapshot().Backends(Prefill)[0]
	var w, other Watch
	told := false
	other.On(p, func() { told = true })
	w.On(p, func() { panic("planted by a test") })
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was lost")
			}
		}()
		p.force(Down)
	}()
	w.Off()
	other.On(p, func() { told = true })
	if !told {
		t.Error("a later watch was not told that the backend is down")
	}
}
