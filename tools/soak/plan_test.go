package soak

import (
	"testing"
	"time"

	"xpyd/tools/tally"
)

// On a busy machine the last fault is undone late. Only then the healing begins, for every copy of
// the plan.
func TestHealingBeginsWhenTheFaultsAreOver(t *testing.T) {
	p := newPlan(time.Now().Add(-20*time.Second), 4*time.Second)
	other := p
	if got := p.at(time.Now()); got != stageAfter {
		t.Errorf("%v without any fault, want the plan's %v", got, stageAfter)
	}
	p.faultsBegin()
	if got := other.at(time.Now()); got != stageFaults {
		t.Errorf("%v while faults go on", got)
	}
	if early := other.start(stageFaults); other.at(early.Add(-time.Millisecond)) != stageStandard {
		t.Error("what came before the faults has moved")
	}
	p.faultsEnd()
	if got := other.at(time.Now()); got != stageHealing {
		t.Errorf("%v as the faults are over", got)
	}
	healing, recovery := 2*time.Second, 200*time.Millisecond // in a run of 4 s
	if got := p.end(stageHealing).Sub(p.start(stageHealing)); got != healing {
		t.Errorf("healing takes %v, want %v", got, healing)
	}
	if got := p.end(stageRecovery).Sub(p.end(stageHealing)); got != recovery {
		t.Errorf("recovery takes %v, want %v", got, recovery)
	}
}

// The p99 of a dozen streams is the slowest of them.
func TestLatencyOfFewIsNotJudged(t *testing.T) {
	for _, tc := range []struct{ streams, breaches int }{{12, 0}, {300, 1}} {
		s := &soak{verdict: &tally.Verdict{}, tally: newCounts()}
		for range tc.streams {
			s.tally.proxied[stageStandard].first.Observe(10 * time.Millisecond)
			s.tally.proxied[stageRecovery].first.Observe(400 * time.Millisecond)
		}
		s.judgeLatency()
		if got := s.verdict.Of(invLatency); len(got) != tc.breaches {
			t.Errorf("%d streams: %v, want %d breaches", tc.streams, got, tc.breaches)
		}
	}
}
