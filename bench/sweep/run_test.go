package sweep

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"xpyd/bench/result"
	"xpyd/sim"
)

func engine(t *testing.T, o sim.Options) *sim.Engine {
	t.Helper()
	e, err := sim.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() }) // a killed engine has nothing to close
	return e
}

// onRequest is a hook that acts once, when an engine has the n-th request, which waits until act returns.
func onRequest(n int64, act func()) func(sim.Event) {
	var had atomic.Int64
	return func(ev sim.Event) {
		if ev.Phase == sim.PhaseDecodeReceived && had.Add(1) == n {
			act()
		}
	}
}

// small is a sweep of two loads on two targets.
func small(t *testing.T, a, b string) *File {
	t.Helper()
	f := parsed(t, fmt.Sprintf(`
name: small
repeats: 2
max_lateness: 10s
targets:
  - {name: a, url: "%s", gpus: 1, engines: ["node:1=%s"]}
  - {name: b, url: "%s", gpus: 1}
workloads:
  - {name: short, input_len: 16, output_len: 4}
loads:
  - {concurrency: [1, 2], prompts_per_concurrency: 4}
`, a, a, b))
	if err := f.Validate(); err != nil {
		t.Fatal(err)
	}
	return f
}

// swept is the result of a sweep, with the runs of its directory.
type swept struct {
	*Outcome
	Runs []*result.Run
}

func sweep(t *testing.T, ctx context.Context, f *File, dir string) (swept, string) {
	t.Helper()
	var note bytes.Buffer
	r := &Runner{File: f, Dir: dir, Note: &note}
	out, err := r.Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	runs, err := r.Runs()
	if err != nil {
		t.Fatal(err)
	}
	return swept{out, runs}, note.String()
}

func asked(engines ...*sim.Engine) (n int) {
	for _, e := range engines {
		n += len(e.Requests())
	}
	return n
}

// TestSweepGoesOn: each cell is a saved run with its place, and the same command again sends no more
// requests.
func TestSweepGoesOn(t *testing.T) {
	a, b := engine(t, sim.Options{}.Fast()), engine(t, sim.Options{}.Fast())
	f, dir := small(t, a.URL(), b.URL()), t.TempDir()
	out, note := sweep(t, t.Context(), f, dir)
	if out.Err() != nil || len(out.Runs) != 8 || asked(a, b) != 2*2*(4+8) {
		t.Fatalf("%d runs, %d requests, %v\n%s", len(out.Runs), asked(a, b), out.Err(), note)
	}
	saved, err := result.LoadDir(dir)
	if err != nil || len(saved) != 8 {
		t.Fatal(len(saved), err)
	}
	var order []string
	for _, r := range saved {
		c := r.Config.Cell
		order = append(order, fmt.Sprintf("%s%d", c.Target, c.Repeat))
		if c.Sweep != "small" || c.Workload != "short" || c.GPUs != 1 || r.Totals.Completed != 4*r.Config.Concurrency || r.Config.Label != c.Target {
			t.Errorf("%+v %+v", c, r.Totals)
		}
		if (c.Target == "a") != (len(r.Engines) == 1 && *r.Engines[0].Generated == float64(r.Totals.OutputTokens)) {
			t.Errorf("%s has engines %+v", c.Target, r.Engines)
		}
	}
	if want := []string{"a1", "b1", "b1", "a1", "b2", "a2", "a2", "b2"}; !slices.Equal(order, want) {
		t.Errorf("measured in the order %v, want %v", order, want)
	}
	before := asked(a, b)
	if out, note := sweep(t, t.Context(), f, dir); out.Err() != nil || len(out.Runs) != 8 || asked(a, b) != before || note != "" {
		t.Errorf("finished cells were measured again: %s", note)
	}
	plan, err := (&Runner{File: f, Dir: dir}).Plan()
	if err != nil || strings.Count(plan, ": done\n") != 8 || !strings.Contains(plan, "0 of 8 cells, about 0s") {
		t.Errorf("%s %v", plan, err)
	}
	seed := uint64(5)
	for name, change := range map[string]func(){"lengths": func() { f.Workloads[0].InputLen = 17 }, "seed": func() { f.Workloads[0].InputLen, f.Seed = 16, &seed }} {
		change()
		if _, err := (&Runner{File: f, Dir: dir, Note: &bytes.Buffer{}}).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "--short--conc1-n4--r1.run.json was measured by another sweep, or with other settings: use another --out") {
			t.Errorf("other %s: %v", name, err)
		}
	}
}

// TestInterruption: finished cells are kept, and the half-measured cell is measured again.
func TestInterruption(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	defer close(over)
	a := engine(t, sim.Options{TokenLatency: 5 * time.Millisecond, Hook: onRequest(4+3, func() { cancel(); <-over })})
	b := engine(t, sim.Options{}.Fast())
	f, dir := small(t, a.URL(), b.URL()), t.TempDir()
	out, note := sweep(t, ctx, f, dir)
	if err := out.Err(); err == nil || err.Error() != "interrupted: 5 of 8 cells are left; the same command goes on with them" || len(out.Failed) != 0 {
		t.Fatalf("%v\n%s", err, note)
	}
	if len(out.Runs) != 4 || !out.Runs[3].Interrupted {
		t.Fatalf("%d runs", len(out.Runs))
	}
	finished := out.Runs[0].Started
	out, _ = sweep(t, t.Context(), f, dir)
	if out.Err() != nil || len(out.Runs) != 8 || !out.Runs[0].Started.Equal(finished) || out.Runs[3].Interrupted || out.Runs[3].Totals.Completed != 8 {
		t.Errorf("%v, the half cell has %+v", out.Err(), out.Runs[3].Totals)
	}
}

