package engines

import (
	"testing"
	"time"

	"xpyd/router"
)

// An engine that comes back with fewer ranks has restarted. Whoever waits for a rank that it has no more is told, as
// nobody checks or polls that rank again.
func TestRanksThatLeaveAreDown(t *testing.T) {
	rc := router.DefaultConfig()
	rc.Decode = []string{"http://127.0.0.1:1@0", "http://127.0.0.1:1@1", "http://127.0.0.1:2"}
	rc.Found = []string{"http://127.0.0.1:1"}
	rt, err := router.New(rc, 0.25, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	ranks := rt.Snapshot().Backends(router.Decode)
	var told [3]bool
	var watches [3]router.Watch
	for i := range watches {
		watches[i].On(ranks[i], func() { told[i] = true })
		defer watches[i].Off()
	}
	s := &Set{cfg: Config{Router: rt}}
	tell := tellRanks(func(string, int) error {
		rc.Decode = []string{"http://127.0.0.1:1@0", "http://127.0.0.1:2"}
		_, err := rt.Reload(rc, 0.25, func(router.Change) {})
		return err
	})
	for range 2 {
		if err := s.takeRanks(tell, "http://127.0.0.1:1", 1); err != nil {
			t.Fatal(err)
		}
	}
	if told != [3]bool{false, true, false} {
		t.Errorf("told are %v, want only those who watch rank 1", told)
	}
}
