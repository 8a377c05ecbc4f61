package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"time"
)

// matrixResult is one pass over the matrix.
type matrixResult struct {
	rows []rowResult
	all  results
	took time.Duration
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

// matrix runs the tests of the rows with a routing.
func (b *bench) matrix(ctx context.Context, r routing, rows []row) (matrixResult, error) {
	ctx, cancel := context.WithTimeout(ctx, passTime)
	defer cancel()
	start := time.Now()
	all := b.all(ctx, testsOf(rows), r.env())
	if b.rerun {
		b.again(ctx, all, r.env())
	}
	if err := ctx.Err(); err != nil {
		return matrixResult{}, fmt.Errorf("run the matrix: %w", err)
	}
	return matrixResult{rows: judgeRows(rows, all), all: all, took: time.Since(start)}, nil
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
	out := &printer{w: os.Stdout}
	var passes []pass
	for _, r := range routings() {
		fit := r.fit(rows)
		if !want.MatchString(r.name) || len(fit) == 0 {
			continue
		}
		p := pass{routing: r}
		if p.matrix, err = b.matrix(ctx, r, fit); err != nil {
			return err
		}
		if !o.quick {
			c, err := churn(ctx, o.tools, r)
			if err != nil {
				return err
			}
			p.churn = &c
		}
		out.pass(p, o.verbose)
		passes = append(passes, p)
	}
	if len(passes) == 0 {
		return fmt.Errorf("no routing matches %q", o.each)
	}
	return reportPasses(out, passes)
}
