package router

import (
	"math"
	"testing"
	"time"
)

// Speeds compare the engines of one role, model, release and connector, whatever they share a price with.
func TestSpeeds(t *testing.T) {
	r, _ := newRouterOf(t, 3, 2, nil)
	s := r.Snapshot()
	p, d := s.Backends(Prefill), s.Backends(Decode)
	for _, b := range append(append([]*Backend{}, p...), d...) {
		b.force(Up)
	}
	ratio := func(role Role, i int) float64 { return Speeds(s, role)[i].Ratio }
	prefill := func(b *Backend, tokens int, perToken time.Duration) {
		took := time.Duration(tokens) * perToken
		r.Prefilled(0, tokens, took)
		Paced(b, WorkPrefill, tokens, took)
	}
	if ratio(Prefill, 0) != 0 {
		t.Error("a speed before the first leg")
	}
	for range 10 {
		prefill(p[0], 1000, 50*time.Microsecond)
		prefill(p[1], 3000, 50*time.Microsecond)
		prefill(p[2], 2000, 650*time.Microsecond)
	}
	for i, want := range []float64{1, 1, 1 / 13.0} {
		if got := ratio(Prefill, i); math.Abs(got-want) > 0.35*want {
			t.Errorf("prefill engine %d has %.3f of its peers' speed, want %.3f", i, got, want)
		}
	}
	for range 10 {
		Paced(d[0], WorkStep, 100, 1500*time.Millisecond)
		Paced(d[1], WorkStep, 50, 7500*time.Millisecond)
		Paced(d[0], WorkTransfer, 1000, time.Millisecond)
		Paced(d[1], WorkTransfer, 1000, 20*time.Millisecond)
	}
	slow := Speeds(s, Decode)[1]
	if slow.Work != "decode" || math.Abs(slow.Ratio-0.1) > 0.01 || slow.Own != 150*time.Millisecond || (slow.Peers-15*time.Millisecond).Abs() > time.Millisecond || !slow.Alike {
		t.Errorf("the slow decode engine: %+v", slow)
	}
	if fast := Speeds(s, Decode)[0]; math.Abs(fast.Ratio-1) > 0.01 {
		t.Errorf("the fast one, whose transfers are the quicker ones: %+v", fast)
	}
	d[0].SetVersion("another")
	if ratio(Decode, 1) != 0 {
		t.Error("an engine of another release is a peer")
	}
}
