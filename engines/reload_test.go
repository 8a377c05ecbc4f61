package engines

import (
	"testing"
	"time"

	"github.com/rs/zerolog"

	"xpyd/engines/handoff"
	"xpyd/kvparams"
	"xpyd/router"
)

// A panic in what follows from new pools does not reach the goroutine that reloads, where it would end the process.
func TestReloadSurvivesWhatFollows(t *testing.T) {
	rc := router.DefaultConfig()
	rc.Prefill, rc.Decode = router.MustEntries("http://127.0.0.1:1"), router.MustEntries("http://127.0.0.1:2")
	rt, err := router.New(rc, 1, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	nixl, _ := kvparams.Lookup("nixl")
	var caught any
	guard := func(f func()) bool {
		defer func() { caught = recover() }()
		f()
		return true
	}
	s := New(Config{
		Router: rt, Dialects: kvparams.Reuse{}.Dialects(nixl), Dial: time.Minute, MaxIdle: time.Second, DecodeOnly: true, MaxShare: 1,
		Handoffs: handoff.NewKeeper(handoff.Config{KV: handoff.DefaultKV(), Dialects: kvparams.Reuse{}.Dialects(nixl), Guard: guard}),
		Guard:    guard,
		Log:      zerolog.New(nil).Hook(zerolog.HookFunc(func(*zerolog.Event, zerolog.Level, string) { panic("no log") })),
	})
	rc.Prefill[0].State = router.Drain
	if err := s.Reload(rc); err != nil || caught != "no log" {
		t.Errorf("%v, caught %v", err, caught)
	}
	if got := rt.Snapshot().Backends(router.Prefill); len(got) != 0 {
		t.Error("the new pools are not in force")
	}
}
