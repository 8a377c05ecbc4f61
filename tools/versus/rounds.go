package versus

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"xpyd/tools/report"
)

// job is a shape with those that take part, and what was measured of it under each load.
type job struct {
	shape
	contenders []contender
	loads      []string
	results    map[string]*Shape
}

// work lists what is measured in each round.
func (r *run) work() []job {
	match := regexp.MustCompile(r.o.Run)
	var all []job
	for _, s := range shapes(r.crowd(), r.cpus.Count()) {
		if !match.MatchString(s.name) {
			continue
		}
		j := job{shape: s, results: map[string]*Shape{}}
		for _, c := range r.contenders {
			if takesPart(s, c) {
				j.contenders = append(j.contenders, c)
			}
		}
		for _, load := range r.o.loads() {
			if s.load1 == "" || s.load1 == load {
				j.loads = append(j.loads, load)
				j.results[load] = r.results.add(s, load, j.contenders)
			}
		}
		if len(j.loads) > 0 {
			all = append(all, j)
		}
	}
	return all
}

// rounds measures every shape once, and then all of them again, so that a run that is stopped has
// fewer rounds of each, and not fewer shapes. results.json is written after each shape.
func (r *run) rounds(ctx context.Context, work []job) error {
	if len(work) == 0 {
		return fmt.Errorf("no shape matches %q under that load", r.o.Run)
	}
	for round := range r.o.Rounds {
		for _, j := range work {
			last := r.o.Rounds
			if j.rounds > 0 {
				last = min(last, j.rounds)
			}
			if round >= last {
				continue
			}
			began := time.Now()
			if err := r.round(ctx, j, round); err != nil {
				return err
			}
			fmt.Fprintf(r.out, "%s: round %d of %d took %.0f s\n", j.name, round+1, last, time.Since(began).Seconds())
			if round+1 == last {
				r.conclude(ctx, j)
			}
			if err := report.Keep(r.results, r.o.Out); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// round measures all contenders in turn, under each load. Each round begins with another contender.
// A round that is cut off leaves nothing.
func (r *run) round(ctx context.Context, j job, round int) error {
	cores := r.o.Cores
	if j.cores > 0 {
		cores = r.cpus.Count()
	}
	if err := confine(firstOf(r.cpus, cores)); err != nil {
		return err
	}
	type measured struct {
		load, name string
		values     map[metric]float64
		err        error
	}
	var all []measured
	for i := range j.contenders {
		c := j.contenders[(i+round)%len(j.contenders)]
		for _, load := range j.loads {
			values, err := r.measure(ctx, load, j.shape, c)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				r.note("%s, %s, round %d, %s: %v", j.name, load, round+1, c.name, err)
			}
			all = append(all, measured{load, c.name, values, err})
		}
	}
	for _, m := range all {
		j.results[m.load].record(m.name, m.values, m.err)
	}
	return nil
}

// conclude counts system calls, if they are wanted, and prints what all rounds of a shape gave.
func (r *run) conclude(ctx context.Context, j job) {
	for _, load := range j.loads {
		if r.o.Calls {
			r.calls(ctx, load, j.shape, j.contenders, j.results[load])
		}
		j.results[load].print(r.out, r.results)
	}
	r.results.printVerdicts(r.out, j.results[j.loads[0]])
}
