package engines

import (
	"testing"
	"time"

	"xpyd/router"
)

// An engine that has said another number of ranks before has restarted. Whoever waits for a rank that it has no more is
// told. If xpyd has only learned the number, requests that the engine has go on.
func TestRanksThatLeaveAreDown(t *testing.T) {
	rc := router.DefaultConfig()
	rc.Decode = router.MustEntries("http://127.0.0.1:1@0", "http://127.0.0.1:1@1", "http://127.0.0.1:2")
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
	restarted := false
	tell := tellRanks(func(string, int) (bool, error) {
		_, err := rt.Reload(rc, 0.25, func(router.Change) {})
		return restarted, err
	})
	steps := []struct {
		decode    []string
		restarted bool
		told      [3]bool
	}{
		{[]string{"http://127.0.0.1:1@1", "http://127.0.0.1:2"}, false, [3]bool{}}, // xpyd has learned something
		{[]string{"http://127.0.0.1:2"}, true, [3]bool{false, true, false}},
		{[]string{"http://127.0.0.1:2"}, true, [3]bool{false, true, false}},
	}
	for i, step := range steps {
		rc.Decode, restarted = router.MustEntries(step.decode...), step.restarted
		if err := s.takeRanks(tell, "http://127.0.0.1:1", 1); err != nil {
			t.Fatal(err)
		}
		if told != step.told {
			t.Errorf("after step %d, told are those who watch %v, want %v", i, told, step.told)
		}
	}
}
