package engines

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"xpyd/kvparams"
	"xpyd/router"
)

// A check of one engine looks at the release of no other one, and at a release that is known not again.
func TestUnprovenReleasesAreLookedUpOnce(t *testing.T) {
	rc := router.DefaultConfig()
	rc.Prefill, rc.Decode = router.MustEntries("http://"+silentBackend(t)), router.MustEntries("http://"+silentBackend(t), "http://"+silentBackend(t))
	rt, err := router.New(rc, 0.25, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	nixl, _ := kvparams.Lookup("nixl")
	var log bytes.Buffer
	s := New(Config{
		Router: rt, Dialects: kvparams.Reuse{}.Dialects(nixl), Dial: time.Minute, MaxIdle: time.Second,
		Guard: func(f func()) bool { f(); return true }, Log: zerolog.New(&log),
	})
	s.StopChecks()
	defer s.Close()
	decode := rt.Snapshot().Backends(router.Decode)
	for i, b := range decode {
		b.SetVersion(fmt.Sprintf("0.9%d.1", i))
	}
	for i, b := range decode {
		if noteUnproven(s, b); strings.Count(log.String(), "has not run with 0.9") != i+1 {
			t.Errorf("after check %d: %s", i, &log)
		}
	}
	if n := testing.AllocsPerRun(100, func() { noteUnproven(s, decode[0]) }); n > 0 || strings.Count(log.String(), "\n") != 2 {
		t.Errorf("%g allocations, %s", n, &log)
	}
}
