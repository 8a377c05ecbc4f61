package router

import (
	"fmt"
	"strings"
	"testing"
)

// counted writes the counts of the pairs, as p1d2:ok/failed.
func counted(r *Router) string {
	var all []string
	for _, x := range r.Pairs().Transfers() {
		who := "other"
		if x.Prefill != nil {
			who = name(x.Prefill) + name(x.Decode)
		}
		if x.Banned {
			who += " banned"
		}
		all = append(all, fmt.Sprintf("%s:%d/%d", who, x.OK, x.Failed))
	}
	return strings.Join(all, " ")
}

func TestTransfersAreCountedByPair(t *testing.T) {
	r, clock := newRouterOf(t, 2, 2, nil)
	script(t, r, clock, "p1d1+ p1d1+ p2d1+ p1d2 p1d2 p1d2")
	if got, want := counted(r), "p1d1:2/0 p1d2 banned:0/3 p2d1:1/0"; got != want {
		t.Fatalf("%s, want %s", got, want)
	}
	left := Pair{r.Snapshot().Backends(Prefill)[0], r.Snapshot().Backends(Decode)[0]}
	cfg := DefaultConfig()
	cfg.Prefill, cfg.Decode = urls("p", 2)[1:], urls("d", 2)
	if _, err := r.Reload(cfg, 1, nil); err != nil {
		t.Fatal(err)
	}
	r.Pairs().Worked(left) // its decode ran on over the reload
	if got, want := counted(r), "p2d1:1/0 other:1/0"; got != want {
		t.Errorf("after a reload %s, want %s", got, want)
	}
}

func TestPairsAreBounded(t *testing.T) {
	r, _ := newRouterOf(t, 40, 40, nil)
	s := r.Snapshot()
	for range 2 {
		for _, p := range s.Backends(Prefill) {
			for _, d := range s.Backends(Decode) {
				s.Pairs().Worked(Pair{p, d})
			}
		}
	}
	all := r.Pairs().Transfers()
	if last := all[len(all)-1]; len(all) != maxCounted+1 || last.Prefill != nil || last.OK != 2*(1600-maxCounted) {
		t.Errorf("%d entries, the last of %+v", len(all), last)
	}
}

// A pair that is not counted one by one costs a request nothing. It once copied all counts, under the
// router's lock.
func TestUncountedPairsCopyNothing(t *testing.T) {
	r, _ := newRouterOf(t, 40, 40, nil)
	s := r.Snapshot()
	for _, p := range s.Backends(Prefill) {
		for _, d := range s.Backends(Decode) {
			s.Pairs().Worked(Pair{p, d})
		}
	}
	last := Pair{s.Backends(Prefill)[39], s.Backends(Decode)[39]}
	if n := testing.AllocsPerRun(100, func() { s.Pairs().counted(last) }); n > 0 {
		t.Errorf("%v allocations for a pair beyond the first %d, want none", n, maxCounted)
	}
}
