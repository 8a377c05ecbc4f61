package router

import (
	"testing"
	"time"
)

// loaded is the state of an engine whose metrics have only its requests.
func loaded(running, waiting int64) EngineState {
	e := UnknownEngine()
	e.Running, e.Waiting = running, waiting
	return e
}

func TestElsewhere(t *testing.T) {
	for _, tc := range []struct {
		name  string
		state EngineState
		own   int64
		age   time.Duration // of a reading that counts for 3 s
		want  float64
	}{
		{"all of them", loaded(5, 3), 0, 0, 8},
		{"but its own", loaded(5, 3), 2, 0, 6},
		{"more of its own than there are", loaded(1, 0), 4, 0, 0},
		{"for one interval", loaded(5, 3), 0, time.Second, 8},
		{"then less", loaded(5, 3), 0, 2 * time.Second, 4},
		{"and less", loaded(5, 3), 0, 2500 * time.Millisecond, 2},
		{"then nothing", loaded(5, 3), 0, 3 * time.Second, 0},
		{"for good", loaded(5, 3), 0, time.Hour, 0},
		{"running not known", loaded(-1, 3), 0, 0, 0},
		{"waiting not known", loaded(5, -1), 0, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, clock := newTestRouter(t, "round_robin", nil, three[:1])
			b := s.Backends(Decode)[0]
			if got := b.External(); got != 0 {
				t.Errorf("%v before anything was read", got)
			}
			b.SetEngine(tc.state, tc.own, 3*time.Second)
			clock.advance(tc.age)
			if got := b.External(); got != tc.want {
				t.Errorf("%v elsewhere, want %v", got, tc.want)
			}
			if n := testing.AllocsPerRun(100, func() { b.externalAt(b.router.now()) }); n != 0 {
				t.Errorf("%v allocations", n)
			}
		})
	}
}

func TestEngineStateCountsForItsTime(t *testing.T) {
	s, clock := newTestRouter(t, "round_robin", nil, three[:1])
	b := s.Backends(Decode)[0]
	if _, ok := b.EngineAge(); ok || b.Engine() != nil {
		t.Error("a state before anything was read")
	}
	b.SetEngine(loaded(1, 0), 0, 3*time.Second)
	clock.advance(3*time.Second - 1)
	if e := b.Engine(); e == nil || e.Running != 1 || e.KVUsage != -1 {
		t.Errorf("%+v at the end of its time", e)
	}
	b.SetEngine(loaded(2, 0), 0, 3*time.Second)
	clock.advance(3*time.Second - 1)
	if e := b.Engine(); e == nil || e.Running != 2 {
		t.Errorf("%+v at the end of the later one's time", e)
	}
	clock.advance(1)
	if age, ok := b.EngineAge(); b.Engine() != nil || !ok || age != 3*time.Second {
		t.Errorf("%+v after its time, age %v", b.Engine(), age)
	}
}

func TestEngineRestart(t *testing.T) {
	state := func(started float64, prompt, generated, queries int64) EngineState {
		e := UnknownEngine()
		e.Started, e.PromptTokens, e.GenerationTokens, e.PrefixQueries = started, prompt, generated, queries
		return e
	}
	for _, tc := range []struct {
		name    string
		was, is EngineState
		want    bool
	}{
		{"it runs on", state(100, 5, 5, 5), state(100, 6, 5, 9), false},
		{"started anew", state(100, 5, 5, 5), state(101, 5, 5, 5), true},
		{"no start told, counters grow", state(-1, 5, 5, 5), state(-1, 5, 6, 5), false},
		{"no start told, prompts fell", state(-1, 5, 5, 5), state(-1, 4, 6, 6), true},
		{"no start told, tokens fell", state(-1, 5, 5, 5), state(-1, 6, 0, 6), true},
		{"no start told, queries fell", state(-1, 5, 5, 5), state(-1, 6, 6, 1), true},
		{"the start told of later", state(-1, 5, 5, 5), state(100, 5, 5, 5), false},
		{"nothing told any more", state(-1, 5, 5, 5), state(-1, -1, -1, -1), false},
		{"nothing told before", state(-1, -1, -1, -1), state(-1, 0, 0, 0), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, clock := newTestRouter(t, "round_robin", nil, three[:1])
			b := s.Backends(Decode)[0]
			if b.SetEngine(tc.was, 0, time.Second) {
				t.Error("a restart at the first reading")
			}
			clock.advance(time.Minute) // however long it was away
			if got := b.SetEngine(tc.is, 0, time.Second); got != tc.want || (b.Engine().Restarts == 1) != tc.want {
				t.Errorf("restarted: %v, %d restarts, want %v", got, b.Engine().Restarts, tc.want)
			}
			b.SetEngine(tc.is, 0, time.Second)
			if got := b.Engine().Restarts == 1; got != tc.want {
				t.Errorf("%d restarts after one more reading", b.Engine().Restarts)
			}
		})
	}
}

func TestKVTokens(t *testing.T) {
	e := UnknownEngine()
	if n := e.KVTokens(); n != -1 {
		t.Errorf("%d tokens of an unknown engine", n)
	}
	e.BlockSize = 16
	if n := e.KVTokens(); n != -1 {
		t.Errorf("%d tokens without a number of blocks", n)
	}
	e.Blocks = 100
	if n := e.KVTokens(); n != 1600 {
		t.Errorf("%d tokens, want 1600", n)
	}
}
