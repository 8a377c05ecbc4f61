package engines

import "xpyd/router"

const (
	// reuseLegs is how many answers out of handles a window has before it is judged.
	reuseLegs = 10
	// reuseShare is the part of prompts that must be pulled again before an episode is over.
	reuseShare = 0.1
)

// reuse finds out whether a decode engine pulls the blocks that it is given handles of. One that
// computes all prompts itself answers as it should, and the prefill pool works for nothing. The
// readings of one backend come one at a time.
type reuse struct {
	from    mark  // start of the window
	handed  int64 // answers out of handles at the reading before, which the counters surely have
	nothing bool  // an episode goes on
}

// mark is a reading of the counters.
type mark struct{ handed, prompt, pulled, computed int64 }

// note takes a reading and reports whether an episode has begun or ended. An engine whose counters
// are unknown, or have started again, begins a window and ends nothing.
func (u *reuse) note(handed int64, e *router.EngineState, restarted bool) (changed bool) {
	now := mark{u.handed, e.PromptTokens, e.PulledTokens, e.ComputedTokens}
	u.handed = handed
	if restarted || min(u.from.pulled, now.pulled, now.computed, now.prompt) < 0 || u.from == (mark{}) {
		u.from = now
		return false
	}
	if now.handed-u.from.handed < reuseLegs {
		return false
	}
	prompt, pulled := now.prompt-u.from.prompt, now.pulled-u.from.pulled
	was := u.nothing
	switch {
	case pulled == 0 && now.computed > u.from.computed:
		u.nothing = true
	case prompt > 0 && float64(pulled) >= reuseShare*float64(prompt):
		u.nothing = false
	}
	u.from = now
	return u.nothing != was
}

// noteReuse logs once that an episode begins, and once that it is over.
func (p *Poller) noteReuse(b *router.Backend, u *reuse, handed int64, e *router.EngineState, restarted bool) {
	if b.Role != router.Decode || !u.note(handed, e, restarted) {
		return
	}
	b.SetNothingPulled(u.nothing)
	if !u.nothing {
		p.cfg.Log.Info().Str("decode", b.URL).Msg("decode engine pulls blocks again")
		return
	}
	p.cfg.Log.Warn().Str("decode", b.URL).
		Msg("decode engine pulls nothing: it computes the prompts of two-leg requests itself; see its kv_load_failure_policy and xpyd verify")
}
