package sweep

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"xpyd/bench"
	"xpyd/bench/engines"
	"xpyd/bench/progress"
	"xpyd/bench/result"
)

// Runner measures the cells of a sweep.
type Runner struct {
	File     *File
	Dir      string    // of saved runs
	Note     io.Writer // for messages during the sweep
	Terminal bool      // Note is a terminal

	up     *Target           // the running target, if it has an up command
	broken map[*Target]error // targets that did not come up
}

// Failure is a cell that has no figures.
type Failure struct {
	Cell *Cell
	Err  error
}

// Outcome is the result of a sweep.
type Outcome struct {
	Failed []Failure
	Cells  int
	Open   int // cells left by an interruption
}

// Err says why the sweep is not complete; nil if it is.
func (o *Outcome) Err() error {
	switch {
	case o.Open > 0:
		return fmt.Errorf("interrupted: %d of %d cells are left; the same command goes on with them", o.Open, o.Cells)
	case len(o.Failed) > 0:
		return fmt.Errorf("%d of %d cells failed; the same command repeats them", len(o.Failed), o.Cells)
	}
	return nil
}

// failedSuffix ends the name of the file that says why a cell has no figures.
const failedSuffix = ".failed.txt"

// Run measures the cells that Dir does not have. A signal ends it, and finished cells are kept.
func (r *Runner) Run(ctx context.Context) (*Outcome, error) {
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of results: %w", err)
	}
	done, err := r.finished()
	if err != nil {
		return nil, err
	}
	r.broken = map[*Target]error{}
	cells := r.File.Cells()
	out := &Outcome{Cells: len(cells)}
	for i := range cells {
		c := &cells[i]
		if _, ok := done[c.File()]; ok {
			continue
		}
		if ctx.Err() != nil {
			out.Open++
			continue
		}
		fmt.Fprintf(r.Note, "[%d/%d] %s\n", i+1, len(cells), c)
		r.count(ctx, out, c)
	}
	return out, r.down(ctx)
}

// count measures a cell and adds its result.
func (r *Runner) count(ctx context.Context, out *Outcome, c *Cell) {
	run, err := r.measure(ctx, c)
	if ctx.Err() != nil && (run == nil || run.Interrupted) {
		out.Open++
		return
	}
	path := filepath.Join(r.Dir, c.File()+failedSuffix)
	if err == nil {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(r.Note, "  cannot remove %s: %v\n", path, err)
		}
		return
	}
	fmt.Fprintf(r.Note, "  failed: %v\n", err)
	out.Failed = append(out.Failed, Failure{c, err})
	text := fmt.Sprintf("%s %s: %v\n", time.Now().UTC().Format(time.RFC3339), c, err)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		fmt.Fprintf(r.Note, "  cannot write %s: %v\n", path, err)
	}
	if r.up == c.Target && (run == nil || run.Totals.Completed == 0) { // it may be dead: up starts it again
		if err := r.down(ctx); err != nil {
			fmt.Fprintf(r.Note, "  %v\n", err)
		}
	}
}

// measure runs a cell and saves it, whatever its verdict.
func (r *Runner) measure(ctx context.Context, c *Cell) (*result.Run, error) {
	if err := r.ready(ctx, c); err != nil {
		return nil, err
	}
	b, err := bench.Prepare(ctx, r.File.Options(c))
	if err != nil {
		return nil, err
	}
	b.Place(r.File.Place(c))
	meter := progress.New(r.Note, r.Terminal, b.Requests())
	b.Watch(c.Target.specs(), meter.Say)
	run := b.Run(ctx, func(rec *result.Record) { meter.Add(rec.OK()) })
	meter.Close()
	r.tell(run)
	return run, errors.Join(run.Verdict(), run.Save(filepath.Join(r.Dir, c.File()+result.Suffix)))
}

// specs are the target's engines. check has already parsed them.
func (t *Target) specs() (specs []engines.Spec) {
	for _, text := range t.Engines {
		if s, err := engines.Parse(text); err == nil {
			specs = append(specs, s)
		}
	}
	return specs
}

// tell writes a line about a run.
func (r *Runner) tell(run *result.Run) {
	t := run.Totals
	ttft, tpot := t.MS[result.TTFT], t.MS[result.TPOT]
	fmt.Fprintf(r.Note, "  %d ok, %d failed, %.2f req/s, %.1f tok/s; TTFT median %.1f P99 %.1f, TPOT median %.2f P99 %.2f ms\n",
		t.Completed, t.Failed, t.RequestRate, t.OutputRate, ttft.Median, ttft.P99, tpot.Median, tpot.P99)
}

// finished says how long each cell in Dir took, by file name.
func (r *Runner) finished() (map[string]time.Duration, error) {
	done := map[string]time.Duration{}
	err := r.each(func(c *Cell, run *result.Run) {
		if run.Verdict() == nil {
			done[c.File()] = time.Duration(run.DurationUS) * time.Microsecond
		}
	})
	return done, err
}

// Runs are the saved runs of the sweep's cells in the order of the plan, bad verdicts included. No run
// stays in memory while cells are measured: a heap of old records would slow the next run.
func (r *Runner) Runs() (runs []*result.Run, err error) {
	err = r.each(func(_ *Cell, run *result.Run) { runs = append(runs, run) })
	return runs, err
}

// each reads the saved runs of the cells. It refuses a directory that has a cell of the same name with
// other settings.
func (r *Runner) each(do func(*Cell, *result.Run)) error {
	for _, c := range r.File.Cells() {
		path := filepath.Join(r.Dir, c.File()+result.Suffix)
		run, err := result.Load(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if !r.File.made(&c, run) {
			return fmt.Errorf("%s was measured by another sweep, or with other settings: use another --out, or remove it", path)
		}
		do(&c, run)
	}
	return nil
}

// Summary lists the failed cells, a line each.
func (o *Outcome) Summary() string {
	var b strings.Builder
	for _, f := range o.Failed {
		fmt.Fprintf(&b, "failed: %s: %v\n", f.Cell, f.Err)
	}
	return b.String()
}
