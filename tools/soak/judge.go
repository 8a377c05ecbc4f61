package soak

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"xpyd/tools/process"
)

// These are the bounds of what is judged at the end of a run.
const (
	// A p99 may double, in addition to what the machine does to the control in the same time, in
	// proportion. A request through the proxy needs several turns on the processors, and one of the
	// control needs one. On a machine without other load 10 % could be noticed. On a shared one the
	// control itself may be two to ten times as slow as a minute before.
	latencyFactor = 2
	latencySlack  = 50 * time.Millisecond
	// The last process may grow by this much in the second half of the load, in KiB, by a straight
	// line through its memory. In a short run it has served for a minute or two, and a collection
	// comes and goes by several MiB. Over half an hour 4 MiB are a leak of 2 KiB a second, or 20
	// bytes a request.
	rssGrowthShort = 32 << 10
	rssGrowthLong  = 4 << 10
	longRun        = 30 * time.Minute

	// strayLegs may reach an engine later than killSeen after its death. They try it again when an
	// ejection ends.
	strayLegs = 5

	calmLegs   = 1.05 // for each request, over 10 s; warm-ups belong to no client
	stormyLegs = 1.2
	linesOver  = 200 // lines a second, in addition to two for each request and one for each under way
)

// judge files what only the whole run shows.
func (s *soak) judge() {
	s.judgeCalm()
	s.judgeBlocks()
	s.judgeProcess()
	s.judgeLatency()
	s.judgeRetries()
	s.judgeHarness()
}

// failed reports which endings a client would complain about.
func failed(e ending) bool {
	switch e.Load {
	case "malformed", "forbidden", "leaves", "stuck":
		return e.What == "WRONG"
	}
	return e.What != "complete"
}

// judgeCalm checks that no request fails where no engine and no connection fails.
func (s *soak) judgeCalm() {
	for st := range stages {
		if !st.calm() {
			continue
		}
		for e, n := range s.tally.endingsOf(st) {
			if failed(e) && e.What != "WRONG" {
				s.verdict.Breach(invOutcomes, fmt.Sprintf("requests that fail in stage %v", st), "%d× %s: %s", n, e.Load, e.What)
			}
		}
	}
}

func (s *soak) judgeBlocks() {
	for _, st := range s.fleet.prefill {
		st.look()
		if n := st.Ledger().Pinned; n > 0 {
			s.verdict.Breach(invBlocks, "blocks that stay pinned", "%d on %s %v after the last client", n, st.Name(), s.settled)
		}
	}
	for _, st := range s.fleet.decode {
		if n := st.Ledger().Pinned; n > 0 {
			s.verdict.Breach(invBlocks, "blocks pinned on a decode engine", "%d on %s", n, st.Name())
		}
	}
}

func (s *soak) judgeProcess() {
	for _, open := range s.watch.last.openGauges() {
		s.verdict.Breach(invGauges, "a gauge that does not end at 0", "%s", open)
	}
	if n := s.watch.last.series["xpyd_panics_total"]; n > 0 {
		s.verdict.Breach(invOutcomes, "panics", "%g", n)
	}
	if !within(s.after, s.base) {
		s.verdict.Breach(invLeaks, "more than before the load", "%v -> %v", s.base, s.after)
	}
	limit := float64(rssGrowthShort)
	if s.o.Duration >= longRun {
		limit = rssGrowthLong
	}
	if slope, over, ok := s.slope(); ok && slope*over.Minutes() > limit {
		s.verdict.Breach(invLeaks, "memory that grows", "%.0f KiB/min over %v", slope, over)
	}
	if told, running := s.proxy.replaced(); running > 0 {
		s.verdict.Breach(invOutcomes, "processes that stay after a hand-over", "%d of %d", running, told)
	}
}

// slope returns the growth of the last process's memory in the second half of the load.
func (s *soak) slope() (kib float64, over time.Duration, ok bool) {
	from, to := s.plan.begin.Add(s.o.Duration/2), s.plan.end(stageRecovery)
	kib, ok = s.watch.slope(from, to)
	return kib, to.Sub(from), ok
}

