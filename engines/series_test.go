package engines

import (
	"testing"
	"time"

	"xpyd/kvparams"
	"xpyd/router"
)

// The series of a backend that has left are dropped in the end, but not those of one that is back.
func TestSeriesOfABackendThatHasLeft(t *testing.T) {
	rc := router.DefaultConfig()
	rc.Decode = router.MustEntries("http://" + silentBackend(t))
	rt, err := router.New(rc, 0.25, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	nixl, _ := kvparams.Lookup("nixl")
	forgotten := make(chan string, 8)
	s := New(Config{
		Router: rt, Dialects: kvparams.Reuse{}.Dialects(nixl), Dial: time.Minute, MaxIdle: time.Second,
		Guard: func(f func()) bool { f(); return true }, Forget: func(url string) { forgotten <- url },
	})
	s.StopChecks() // a check would drop what it finds removed
	defer s.Close()
	b := rt.Snapshot().Backends(router.Decode)[0]
	s.keeps = time.Hour
	s.join(b)
	s.drop(b, s.get(b))
	s.join(b)
	s.forget(b.URL) // the timer has run out just as it came back
	if len(forgotten) > 0 {
		t.Errorf("%s is forgotten, and back", <-forgotten)
	}
	s.keeps = time.Nanosecond
	s.drop(b, s.get(b))
	if url := <-forgotten; url != b.URL {
		t.Errorf("%s is forgotten", url)
	}
}
