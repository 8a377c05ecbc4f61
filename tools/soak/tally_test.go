package soak

import (
	"testing"
	"time"
)

// A burst of requests fails and is retried while the next ones wait. A second later there are many
// legs for few new requests. Streams that run are no excuse.
func TestAmplificationCountsThoseThatWait(t *testing.T) {
	t0 := time.Now()
	tally := newCounts()
	tally.start(newPlan(t0, time.Hour))
	in := func(second_, requests, heard, ended, prefills, lines int) {
		tally.in(t0.Add(time.Duration(second_)*time.Second), func(s *second) {
			s.requests, s.heard, s.ended, s.prefills, s.lines = requests, heard, ended, prefills, lines
		})
	}
	for i := range 30 {
		in(i, 20, 20, 20, 20, 20)
	}
	in(0, 20, 20, 0, 20, 20) // 20 streams run on
	in(10, 400, 100, 100, 400, 500)
	in(11, 20, 320, 320, 120, 500)
	look := func(waiting bool) amplified {
		return tally.amplification(t0, t0.Add(30*time.Second), waiting, func(s second) int { return s.prefills })
	}
	if a := look(false); a.at != 11 || a.requests != 200 || a.legs != 300 {
		t.Errorf("of those asked: %v, want 300 for 200 from 11 s on", a)
	}
	if a := look(true); a.at != 2 || a.requests != 580 || a.legs != 680 {
		t.Errorf("of those that wait, too: %v, want 680 for 580 from 2 s on", a)
	}
	if all, over := tally.lines(); all != 28*20+1000 || over != 500-2*20-320 {
		t.Errorf("%d lines, %d over, want %d and %d", all, over, 28*20+1000, 140)
	}
}
