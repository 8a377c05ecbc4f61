package soak

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"xpyd/tools/tally"
)

// conclude writes the report. A run without a breach leaves no artefacts.
func (s *soak) conclude(out io.Writer, err error) error {
	if s.proxy == nil || s.watch == nil {
		return err
	}
	s.write(out)
	breaches := s.verdict.Of("")
	if err == nil && len(breaches) == 0 {
		fmt.Fprintf(out, "\nsoak: ok, nothing lost, nothing leaked\n")
		return s.clean()
	}
	state := struct {
		Seed     uint64
		Options  Options
		Error    string
		Breaches []tally.Breach
	}{s.o.Seed, s.o, fmt.Sprint(err), breaches}
	text, _ := json.MarshalIndent(state, "", "  ")
	err = errors.Join(err, os.WriteFile(filepath.Join(s.o.Artefacts, "verdict.json"), text, 0o644))
	fmt.Fprintf(out, "\nsoak: FAILED, seed %d\n", s.o.Seed)
	for _, b := range breaches {
		fmt.Fprintf(out, "  %s: %d× %s\n      first, at %.1f s: %s\n", b.Invariant, b.Count, b.What, b.At.Sub(s.plan.begin).Seconds(), b.First)
	}
	fmt.Fprintf(out, "seed, faults, log, goroutines and metrics are in %s\n", s.o.Artefacts)
	if len(breaches) > 0 {
		err = errors.Join(err, fmt.Errorf("soak found %d kinds of faults: %s: %s", len(breaches), breaches[0].What, breaches[0].First))
	}
	return err
}

// clean removes the files that a run writes.
func (s *soak) clean() error {
	var errs []error
	for _, name := range []string{"faults.jsonl", "soak.json", stateFile, "ca.pem", proxyFile, "proxy.log", "proxy.log.1"} {
		if err := os.Remove(filepath.Join(s.o.Artefacts, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove artefacts: %w", err))
		}
	}
	return errors.Join(errs...)
}

func (s *soak) write(out io.Writer) {
	s.writeRequests(out)
	faults, leases := s.faults.counts()
	fmt.Fprintf(out, "\nfaults\n")
	for _, kind := range slices.Sorted(maps.Keys(faults)) {
		fmt.Fprintf(out, "  %-28s %6d\n", kind, faults[kind])
	}
	fmt.Fprintf(out, "\ninvariants\n")
	figures := s.figures(leases)
	for _, name := range invariants() {
		verdict := "ok"
		if n := len(s.verdict.Of(name)); n > 0 {
			verdict = "BROKEN"
		}
		if name == invHarness {
			if verdict == "ok" {
				continue
			}
			figures[name] = "the run did not test what it is for"
		}
		fmt.Fprintf(out, "  %-12s %-7s %s\n", name, verdict, figures[name])
	}
}

// writeRequests prints how requests ended, by kind of client and by stage.
func (s *soak) writeRequests(out io.Writer) {
	shown := []stage{stageWarm, stageStandard, stageFaults, stageHealing, stageRecovery}
	fmt.Fprintf(out, "\n%-12s %-34s", "client", "ending")
	sums := map[ending][stages]int{}
	for _, st := range shown {
		fmt.Fprintf(out, " %9s", st)
		for e, n := range s.tally.endingsOf(st) {
			row := sums[e]
			row[st] += n
			sums[e] = row
		}
	}
	fmt.Fprintln(out)
	// The last requests end after the stage in which they began.
	for e, n := range s.tally.endingsOf(stageAfter) {
		row := sums[e]
		row[stageRecovery] += n
		sums[e] = row
	}
	order := slices.SortedFunc(maps.Keys(sums), func(a, b ending) int {
		return strings.Compare(a.Load+" "+a.What, b.Load+" "+b.What)
	})
	for _, e := range order {
		fmt.Fprintf(out, "%-12s %-34s", e.Load, e.What)
		for _, st := range shown {
			fmt.Fprintf(out, " %9d", sums[e][st])
		}
		fmt.Fprintln(out)
	}
}

// figures returns what each invariant's check has measured.
func (s *soak) figures(leases map[string]int) map[string]string {
	count := func(match func(ending) bool) int { return s.tally.total(0, stageAfter, match) }
	what := func(w string) func(ending) bool { return func(e ending) bool { return e.What == w } }
	all := count(func(ending) bool { return true })
	issued, used, wrongKV, oldest := s.fleet.book.figures()
	freed, stale := s.fleet.books()
	before, after := s.tally.quantiles(stageStandard), s.tally.quantiles(stageRecovery)
	beside, gaps := s.tally.besides()
	ejected, mostP, mostD := s.log.ejections.figures()
	told, _ := s.proxy.replaced()
	lines, over := s.tally.lines()
	slope := "not measured"
	if kib, d, ok := s.slope(); ok {
		slope = fmt.Sprintf("%+.0f KiB/min over %v", kib, d.Round(time.Second))
	}
	var legs []string
	for _, st := range []stage{stageStandard, stageFaults, stageRecovery} {
		p, d := s.amplification(st)
		legs = append(legs, fmt.Sprintf("%v %.3f/%.3f", st, p.ratio, d.ratio))
	}
	return map[string]string{
		invOutcomes: fmt.Sprintf("%d requests, each ended: %d complete, %d left, %d others told an error; %d processes, each but the last replaced and exited with 0",
			all, count(what("complete")), count(what("left")), all-count(what("complete"))-count(what("left"))-count(what("WRONG")), told),
		invBytes:   fmt.Sprintf("%d answers compared byte by byte; %d requests in all were wrong", count(what("complete")), count(what("WRONG"))),
		invHandles: fmt.Sprintf("%d issued, %d used once, oldest %v (limit %v); %d stale reads, %d decodes from foreign blocks, none told to a client", issued, used, oldest.Round(time.Millisecond), kvLease-kvLeaseMargin, stale, wrongKV),
		invBlocks:  fmt.Sprintf("0 pinned %v after the last client; freed by %s; of lease: %s", s.settled.Round(time.Millisecond), listOf(freed), listOf(leases)),
		invGauges:  fmt.Sprintf("%d samples (%d missed), never negative, counters never back, all 0 at the end", s.watch.samples, s.watch.missed),
		invLeaks:   fmt.Sprintf("%v -> %v; RSS at most %.1f MiB, %s", s.base, s.after, s.watch.most()/(1<<20), slope),
		invHealth: fmt.Sprintf("%d ejections, at most %d prefill and %d decode of %d at a time; at most %d legs to one of %d engines dead for over %v; all up and serving after the faults",
			ejected, mostP, mostD, poolSize, s.strays, s.deaths, killSeen),
		invLatency: fmt.Sprintf("p99 to the first token %v -> %v (control %v -> %v), between tokens %v -> %v (%v -> %v), beside a D that stands still %v of %d (control %v); of %d -> %d streams and %d -> %d gaps, of fewer than %d nothing is judged",
			before.first, after.first, before.controlFirst, after.controlFirst, before.gap, after.gap, before.controlGap, after.controlGap, beside, gaps, s.tally.quantiles(stageFaults).controlGap,
			before.firsts, after.firsts, before.gaps, after.gaps, makeP99),
		invRetries: "most legs a request over 10 s, prefill/decode: " + strings.Join(legs, ", "),
		invLogs:    fmt.Sprintf("%d lines, no prompt, completion, key or CR; at most %d a second beyond two a request and one for each under way", lines, over),
	}
}

func listOf(counts map[string]int) string {
	if len(counts) == 0 {
		return "none"
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, counts[name]))
	}
	return strings.Join(parts, ", ")
}
