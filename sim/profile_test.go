package sim_test

import (
	"testing"
	"time"

	"xpyd/sim"
)

// Each recorded profile has what an engine needs.
func TestProfiles(t *testing.T) {
	for _, name := range sim.Profiles() {
		p, err := sim.ProfileNamed(name)
		if err != nil {
			t.Fatal(err)
		}
		if p.About == "" || p.MaxBatchedTokens < 1 || p.StepMS.Base <= 0 {
			t.Errorf("%s: %+v", name, p)
		}
		for what, c := range map[string]sim.Curve{"prefill": p.PrefillMS, "own prefill": p.OwnPrefillMS, "post": p.PostMS, "pull_turn": p.PullTurnMS, "pull": p.PullMS} {
			if len(c) < 2 || c[0][0] != 0 {
				t.Errorf("%s: %s is %v, want two points or more, the first at 0 tokens", name, what, c)
			}
			for i := 1; i < len(c); i++ {
				if c[i][0] <= c[i-1][0] || c[i][1] < c[i-1][1] {
					t.Errorf("%s: %s goes back at %v", name, what, c[i])
				}
			}
		}
	}
	if _, err := sim.ProfileNamed("a100"); err == nil {
		t.Error("a profile that nobody recorded")
	}
}

// An engine with a profile takes its times and not those of its other options.
func TestEngineTakesTheTimesOfItsProfile(t *testing.T) {
	p := &sim.Profile{MaxBatchedTokens: 8192, RequestMS: 20, PrefillMS: sim.Curve{{0, 0}, {100, 200}}}
	p.StepMS.Base, p.StepMS.ContextToken = 10, 0.2
	e := start(t, sim.Options{Profile: p}.Fast())
	begin := time.Now()
	if status, answer := post(t, e.URL()+completionsPath, body{"prompt": tokens("a", 50), "max_tokens": 6, "ignore_eos": true}); status != 200 {
		t.Fatalf("%d %s", status, answer)
	}
	// A request, half of the curve, and five steps of 10 ms and 0.2 ms for each of 50 tokens.
	if took, least := time.Since(begin), (20+100+5*20)*time.Millisecond; took < least {
		t.Errorf("%v, want %v at least", took, least)
	}
}
