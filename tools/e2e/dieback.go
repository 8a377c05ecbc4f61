package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// review judges a scene. A wrong answer is never right, and with saves all answers must be right.
// touched reports whether the fault met a request. A scene in which it met none proves nothing.
func (m *mortals) review(ctx context.Context, scene string, touched func(*teller) bool, saves bool) error {
	met, failed := 0, 0
	err := poll(ctx, dieLogged, func() bool {
		lines := m.x.lines()
		return !slices.ContainsFunc(m.scenes[scene], func(t *teller) bool { return !logged(lines, t, lastLine) })
	})
	if err != nil {
		return fmt.Errorf("%s: a request has no last line in the log: %w", scene, err)
	}
	for _, t := range m.scenes[scene] {
		v := t.verdict()
		switch {
		case v == verdictRight, v == verdictError && !saves:
			m.t.pass()
		default:
			m.t.fail("%s: %v", scene, t)
		}
		if v == verdictError {
			failed++
		}
		if touched(t) {
			met++
		}
	}
	m.t.say("%s: %d requests, %d met the fault, %d errors", scene, len(m.scenes[scene]), met, failed)
	m.t.judge(met > 0, "%s: no request met the fault: that proves nothing", scene)
	return nil
}

// lastLine is what the log says of a request, which may be after its client has the answer.
func lastLine(line map[string]any) bool { return line["message"] == "completion" }

// again reports that xpyd asked another engine after one had failed.
func (m *mortals) again(t *teller) bool { return m.logged(t, otherRound) }

func otherRound(line map[string]any) bool {
	return line["message"] == "round failed, another one begins" || line["message"] == "prefill leg failed, another backend is asked if there is one"
}

// met reports that a request met the end of an engine. Where the legs start together it is on two engines then and may have
// killed both, so xpyd sends it to no third one, and it may end in an error.
func (m *mortals) met(t *teller) bool {
	return m.again(t) || m.t.fleet.opts.kv.together && t.verdict() == verdictError
}

// orphaned reports the same, or that the request was decoded without the blocks that its dead
// prefill engine held.
func (m *mortals) orphaned(t *teller) bool {
	return m.again(t) || m.logged(t, func(line map[string]any) bool {
		return lastLine(line) && line["prefill"] == m.rp.url
	})
}

func (m *mortals) logged(t *teller, is func(map[string]any) bool) bool {
	return logged(m.x.lines(), t, is)
}

func logged(lines []map[string]any, t *teller, is func(map[string]any) bool) bool {
	for _, line := range lines {
		if line["request_id"] == t.id && is(line) {
			return true
		}
	}
	return false
}

// brokenOff reports that its stream ended in an error.
func (m *mortals) brokenOff(t *teller) bool { return t.verdict() == verdictError }

// restart restarts both engines and judges that xpyd uses them again by itself.
func (m *mortals) restart(ctx context.Context) error {
	m.t.say("%s and %s start again", m.p[0].name, m.d[1].name)
	begun := time.Now()
	errs := make(chan error, 2)
	for _, e := range []*engine{m.p[0], m.d[1]} {
		go func() { errs <- e.start(ctx) }()
	}
	for range 2 {
		if err := <-errs; err != nil {
			return err
		}
	}
	back := time.Now()
	m.lost[1] = 0
	m.t.say("both are up after %.1f s", back.Sub(begun).Seconds())
	if err := errors.Join(m.rp.reopen(), m.rd[1].reopen()); err != nil {
		return err
	}
	if err := m.usedAgain(ctx, back, served{"prefill", m.rp.url}, served{"decode", m.rd[1].url}); err != nil {
		return err
	}
	tellAll(ctx, m.x.url, m.scenes["after"]).Wait()
	for _, t := range m.scenes["after"] {
		m.t.judge(t.verdict() == verdictRight, "after: %v", t)
	}
	// This one has waited. P does not know its handle.
	m.stale.let()
	m.late.Wait()
	stale := m.scenes["stale"][0]
	m.t.judge(stale.verdict() == verdictRight, "stale: %v", stale)
	return nil
}

// served is a leg that a backend must have served.
type served struct{ leg, url string }

// usedAgain sends requests until each of the backends has served a leg, and judges that this
// happens in time.
func (m *mortals) usedAgain(ctx context.Context, since time.Time, legs ...served) error {
	first := m.count(legs)
	for i := 0; ctx.Err() == nil; i++ {
		t := m.scenes["after"][i%dieEach]
		probe := &teller{id: fmt.Sprintf("die-probe-%d", i), ask: t.ask, want: t.want}
		probe.ask.salt = probe.id // or it goes where its prompt is cached, and that is the engine that did not die
		tellAll(ctx, m.x.url, []*teller{probe}).Wait()
		if probe.verdict() != verdictRight {
			m.t.fail("while the engines come back: %v", probe)
		}
		all := true
		for j, n := range m.count(legs) {
			all = all && n > first[j]
		}
		took := time.Since(since)
		if all || took > dieRecover {
			m.t.say("%d engines in use %.1f s after they were there", len(legs), took.Seconds())
			m.t.judge(all, "xpyd does not use all of %v within %v", legs, dieRecover)
			return nil
		}
	}
	return ctx.Err()
}

// count returns how many legs the backends have served.
func (m *mortals) count(legs []served) []float64 {
	n := make([]float64, len(legs))
	for i, s := range legs {
		n[i], _ = m.x.metric("xpyd_leg_requests_total", `backend="`+s.url+`"`, `leg="`+s.leg+`"`, `outcome="ok"`)
	}
	return n
}
