package routing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"xpyd/tools/report"
)

// Options describe a run.
type Options struct {
	Xpyd, Self string        // programs: a contender, and this one, whose command routing-engines runs the engines
	Policies   []string      // prefill policies that it knows
	Modes      []string      // pd.mode that it knows; with none, each request that can be is split
	VLLMRouter string        // the program; "" for the one in PATH
	Only       []string      // contenders; none means the standard ones
	Run        string        // regular expression of workloads
	Topologies []string      // as 4P4D
	Rounds     int           // of each measurement, each with other requests
	Length     time.Duration // of a measurement; its first three tenths warm the caches
	Parallel   int           // measurements at a time
	Seed       uint64        // of the first round; the next ones count on
	Trace      string        // file of a trace in Mooncake's format; "" for none
	Out        string        // directory of results
	Docs       string        // directory of routing.md, to put the tables into it; "" for none
	Version    string        // of xpyd, for the record
}

// Validate reports options with which no run is possible.
func (o *Options) Validate() error {
	if o.Rounds < 1 || o.Parallel < 1 || o.Length < time.Second {
		return fmt.Errorf("%d rounds of %v, %d at a time: want at least 1 of 1s, 1 at a time", o.Rounds, o.Length, o.Parallel)
	}
	if _, err := regexp.Compile(o.Run); err != nil {
		return fmt.Errorf("workloads: %w", err)
	}
	if len(o.Topologies) == 0 {
		return errors.New("no topology: want one such as 4P4D")
	}
	for _, t := range o.Topologies {
		if _, err := parseTopology(t); err != nil {
			return err
		}
	}
	for _, name := range o.Only {
		if !o.known(name) {
			return fmt.Errorf("contender %q is none of %s, nor one of their policies with +%s, +%s or +%s", name, strings.Join(standard(), ", "), modeAlways, modeAuto, modeNever)
		}
	}
	return nil
}

// known reports whether a contender of that name can be: a standard one, or the policy of one or of
// this build, with a mode.
func (o *Options) known(name string) bool {
	policy, mode, given := strings.Cut(name, "+")
	if given && (strings.HasPrefix(name, routerPrefix) || !slices.Contains([]string{modeAlways, modeAuto, modeNever}, mode)) {
		return false
	}
	return slices.Contains(o.Policies, policy) || slices.ContainsFunc(standard(), func(s string) bool {
		of, _, _ := strings.Cut(s, "+")
		return of == policy
	})
}

// run is one run.
type run struct {
	o          Options
	out        io.Writer
	contenders []contender
	results    *Results
}

// Run measures. It writes tables to out as they come, and results.json, results.md and charts to
// Options.Out. A goal that is not met is no error, nor is a measurement that failed, because the
// results show both.
func Run(ctx context.Context, o Options, out io.Writer) error {
	if err := o.Validate(); err != nil {
		return err
	}
	var tr *trace
	if o.Trace != "" {
		var err error
		if tr, err = openTrace(o.Trace); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return fmt.Errorf("make the directory of results: %w", err)
	}
	r := &run{o: o, out: out, results: newResults(o)}
	r.enlist()
	match := regexp.MustCompile(o.Run)
	for _, name := range o.Topologies {
		on, _ := parseTopology(name) // validated
		for _, w := range workloads(tr) {
			if !match.MatchString(w.name) {
				continue
			}
			if err := r.workload(ctx, w, on); err != nil {
				return err
			}
		}
	}
	if len(r.results.Measurements) == 0 {
		return fmt.Errorf("nothing was measured: no workload matches %q, or no contender is there", o.Run)
	}
	return report.Save(r.results, o.Out, o.Docs, out)
}

// enlist lists the contenders that take part, and notes those that cannot.
func (r *run) enlist() {
	names := r.o.Only
	if len(names) == 0 {
		names = standard()
	}
	for _, name := range names {
		c, err := r.o.contender(name)
		if err != nil {
			r.note("%v", err)
			continue
		}
		r.contenders = append(r.contenders, c)
	}
}

// note adds what the reader of the results must know.
func (r *run) note(format string, args ...any) {
	r.results.Notes.Add(r.out, format, args...)
}

// workload measures all contenders, round by round. Each round begins with another contender.
func (r *run) workload(ctx context.Context, w workload, on topology) error {
	var names []contender
	for _, c := range r.contenders {
		if w.among == nil || slices.Contains(w.among, c.name) {
			names = append(names, c)
		}
	}
	if len(names) == 0 {
		r.note("%s, %s: none of the contenders that it is for takes part: %s", on, w.name, strings.Join(w.among, ", "))
		return nil
	}
	var result *Measurement
	for round := range r.o.Rounds {
		s := draw(w, on, r.o.Length, r.o.Seed+uint64(round))
		if result == nil {
			result = r.results.add(s, names)
		}
		for _, o := range oracles() {
			result.record(o.name, s.ideal(o.mode), nil, nil)
		}
		r.round(ctx, s, names, round, result)
		runtime.GC() // the requests of a round are large
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	fmt.Fprintf(r.out, "\n%s: %s (%s), %d requests, %.1f/s\n\n%s\n", on, w.title, w.name, result.Requests, result.Rate, result.table().Markdown())
	for _, v := range result.verdicts() {
		fmt.Fprintln(r.out, "  "+v.String())
	}
	fmt.Fprintln(r.out, "  "+result.disturbance())
	return nil
}

// round measures each contender once, some at a time.
func (r *run) round(ctx context.Context, s *scenario, names []contender, round int, result *Measurement) {
	var wg sync.WaitGroup
	var mu sync.Mutex // of result and notes
	turns := make(chan struct{}, r.o.Parallel)
	for i := range names {
		c := names[(i+round)%len(names)]
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			f, problems, err := r.o.measure(ctx, s, c)
			mu.Lock()
			defer mu.Unlock()
			result.record(c.name, f, problems, err)
			if err != nil && ctx.Err() == nil {
				r.note("%s, %s, round %d, %s: %v", s.on, s.name, round+1, c.name, err)
			}
		})
	}
	wg.Wait()
}
