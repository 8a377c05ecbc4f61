package engines

import (
	"testing"

	"xpyd/router"
)

// TestReuse: an episode begins where nothing is pulled, and ends where enough is.
func TestReuse(t *testing.T) {
	type step struct {
		handed                   int64 // answers out of handles so far
		prompt, pulled, computed int64
		restarted                bool
		nothing, changed         bool
	}
	for _, tc := range []struct {
		name  string
		steps []step
	}{
		{"all is pulled", []step{
			{handed: 0, prompt: 5}, {handed: 20, prompt: 10, pulled: 10}, {handed: 40, prompt: 2000, pulled: 2000}, {handed: 60, prompt: 4000, pulled: 4000},
		}},
		{"nothing is pulled", []step{
			{handed: 0, prompt: 5, computed: 5},
			{handed: 20, prompt: 1000, computed: 1000}, // the counters may not have these answers
			{handed: 20, prompt: 2000, computed: 2000, nothing: true, changed: true},
			{handed: 40, prompt: 3000, computed: 3000, nothing: true},
			{handed: 40, prompt: 4000, computed: 4000, nothing: true},
			{handed: 60, prompt: 5000, computed: 5000, pulled: 1, nothing: true}, // a window that has too few
			{handed: 80, prompt: 6000, computed: 5000, pulled: 990, changed: true},
		}},
		{"few answers say nothing", []step{
			{handed: 0, prompt: 5, computed: 5}, {handed: 9, prompt: 1000, computed: 1000}, {handed: 9, prompt: 2000, computed: 2000},
		}},
		{"decode has the prompts in its cache", []step{
			{handed: 0, prompt: 5, computed: 5}, {handed: 20, prompt: 1000, computed: 5}, {handed: 40, prompt: 3000, computed: 5},
		}},
		{"other clients alone", []step{
			{handed: 0, prompt: 5, computed: 5}, {handed: 0, prompt: 9000, computed: 9000}, {handed: 0, prompt: 90000, computed: 90000},
		}},
		{"the engine does not tell", []step{
			{handed: 0, prompt: 5, pulled: -1, computed: -1}, {handed: 20, prompt: 1000, pulled: -1, computed: -1}, {handed: 40, prompt: 2000, pulled: -1, computed: -1},
		}},
		{"a restart begins anew", []step{
			{handed: 0, prompt: 500, pulled: 500}, {handed: 20, prompt: 900, pulled: 900}, {handed: 20, prompt: 5, computed: 5, restarted: true}, {handed: 25, prompt: 50, computed: 50},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var u reuse
			for i, s := range tc.steps {
				e := router.UnknownEngine()
				e.PromptTokens, e.PulledTokens, e.ComputedTokens = s.prompt, s.pulled, s.computed
				if changed := u.note(s.handed, &e, s.restarted); changed != s.changed || u.nothing != s.nothing {
					t.Errorf("reading %d: nothing is %v, changed %v, want %v, %v", i, u.nothing, changed, s.nothing, s.changed)
				}
			}
		})
	}
}