// TestDeadTarget: its cells are named as failed, the others are measured, and only the failed ones
// are repeated.
func TestDeadTarget(t *testing.T) {
	a := engine(t, sim.Options{}.Fast())
	var b *sim.Engine
	b = engine(t, sim.Options{TokenLatency: 5 * time.Millisecond, Hook: onRequest(4+3, func() {
		died := b.Died()
		go b.Kill()
		<-died
	})})
	f, dir := small(t, a.URL(), b.URL()), t.TempDir()
	out, note := sweep(t, t.Context(), f, dir)
	// b's second cell has some answers and many failures: it is a run. Its third and fourth cells are not.
	if err := out.Err(); err == nil || err.Error() != "2 of 8 cells failed; the same command repeats them" || len(out.Runs) != 6 {
		t.Fatalf("%v, %d runs\n%s", err, len(out.Runs), note)
	}
	if half := out.Runs[2].Totals; half.Failed == 0 || half.Completed == 0 {
		t.Errorf("the cell in which it died: %+v", half)
	}
	if summary := out.Summary(); strings.Count(summary, "failed: b short conc") != 2 || !strings.Contains(note, "  failed: ") {
		t.Errorf("%s\n%s", summary, note)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "b--short--*--r2"+failedSuffix))
	if len(files) != 2 {
		t.Fatal(files)
	}
	if err := b.Restart(); err != nil {
		t.Fatal(err)
	}
	before := asked(a)
	out, _ = sweep(t, t.Context(), f, dir)
	files, _ = filepath.Glob(filepath.Join(dir, "*"+failedSuffix))
	if out.Err() != nil || len(out.Runs) != 8 || asked(a) != before || len(files) != 0 {
		t.Errorf("%v, %d runs, %v", out.Err(), len(out.Runs), files)
	}
}

// TestUpAndDown: a target with commands runs only while it is measured, and alone. If it does not come
// up, its cells fail and down ends it.
func TestUpAndDown(t *testing.T) {
	a, b := engine(t, sim.Options{}.Fast()), engine(t, sim.Options{}.Fast())
	f, dir := small(t, a.URL(), b.URL()), t.TempDir()
	diary := filepath.Join(dir, "diary")
	for i := range f.Targets {
		f.Targets[i].Up = "echo up $XPYD_TARGET $XPYD_URL >> " + diary
		f.Targets[i].Down = "echo down $XPYD_TARGET >> " + diary
	}
	out, note := sweep(t, t.Context(), f, dir)
	if out.Err() != nil {
		t.Fatalf("%v\n%s", out.Err(), note)
	}
	up := fmt.Sprintf("up a %s\ndown a\nup b %s\ndown b\n", a.URL(), b.URL())
	again := fmt.Sprintf("up b %s\ndown b\nup a %s\ndown a\n", b.URL(), a.URL())
	if got, _ := os.ReadFile(diary); string(got) != strings.Replace(up+again, fmt.Sprintf("down b\nup b %s\n", b.URL()), "", 1) {
		t.Errorf("%s", got)
	}
	if want := 4*(4+8) + 3*warmUps; asked(a, b) != want {
		t.Errorf("%d requests, want %d with those that warm up", asked(a, b), want)
	}

	f, dir = small(t, a.URL(), b.URL()), t.TempDir()
	diary = filepath.Join(dir, "diary")
	f.Targets[0].Up, f.Targets[0].Down = "echo no such card; exit 3", "echo down >> "+diary
	out, note = sweep(t, t.Context(), f, dir)
	if len(out.Failed) != 4 || len(out.Runs) != 4 || !strings.Contains(out.Failed[0].Err.Error(), `target a did not come up: "echo no such card; exit 3": exit status 3; its output is in `) {
		t.Fatalf("%v\n%s", out.Err(), note)
	}
	if log, _ := os.ReadFile(filepath.Join(dir, "a.log")); string(log) != "no such card\n" {
		t.Errorf("log %q", log)
	}
	if got, _ := os.ReadFile(diary); string(got) != "down\n" {
		t.Errorf("down ran as %q", got)
	}
}

// TestInterruptedTargetGoesDown: a signal must not leave servers running.
func TestInterruptedTargetGoesDown(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	defer close(over)
	a := engine(t, sim.Options{TokenLatency: 5 * time.Millisecond, Hook: onRequest(warmUps+2, func() { cancel(); <-over })})
	f, dir := small(t, a.URL(), a.URL()), t.TempDir()
	diary := filepath.Join(dir, "diary")
	f.Targets[0].Up, f.Targets[0].Down = "true", "echo down >> "+diary
	out, _ := sweep(t, ctx, f, dir)
	if got, _ := os.ReadFile(diary); string(got) != "down\n" || out.Open != 8 {
		t.Errorf("down ran as %q, %d cells are left", got, out.Open)
	}
}

// TestTargetThatNeverAnswers: the sweep gives it up after its time.
func TestTargetThatNeverAnswers(t *testing.T) {
	a := engine(t, sim.Options{}.Fast())
	f, dir := small(t, "http://127.0.0.1:1", a.URL()), t.TempDir()
	f.Targets[0].Up, f.Targets[0].Ready, f.Targets[0].Engines = "true", 10*time.Millisecond, nil
	out, _ := sweep(t, t.Context(), f, dir)
	if len(out.Failed) != 4 || !strings.Contains(out.Failed[0].Err.Error(), "target a did not come up: no model at http://127.0.0.1:1 within 10ms: ") {
		t.Errorf("%+v", out.Failed)
	}
}
