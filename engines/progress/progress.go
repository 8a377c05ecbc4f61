// Package progress finds out which engines give nothing although they owe answers. A health check asks the server in front of
// an engine, which answers while the engine itself hangs. A long silence is no proof, because the engine may be busy with one
// long prompt. So a silence of a few times what is usual only raises a doubt, and then the engine is asked for one token, on a
// connection of its own: a canary.
package progress

import (
	"math"
	"time"

	"xpyd/router"
)

// Limits bound how long an engine may give nothing.
type Limits struct {
	Floor    time.Duration // at least so long; 0: engines are not watched
	Ceiling  time.Duration // at most so long, also where nothing is known of what is usual
	Patience time.Duration // how long an engine stays wedged until it is down
}

const (
	usualTimes = 3 // the limit is so many times what is usual
	doubtAfter = 2 // the canary flies after one such part of the limit, and has the rest of it
	// mostCalm is how often the time until the next canary doubles, if they come back although nothing else does.
	mostCalm  = 3
	usualHalf = 30 * time.Second // after which the longest wait counts half
	// againEvery is the longest time between two canaries to a wedged engine. Each may take canaryWait or more, so that an engine is found that
	// goes on with what it had, and also one that has forgotten it.
	againEvery = 5 * time.Second
	canaryWait = 30 * time.Second
)

// Sight is what one look shows of an engine.
type Sight struct {
	At     time.Time
	Owed   int           // answers that it owes
	Since  time.Time     // its last sign of work since it owes them; zero if it owes nothing
	Expect time.Duration // what it has to compute takes at most so long
	Priced bool          // Expect is known
	Blind  bool          // nothing would show that it works on an answer that comes whole
}

// Step is what follows from a look.
type Step uint8

// The steps.
const (
	Wait  Step = iota
	Ask        // send a canary
	Name       // the engine is wedged
	Drop       // it has been for so long that it is down
	Clear      // it has given something, and is not wedged any more
)

// Finding is what is known of an engine at a step.
type Finding struct {
	Since time.Time // its last sign of work
	Limit time.Duration
	Owed  int
}

// Row is what is known of one engine's waits. The zero value knows nothing. It is not safe for concurrent use.
type Row struct {
	since  time.Time // the beginning of the silence
	shown  time.Time // when something other than an answer has last shown that it works
	expect time.Duration
	priced bool

	asked time.Time // the first canary of this silence
	flew  time.Time // the last canary
	calm  int       // canaries that have come back since the last other sign of work

	usual    time.Duration // the longest wait lately, at the time learned
	learned  time.Time
	measured bool

	named time.Time // zero unless it is wedged
	down  bool
}

// Finding tells what is known at a moment.
func (r *Row) Finding(s Sight, l Limits) Finding {
	return Finding{Since: r.since, Limit: r.limit(s, l), Owed: s.Owed}
}

// Shown notes that a canary came back, or that the engine's own counters show work.
func (r *Row) Shown(at time.Time) {
	if at.After(r.shown) {
		r.shown = at
	}
}

// CameBack is Shown for a canary that took so long.
func (r *Row) CameBack(at time.Time, took time.Duration) {
	if r.calm++; !r.down {
		r.learn(at, took)
	}
	r.Shown(at)
}

// Look takes in what a look shows, and says what follows.
func (r *Row) Look(s Sight, l Limits) Step {
	if r.begins(s) {
		if !r.named.IsZero() {
			r.named, r.down = time.Time{}, false
			return Clear
		}
		return Wait
	}
	if !r.named.IsZero() {
		return r.again(s, l)
	}
	if r.since.IsZero() || l.Floor == 0 {
		return Wait
	}
	limit := r.limit(s, l)
	patience := patience(limit)
	doubt := limit / doubtAfter << min(r.calm, mostCalm)
	quiet := s.At.Sub(r.since)
	switch {
	case quiet >= doubt+patience && !r.asked.IsZero() && s.At.Sub(r.asked) >= patience:
		r.named = s.At
		return Name
	case quiet >= doubt && r.asked.IsZero():
		r.asked, r.flew = s.At, s.At
		return Ask
	}
	return Wait
}

// patience is how long the first canary of a silence may take.
func patience(limit time.Duration) time.Duration { return limit - limit/doubtAfter }

// again is Look for a wedged engine that has given nothing new.
func (r *Row) again(s Sight, l Limits) Step {
	switch {
	case !r.down && s.At.Sub(r.named) >= l.Patience:
		r.down = true
		return Drop
	case s.At.Sub(r.flew) >= min(r.limit(s, l), againEvery):
		r.flew = s.At
		return Ask
	}
	return Wait
}

// begins notes the beginning of a silence, and reports whether the engine has given something since the last look.
func (r *Row) begins(s Sight) (gave bool) {
	since := s.Since
	if r.shown.After(since) {
		since = r.shown
	}
	switch {
	case s.Since.IsZero() && r.named.IsZero():
		r.since, r.asked = time.Time{}, time.Time{}
		return false
	case !since.After(r.since):
		if !r.priced {
			r.expect, r.priced = s.Expect, s.Priced
		}
		return false
	}
	if s.Since.After(r.since) {
		if r.calm = 0; !r.since.IsZero() && !r.down {
			r.learn(s.At, s.Since.Sub(r.since))
		}
	}
	r.since, r.asked = since, time.Time{}
	r.expect, r.priced = s.Expect, s.Priced
	return true
}

// learn keeps the longest wait lately.
func (r *Row) learn(at time.Time, wait time.Duration) {
	r.usual, r.learned, r.measured = max(wait, r.lately(at)), at, true
}

func (r *Row) lately(at time.Time) time.Duration {
	return time.Duration(float64(r.usual) * math.Exp2(-float64(at.Sub(r.learned))/float64(usualHalf)))
}

// limit is how long the engine may give nothing.
func (r *Row) limit(s Sight, l Limits) time.Duration {
	if !r.priced || s.Blind && !r.measured {
		return max(l.Ceiling, l.Floor)
	}
	usual := max(r.expect, r.lately(s.At))
	return max(l.Floor, min(usualTimes*usual, max(l.Ceiling, doubtAfter*r.expect)))
}

// canaryTokens are more than the prompts of the canaries between two readings. So many prompt tokens may be their own.
const canaryTokens = 512

// Worked reports whether an engine's own counters show that it has worked since the last reading, on more than canaries. Blocks
// that are filled are the only sign of a long prompt that is computed in chunks. On a decode engine they may only wait for a
// transfer, as its prompt tokens may.
func Worked(b *router.Backend, is *router.EngineState) bool {
	return worked(b.Role == router.Prefill && b.Twin() == nil, b.Engine(), is)
}

func worked(prefills bool, was, is *router.EngineState) bool {
	if was == nil {
		return false
	}
	if is.GenerationTokens > was.GenerationTokens && was.GenerationTokens >= 0 || is.ComputedTokens-was.ComputedTokens > canaryTokens && was.ComputedTokens >= 0 {
		return true
	}
	filled := (is.KVUsage - was.KVUsage) * float64(is.KVTokens())
	return prefills && (filled > canaryTokens && was.KVUsage >= 0 || is.PromptTokens-was.PromptTokens > canaryTokens && was.PromptTokens >= 0)
}