func (s *soak) judgeLatency() {
	before, after := s.tally.quantiles(stageStandard), s.tally.quantiles(stageRecovery)
	if limit := slower(before.first, before.controlFirst, after.controlFirst); min(before.firsts, after.firsts) >= makeP99 && after.first > limit {
		s.verdict.Breach(invLatency, "slower to the first token after the faults than before", "p99 %v, %v before, limit %v", after.first, before.first, limit)
	}
	if limit := slower(before.gap, before.controlGap, after.controlGap); min(before.gaps, after.gaps) >= makeP99 && after.gap > limit {
		s.verdict.Breach(invLatency, "slower between tokens after the faults than before", "p99 %v, %v before, limit %v", after.gap, before.gap, limit)
	}
	beside, n := s.tally.besides()
	limit := slower(before.gap, before.controlGap, s.tally.quantiles(stageFaults).controlGap)
	if n >= makeP99 && beside > limit {
		s.verdict.Breach(invLatency, "streams held up by a decode engine that is not theirs", "p99 %v between tokens, limit %v", beside, limit)
	}
}

// slower returns how slow streams may become that took before, if the control went from one figure
// to another.
func slower(before, control, then time.Duration) time.Duration {
	machine := max(float64(then)/float64(max(control, time.Millisecond)), 1)
	return time.Duration(latencyFactor*machine*float64(before)) + latencySlack
}

// makeP99 is how many observations a p99 needs. With few, it is the slowest one, which tells about
// the machine.
const makeP99 = 200

func (s *soak) judgeRetries() {
	for st := range stageAfter {
		limit := stormyLegs
		if st.calm() {
			limit = calmLegs
		}
		prefills, decodes := s.amplification(st)
		if max(prefills.ratio, decodes.ratio) > limit {
			s.verdict.Breach(invRetries, fmt.Sprintf("too many legs a request in stage %v", st), "prefills %v, decodes %v over 10 s", prefills, decodes)
		}
	}
	if _, over := s.tally.lines(); over > linesOver {
		s.verdict.Breach(invLogs, "too many lines a second", "%d beyond two a request and one for each under way", over)
	}
}

func (s *soak) amplification(st stage) (prefills, decodes amplified) {
	from, to := s.plan.start(st), s.plan.end(st)
	return s.tally.amplification(from, to, !st.calm(), func(x second) int { return x.prefills }),
		s.tally.amplification(from, to, !st.calm(), func(x second) int { return x.decodes })
}

// judgeHarness files a run that has not done what it should, because it proves nothing.
func (s *soak) judgeHarness() {
	all := s.tally.total(stageFaults, stageFaults, func(e ending) bool { return e.Load == "stream" || e.Load == "short" })
	whole := s.tally.total(stageFaults, stageFaults, func(e ending) bool {
		return (e.Load == "stream" || e.Load == "short") && e.What == "complete"
	})
	faults, _ := s.faults.counts()
	short := s.o.Duration < time.Minute
	// An overloaded machine takes down most of what a short run has.
	least := all / 2
	if short && faults[kindStarved] > 0 {
		least = all / 10
	}
	if whole < least || whole == 0 {
		s.verdict.Breach(invOutcomes, "more requests fail than not", "%d of %d are complete in stage faults", whole, all)
	}
	if short {
		return
	}
	if s.strays > strayLegs {
		s.verdict.Breach(invHealth, "requests that go to an engine long dead", "%d on one that was dead for %v or longer", s.strays, killSeen)
	}
	asked := s.fleet.all()
	if s.o.Alone {
		asked = s.fleet.decode
	}
	if names := s.fleet.book.idle(asked); len(names) > 0 {
		s.verdict.Breach(invHealth, "an engine without a request after the faults", "%v", names)
	}
	for _, load := range []string{"stream", "short", "leaves", "slow", "stuck", "malformed", "forbidden"} {
		if s.tally.total(0, stageAfter, func(e ending) bool { return e.Load == load }) == 0 {
			s.verdict.Breach(invHarness, "a kind of client that never came", "%s", load)
		}
	}
	kinds := []string{kindKill, kindFreeze, kindScript, "reload ok", "reload failed", "hand-over"}
	if s.certs != nil {
		kinds = append(kinds, kindReplaced, kindRefused)
	}
	for _, kind := range kinds {
		if faults[kind] == 0 {
			s.verdict.Breach(invHarness, "a kind of fault that never came", "%s", kind)
		}
	}
}

// keepState writes what the proxy says about itself into the artefacts.
func (s *soak) keepState(ctx context.Context, when string) {
	_, admin, _ := s.proxy.now()
	for name, path := range map[string]string{"goroutines": "/debug/pprof/goroutine?debug=1", "metrics": "/metrics", "pools": "/pools", "heap": "/debug/pprof/heap?gc=1"} {
		body, err := process.Get(ctx, "http://"+admin+path)
		if err != nil {
			body = []byte(err.Error() + "\n")
		}
		_ = os.WriteFile(filepath.Join(s.o.Artefacts, name+"-"+when+".txt"), body, 0o644) // the report says what is wrong, and this only adds to it
	}
}
