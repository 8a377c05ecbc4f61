package engines

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"xpyd/engines/handoff"
	"xpyd/kvparams"
	"xpyd/router"
)

// The probe of readiness sends a decode engine no prompt alone that would wait for KV.
func TestSoundnessIsNotProbedOnWaitingDecode(t *testing.T) {
	for _, tc := range []struct {
		name, entry string
		others      []string // backends that are down
	}{
		{name: "nixl"}, {name: "moriio"},
		// Others may serve alone, and this one may not for that.
		{name: "moriio", entry: " connector=moriio", others: []string{"http://127.0.0.1:1"}},
	} {
		name := tc.name
		var asked atomic.Int32
		d := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if q.Method == http.MethodPost {
				asked.Add(1)
			}
			w.WriteHeader(http.StatusInternalServerError)
		}))
		defer d.Close()
		dialect, _ := kvparams.Lookup(name)
		rc := router.DefaultConfig()
		rc.Decode = router.MustEntries(append([]string{d.URL + tc.entry}, tc.others...)...)
		rt, err := router.New(rc, 0.25, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		guard := func(f func()) bool { f(); return true }
		usual := dialect
		if tc.entry != "" {
			usual, _ = kvparams.Lookup("nixl")
		}
		s := New(Config{
			Router: rt, Dialects: kvparams.Reuse{}.Dialects(usual), Dial: time.Minute, MaxIdle: time.Second, Answer: 1 << 20, DecodeOnly: true, MaxShare: 1,
			Handoffs: handoff.NewKeeper(handoff.Config{KV: handoff.DefaultKV(), Dialects: kvparams.Reuse{}.Dialects(usual), Guard: guard}),
			Silence:  func() time.Duration { return time.Minute }, AbortGrace: func() time.Duration { return time.Second },
			Guard: guard, WarmedUp: func(bool) {}, Polled: func(bool) {}, Ejected: func(_, _, _ string) {}, Forget: func(string) {},
		})
		s.Start()
		s.StopChecks()
		for b := rt.Snapshot().Backends(router.Decode)[0]; b.State() != router.Up; {
			b.Observe(true)
		}
		err = s.probeSoundness(context.Background())
		if safe := dialect.DecodeOnlySafe(); safe != (asked.Load() > 0) || safe == errors.Is(err, ErrUntold) {
			t.Errorf("%s: asked %d times: %v", name, asked.Load(), err)
		}
		s.Stop()
		s.Close()
	}
}
