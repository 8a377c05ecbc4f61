package engines

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"xpyd/engines/journal"
	"xpyd/engines/progress"
	"xpyd/kvparams"
	"xpyd/netio/upstream"
	"xpyd/router"
)

// soundWays is how many ways a probe tries until one serves it. More than one is needed, as a
// completion that fails is tried on two engines of each pool.
const soundWays = 3

// probeSoundness sends one token the way that a completion goes, over engines picked at random. It
// returns nil if the token came, and ErrUntold if no engine lets the proxy ask.
func (s *Set) probeSoundness(ctx context.Context) error {
	err := errors.New("the probe panicked")
	s.cfg.Guard(func() { err = s.probeWays(ctx) })
	return err
}

func (s *Set) probeWays(ctx context.Context) (err error) {
	snap := s.cfg.Router.Snapshot()
	decodes, prefills := shuffledUp(snap, router.Decode), []*router.Backend(nil)
	if snap.Splits() {
		prefills = shuffledUp(snap, router.Prefill)
	}
	if len(decodes) == 0 {
		return errors.New("no decode engine is up")
	}
	untold := false
	for i := range min(soundWays, max(len(decodes), len(prefills))) {
		rest := prefills[min(i, len(prefills)):] // another one each time, while there are any
		err = s.probeWay(ctx, snap, append(slices.Clone(rest), prefills...), decodes[i%len(decodes)])
		if err == nil || ctx.Err() != nil {
			return err
		}
		untold = untold || s.tellsNothing(err)
	}
	if untold {
		return ErrUntold
	}
	return err
}

// tellsNothing reports that the engine did not take the request, because of what the request is.
func (s *Set) tellsNothing(err error) bool {
	status := statusError(0)
	if errors.As(err, &status) && s.AuthFailed(int(status)) {
		return false // the engine would refuse any completion so
	}
	return inVain(err)
}

// AuthFailed reports whether a 401 or 403 is about xpyd's own key. It is if xpyd sends a key of its
// own or checks the clients' keys itself. Otherwise the engine refuses the client's key.
func (s *Set) AuthFailed(status int) bool {
	return (status == http.StatusUnauthorized || status == http.StatusForbidden) && (s.cfg.Auth != "" || s.cfg.Keyed)
}

// shuffledUp lists the role's backends that completions would get, in a random order: those that are up and
// not ejected, or if there are none, all that are up.
func shuffledUp(snap *router.Snapshot, role router.Role) []*router.Backend {
	var up, ejected []*router.Backend
	for _, b := range snap.Backends(role) {
		switch {
		case b.State() != router.Up:
		case b.Ejected():
			ejected = append(ejected, b)
		default:
			up = append(up, b)
		}
	}
	if len(up) == 0 {
		up = ejected
	}
	rand.Shuffle(len(up), func(i, j int) { up[i], up[j] = up[j], up[i] })
	return up
}

// probeWay sends one token over d and the first of prefills that makes a pair with d and has a model in common with it. As
// with a completion, d gets the prompt alone if no prefill can be had.
func (s *Set) probeWay(ctx context.Context, snap *router.Snapshot, prefills []*router.Backend, d *router.Backend) error {
	if dialect := s.dialect(d); dialect.Concurrent() || !dialect.HandleInAnswer() {
		return errStrangers
	}
	u := &warmUp{s: s, snap: snap, legID: "xpyd-ready-" + lotID(), handoff: s.cfg.Handoffs.Handoff()}
	u.fields, u.leg.ID, u.leg.Target, u.pair.Decode = s.fields, u.legID, s.Target(d), d
	model, err := s.aModel(d)
	if err != nil {
		model = "unknown" // an engine that lists nothing wants another key, so xpyd's may be wrong
	}
	for _, p := range prefills {
		if common, err := s.aModel(p, d); err == nil && snap.Pairable(router.Pair{Prefill: p, Decode: d}) {
			u.pair.Prefill, model = p, common
			break
		}
	}
	if err := u.req.Parse(kvparams.Completions, warmBody(model)); err != nil {
		return fmt.Errorf("build request: %w", err)
	}
	switch err = nil; {
	case u.pair.Prefill != nil:
		if err = u.prefill(ctx); err == nil {
			return u.decode(ctx)
		}
		err = fmt.Errorf("prefill on %s: %w", u.pair.Prefill.URL, err)
	case snap.Splits() && snap.Pooled(router.Prefill) && d.Twin() == nil, d.Bound.Load():
		err = errStrangers
	}
	if err != nil && (!s.StandsIn() || d.Bound.Load()) {
		return err
	}
	return u.decodeAlone(ctx)
}

