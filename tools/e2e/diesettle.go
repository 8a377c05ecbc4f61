package main

import (
	"context"
	"math"
	"strings"
	"time"
)

// settle judges what is left. A handle on an engine that died cannot be given back, so only the sum
// of xpyd's accounts is judged.
func (m *mortals) settle(ctx context.Context) error {
	if err := m.finallyFree(ctx); err != nil {
		return err
	}
	kv := m.t.fleet.opts.kv
	twice, all := usedTwice(m.rd[:]...)
	m.t.judge(len(twice) == 0 && all > 0 == kv.names(), "of %d handles these went to a decode engine twice: %v", all, twice)
	var issued, ended, flying float64
	err := poll(ctx, dieRelease, func() bool {
		issued, _ = m.x.metric("xpyd_kv_handles_issued_total")
		ended, _ = m.x.metric("xpyd_kv_handles_total")
		flying, _ = m.x.metric("xpyd_in_flight")
		// Where the legs start together, xpyd makes a handle only to give blocks back, which need not happen.
		return (kv.together || issued > 0 == (kv.moves != "")) && issued == ended && flying == 0
	})
	m.t.judge(err == nil, "%v handles issued, %v ended, %v legs under way", issued, ended, flying)
	return nil
}

// finallyFree judges that no engine has blocks in use any more, except those that the connector cannot free.
func (m *mortals) finallyFree(ctx context.Context) error {
	if kv := m.t.fleet.opts.kv; !kv.keeps {
		if wait := time.Until(m.killed.Add(kv.lapse)); kv.lapse > 0 && wait > 0 {
			m.t.say("decode engines may wait %.0f s more for %s, which was killed", wait.Seconds(), m.p[0].name)
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(wait):
			}
		}
		return m.allFree(ctx, "the last request")
	}
	least := m.kept(m.x, m.before)
	most := least + m.kept(m.patient, 0) // which has cut a request that may not have reached the engine
	since := time.Now()
	for _, e := range []*engine{m.p[0], m.p[1], m.d[0], m.d[1]} {
		expect := 0.0
		if e == m.d[0] {
			expect = most
		}
		if _, err := awaitUse(ctx, e, (expect+0.5)/usable, since.Add(dieRelease)); err != nil {
			return err
		}
		use, err := e.metric(ctx, metricUse)
		if err != nil {
			return err
		}
		used := math.Round(use * usable)
		m.t.judge(used <= expect, "%s has %v blocks in use %v after the last request, want %v at most", e.name, used, dieRelease, expect)
		if e == m.d[0] {
			m.t.say("%s keeps %v blocks for the engine that was killed: between %v and %v by xpyd's log", e.name, used, least, most)
			m.t.judge(least > 0 && used >= least, "%s has %v blocks in use, and xpyd's log says that it keeps %v: does vLLM free them now?", e.name, used, least)
		}
	}
	return nil
}

// usable is how many blocks an engine of scripts/real-vllm can use: one of 256 is vLLM's own.
const usable = 255

// kept is how many blocks the surviving decode engine keeps by x's log, from a line on.
func (m *mortals) kept(x *proxy, from int) (blocks float64) {
	lines := x.lines()
	for _, line := range lines[min(from, len(lines)):] {
		said, _ := line["message"].(string)
		if n, ok := line["blocks"].(float64); ok && line["decode"] == m.rd[0].url && strings.HasPrefix(said, "if the prefill engine has died") {
			blocks += n
		}
	}
	return blocks
}

// allFree judges that no engine has blocks in use any more, in the time and but for those that the connector's row allows.
func (m *mortals) allFree(ctx context.Context, when string) error {
	since := time.Now()
	for _, e := range []*engine{m.p[0], m.p[1], m.d[0], m.d[1]} {
		most, within := 0.0, m.t.fleet.opts.kv.holds(e.role)
		for i, d := range m.d {
			if e == d {
				most = m.lost[i]
			}
		}
		free, err := awaitUse(ctx, e, 0, since.Add(within))
		if err != nil {
			return err
		}
		if free || most == 0 {
			m.t.judge(free, "%s has blocks in use %v after: %s", e.name, within, when)
			continue
		}
		use, err := e.metric(ctx, metricUse)
		if err != nil {
			return err
		}
		used := math.Round(use * usable)
		m.t.say("%s has %v blocks in use %v after: %s; vLLM may lose %v of answers that were not streamed and were cut", e.name, used, within, when, most)
		m.t.judge(used <= most, "%s has %v blocks in use %v after: %s, and may have lost %v", e.name, used, within, when, most)
	}
	return nil
}

// noteLost counts the blocks that decode engines may have lost in a scene in which P stood still: those of answers that were
// not streamed and of which xpyd has cut a leg.
func (m *mortals) noteLost(scene string, lines []map[string]any) {
	if !m.t.fleet.opts.kv.forgets {
		return
	}
	for _, t := range m.scenes[scene] {
		if t.ask.stream || !logged(lines, t, otherRound) {
			continue
		}
		blocks := blocksOf(lines, t.id)
		for i, r := range m.rd {
			if len(r.times(stepRequest, t.id)) > 0 {
				m.lost[i] += blocks
			}
		}
	}
}

// blocksOf is how many blocks the prompt of a request has, by the line of xpyd's log about its end.
func blocksOf(lines []map[string]any, id string) float64 {
	for _, line := range lines {
		if tokens, ok := line["prompt_tokens"].(float64); ok && line["request_id"] == id && lastLine(line) {
			return math.Ceil(tokens / block)
		}
	}
	return 0
}
