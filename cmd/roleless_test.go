package cmd

import (
	"slices"
	"strings"
	"testing"

	"xpyd/sim"
)

// roleless starts n simulated engines that are named without a role, and flags that do so.
func roleless(t *testing.T, n int) (engines []*sim.Engine, flags []string) {
	t.Helper()
	for i := range n {
		e := startEngine(t, sim.Options{Name: string(rune('a' + i)), Role: sim.RoleDecode, TokenLatency: 1, MaxSeqs: 256})
		engines, flags = append(engines, e), append(flags, "--engine", e.URL())
	}
	return engines, flags
}

// legs counts what an engine has had, by leg.
func legs(e *sim.Engine) (prefills, decodes int) {
	for _, rec := range e.Requests() {
		if strings.HasPrefix(rec.RequestID, "xpyd-") {
			continue // of xpyd's own
		}
		if rec.Leg == "prefill" {
			prefills++
		} else {
			decodes++
		}
	}
	return prefills, decodes
}

// Operators drain an engine without a role, give it one role and the other, and both again, and take it out, under load.
// No request fails, and each change holds.
func TestRolesChangeUnderLoad(t *testing.T) {
	t.Parallel()
	engines, flags := roleless(t, 3)
	p := serveProcess(t, nil, nil, append(flags, "--health-slow-start", "0s", "--health-interval", "100ms")...)
	l := startTraffic(p.addr, 8)
	e := engines[0]
	// used waits for legs of the kinds that the engine is to have, and then for requests of which it has none of the others.
	used := func(what string, prefills, decodes bool) {
		t.Helper()
		p0, d0 := legs(e)
		eventually(t, what+" used", func() bool { p, d := legs(e); return (p > p0 || !prefills) && (d > d0 || !decodes) })
		l.more(t, 60)
		if p, d := legs(e); p > p0 && !prefills || d > d0 && !decodes {
			t.Errorf("%s: %d further prefills and %d decodes", what, p-p0, d-d0)
		}
	}
	used("without a role", true, true)
	p.operate("ctl", "drain", e.URL(), "--wait")
	used("drained", false, false)
	p.operate("ctl", "enable", e.URL())
	p.operate("ctl", "role", e.URL(), "prefill", "--wait")
	used("prefill", true, false)
	p.operate("ctl", "role", e.URL(), "decode", "--wait")
	used("decode", false, true)
	if out := p.operate("ctl", "role", e.URL(), "both"); !strings.Contains(out, e.URL()+": both, up") {
		t.Errorf("ctl role says %s", out)
	}
	used("both again", true, true)
	out := p.operate("status")
	if lines := strings.Split(out, "\n"); slices.IndexFunc(lines, func(s string) bool { return strings.HasPrefix(s, "both") && strings.Contains(s, e.URL()) }) < 0 || strings.Count(out, "both  ") != 3 {
		t.Errorf("status shows\n%s", out)
	}
	if n := p.metric(`xpyd_engine_requests_running{backend="` + e.URL() + `",role="prefill"`); n != 0 {
		t.Errorf("the engine's figures stand there twice")
	}
	p.operate("ctl", "remove", e.URL(), "--wait")
	used("removed", false, false)
	if _, err := p.ctl("ctl", "add", engines[1].URL(), "--role", "both"); err == nil || !strings.Contains(err.Error(), "is in both pools already") {
		t.Errorf("added twice: %v", err)
	}
	p.operate("ctl", "add", e.URL(), "--role", "both")
	used("added", true, true)
	l.end(t)
	for _, e := range engines {
		eventually(t, e.Name()+" free of pinned blocks", func() bool { return e.Ledger().Pinned == 0 })
		if got := e.Ledger(); got.FreedBy["lease"] != 0 || got.StaleReads != 0 {
			t.Errorf("%s: %v, %d stale reads", e.Name(), got.FreedBy, got.StaleReads)
		}
	}
}

// The keys, and what they refuse.
func TestCheckEnginesWithoutARole(t *testing.T) {
	for want, args := range map[string][]string{
		`engines: "http://a:1" is in prefill or decode too, which give it one role; keep it in one list`: {"--engine", "http://a:1", "--decode", "http://a:1,http://b:1"},
		`engines: "http://a:1" is listed twice; remove one`:                                              {"--engine", "http://a:1", "--engine", "http://a:1"},
		`engines: "http://a:1" has connector sglang, whose engines have one role each; name it in prefill or decode, ` +
			`or use one of the connectors nixl, shared-storage, offloading, offloading-p2p, lmcache`: {"--engine", "http://a:1", "--connector", "sglang"},
		`encode: "http://a:1" is in another pool too`: {"--engine", "http://a:1", "--encode", "http://a:1"},
	} {
		if _, err := runCheck(args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", args, err, want)
		}
	}
	out, err := runCheck("--engine", "http://a:1 gpus=2", "--engine", "http://b:1", "--pd-mode", "auto")
	if err != nil || !strings.Contains(out, "engines: http://a:1 gpus=2 http://b:1 (prefix to prefill, prefix to decode)\n") || strings.Contains(out, "prefill: none") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestProbeEnginesWithoutARole(t *testing.T) {
	t.Parallel()
	engines, flags := roleless(t, 3)
	out, err := runCheck(append(flags, "--probe")...)
	if err != nil || strings.Count(out, " ok ") < 6 {
		t.Errorf("%v\n%s", err, out)
	}
	for _, e := range engines {
		for line := range strings.Lines(out) {
			if strings.Count(line, e.URL()) > 1 {
				t.Errorf("an engine is paired with itself: %s", line)
			}
		}
	}
}