// aModel returns one of the models that all of the engines list, picked at random.
func (s *Set) aModel(of ...*router.Backend) (string, error) {
	var ids []string
	for i, b := range of {
		e := s.get(b)
		if e == nil || e.models.Load() == nil {
			return "", errUnlisted
		}
		if listed := e.models.Load().ids(); i == 0 {
			ids = slices.Clone(listed)
		} else {
			ids = slices.DeleteFunc(ids, func(id string) bool { return !slices.Contains(listed, id) })
		}
	}
	if len(ids) == 0 {
		return "", errStrangers
	}
	return ids[rand.IntN(len(ids))], nil
}

// decodeAlone has D compute the prompt too.
func (u *warmUp) decodeAlone(ctx context.Context) error {
	answer, err := u.exchange(ctx, u.pair.Decode, u.req.AppendPlain(nil), true)
	var whole kvparams.Completion
	if err == nil {
		err = whole.Parse(answer)
	}
	if err != nil {
		return fmt.Errorf("decode alone on %s: %w", u.pair.Decode.URL, err)
	}
	return nil
}

// SomeUp reports that the health checks see no reason why completions would fail. If they do see one,
// that alone makes the process unready, for as long as they see it.
func (s *Set) SomeUp() bool { return s.cfg.Router.Snapshot().Ready(s.StandsIn()) }

// canary asks one engine alone for one token, on a connection of its own. The request names no transfer, so the engine keeps no
// blocks for it. An engine that serves nothing alone cannot be asked, and counts as one that works.
func canary(ctx context.Context, s *Set, b *router.Backend) progress.Answer {
	if !s.dialect(b).DecodeOnlySafe() {
		return progress.Replied
	}
	model, err := s.aModel(b)
	if err != nil {
		model = "unknown"
	}
	u := &warmUp{s: s, legID: "xpyd-canary-" + lotID(), fields: s.fields, fresh: true}
	if end, ok := ctx.Deadline(); ok {
		u.within = time.Until(end)
	}
	if err = u.req.Parse(kvparams.Completions, warmBody(model)); err != nil {
		return progress.Replied
	}
	_, err = u.exchange(ctx, b, u.req.AppendPlain(nil), false)
	return canaryAnswer(err)
}

// canaryAnswer is what the end of a canary says. That xpyd itself lacks a descriptor says nothing about the engine.
func canaryAnswer(err error) progress.Answer {
	status, ue := statusError(0), new(upstream.Error)
	switch {
	case err == nil, errors.As(err, &status) && status < http.StatusInternalServerError:
		return progress.Replied
	case errors.As(err, &ue) && !brokenOff(err) && !(ue.Stage == upstream.StageDial && upstream.IsLocal(ue.Err)):
		return progress.Silent
	}
	return progress.Failed
}

