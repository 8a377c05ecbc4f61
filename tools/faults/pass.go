package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"time"
)

// matrixResult is one pass over the matrix.
type matrixResult struct {
	rows []rowResult
	all  results
	took time.Duration // all its tests, which run side by side
}

func (m matrixResult) wrong() int {
	n := 0
	for _, r := range m.rows {
		if r.wrong() {
			n++
		}
	}
	return n
}

// matrices runs the tests of the rows with each of some routings, all beside each other.
func (b *bench) matrices(ctx context.Context, routings []routing, rows []row) ([]matrixResult, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(len(routings))*passTime)
	defer cancel()
	made := make([]matrixResult, len(routings))
	var wg sync.WaitGroup
	for i, r := range routings {
		wg.Go(func() {
			made[i].all = b.all(ctx, testsOf(r.fit(rows)), r.env())
		})
	}
	wg.Wait()
	for i, r := range routings {
		m := &made[i]
		if b.rerun {
			b.again(ctx, m.all, r.env())
		}
		for _, got := range m.all {
			m.took += got.took
		}
		m.rows = judgeRows(r.fit(rows), m.all)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("run the matrix: %w", err)
	}
	return made, nil
}

// churnTime is enough for churnHits of each phase, even on a busy machine.
const (
	churnTime = 20 * time.Second
	churnHits = "30"
)

// churn makes clients leave in every phase in front of a proxy with a routing.
func churn(ctx context.Context, tools string, r routing) (result, error) {
	ctx, cancel := context.WithTimeout(ctx, passTime)
	defer cancel()
	args := []string{"churn", "--duration", churnTime.String(), "--min-per-phase", churnHits, "--"}
	start := time.Now()
	output, err := exec.CommandContext(ctx, tools, append(args, r.flags()...)...).CombinedOutput()
	if ctx.Err() != nil {
		return result{}, fmt.Errorf("run the churn: %w", ctx.Err())
	}
	res := result{verdict: passed, text: string(output), took: time.Since(start)}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		res.verdict = failed
	case err != nil:
		return result{}, fmt.Errorf("run the churn: %w", err)
	}
	return res, nil
}

// pass is the result of one routing. churn is nil if none was requested.
type pass struct {
	routing routing
	matrix  matrixResult
	churn   *result
}

func (p pass) wrong() bool {
	return p.matrix.wrong() > 0 || p.churn != nil && p.churn.verdict != passed
}

// runEach makes a pass with each routing that o asks for.
func runEach(ctx context.Context, o options, b *bench, rows []row) error {
	want, err := regexp.Compile(o.each)
	if err != nil {
		return fmt.Errorf("read -each: %w", err)
	}
	var chosen []routing
	for _, r := range routings() {
		if want.MatchString(r.name) && len(r.fit(rows)) > 0 {
			chosen = append(chosen, r)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("no routing matches %q", o.each)
	}
	made, err := b.matrices(ctx, chosen, rows)
	if err != nil {
		return err
	}
	out := &printer{w: os.Stdout}
	passes := make([]pass, len(chosen))
	for i, r := range chosen {
		p := &passes[i]
		p.routing, p.matrix = r, made[i]
		if !o.quick {
			c, err := churn(ctx, o.tools, r)
			if err != nil {
				return err
			}
			p.churn = &c
		}
		out.pass(*p, o.verbose)
	}
	return reportPasses(out, passes)
}