// watchProgress looks for engines that give nothing although they owe answers.
func watchProgress(s *Set) *progress.Watcher {
	var speeds progress.Speeds
	return progress.New(progress.Config{
		Engines: s.Backends,
		Limits: func() progress.Limits {
			h := s.cfg.Router.Snapshot().Health()
			return progress.Limits{Floor: h.ProgressFloor, Ceiling: h.ProgressCeiling, Patience: h.WedgedDownAfter}
		},
		See: func(b *router.Backend) (seen progress.Sight) {
			seen = sight(s, b)
			if t := b.Twin(); t != nil { // either role shows that the engine works
				other := sight(s, t)
				seen.Owed, seen.Expect = seen.Owed+other.Owed, seen.Expect+other.Expect
				seen.Priced, seen.Blind = seen.Priced && other.Priced, seen.Blind || other.Blind
				if other.Since.After(seen.Since) {
					seen.Since = other.Since
				}
			}
			return seen
		},
		Canary: func(ctx context.Context, b *router.Backend) progress.Answer { return canary(ctx, s, b) },
		Settle: func(b *router.Backend) {
			for _, x := range []*router.Backend{b, b.Twin()} {
				if c := s.Client(x); x != nil && c != nil {
					c.Settle()
				}
			}
		},
		Told:   func(b *router.Backend, step progress.Step, f progress.Finding) { tellProgress(s, b, step, f) },
		Slowly: func(now time.Time) { s.cfg.Guard(func() { lookAtSpeeds(s, &speeds, now) }) }, Guard: s.cfg.Guard,
	})
}

// sight is what xpyd sees of the engine of b in this role.
func sight(s *Set, b *router.Backend) (seen progress.Sight) {
	if c := s.Client(b); c != nil {
		debt := c.Debt()
		seen.Owed, seen.Since = debt.Owed, debt.Since
	}
	seen.Expect, seen.Priced = router.Expected(b)
	seen.Blind = b.Role == router.Decode && b.Engine() == nil
	return seen
}

// tellProgress has the router act on what the watch has found, and tells it.
func tellProgress(s *Set, b *router.Backend, step progress.Step, f progress.Finding) {
	line, event := s.cfg.Log.Warn(), journal.About(b, journal.Wedged, "engine is wedged: its requests go elsewhere")
	was, silence := b.State(), time.Since(f.Since)
	event.Reason = fmt.Sprintf("no answer for %.1fs, nor a token to xpyd itself; it owes %d", silence.Seconds(), f.Owed)
	switch step {
	case progress.Clear:
		if w := b.Trouble.Wedged(); w != nil {
			silence = time.Since(w.Since)
		}
		line, event.Kind, event.Text, event.Reason = s.cfg.Log.Info(), journal.Returned, "engine is no longer wedged: it gives answers again", ""
		router.Unwedge(b, true)
	case progress.Drop:
		event.Kind, event.Text = journal.Down, "engine is still wedged: it is down, and its streams end"
		fallthrough
	default:
		for _, x := range rolesOf(b) {
			s.Journal.Failed(x, event.Reason)
		}
		router.Wedge(b, router.Wedged{Since: f.Since, Named: time.Now(), Owed: f.Owed, Limit: f.Limit, Down: step == progress.Drop})
	}
	for _, x := range rolesOf(b) {
		if b.State() != was {
			s.Journal.Turned(x)
		}
		if x != b {
			event.Role = router.Both.String()
		}
	}
	s.Journal.Tell(line.Str("reason", "wedged").Dur("silent_ms", silence).Dur("limit_ms", f.Limit).Str("state", b.State().String()), event)
	s.LookForOutage()
}

// lookAtSpeeds finds out which engines have become slow, and tells it.
func lookAtSpeeds(s *Set, speeds *progress.Speeds, now time.Time) {
	snap := s.cfg.Router.Snapshot()
	all := append(router.Speeds(snap, router.Prefill), router.Speeds(snap, router.Decode)...)
	speeds.Look(now, all, snap.Health().SlowAfter, func(b *router.Backend, slow *router.Slow) {
		event := journal.About(b, journal.Slow, "engine is no longer slow")
		if slow == nil {
			s.Journal.Tell(s.cfg.Log.Info(), event)
			return
		}
		event.Text = "engine is slow: it gets as much work as its speed allows"
		event.Reason = slow.Words()
		s.Journal.Tell(s.cfg.Log.Warn(), event)
	})
	if !snap.Health().SlowEject {
		return
	}
	for _, speed := range all {
		if speed.Ratio > 0 && speed.Backend.Trouble.Slow() != nil {
			s.cfg.Router.Eject(speed.Backend, router.EjectSlow)
		}
	}
}
