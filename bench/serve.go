package bench

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"xpyd/bench/client"
	"xpyd/bench/dataset"
	"xpyd/bench/engines"
	"xpyd/bench/load"
	"xpyd/bench/result"
)

// Bench is a benchmark with its prompts made. It runs once.
type Bench struct {
	o       Options
	client  *client.Client
	prompts *dataset.Set
	bodies  [][]byte     // of each prompt
	cell    *result.Cell // nil outside of a sweep
	engines []engines.Spec
	say     func(string)
}

// defaultPrompts is the number of prompts when only a duration ends the run.
const defaultPrompts = 1000

// Prepare makes the prompts. If no model is named, it asks the server for one.
func Prepare(ctx context.Context, o Options) (*Bench, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	c, err := client.New(o.Client)
	if err != nil {
		return nil, err
	}
	if o.Ready > 0 {
		if err := await(ctx, c, o.Ready); err != nil {
			return nil, err
		}
	}
	if o.Client.Model == "" {
		if o.Client.Model, err = c.FirstModel(ctx); err != nil {
			return nil, fmt.Errorf("no model is named, and the server does not say: %w", err)
		}
		c.SetModel(o.Client.Model)
	}
	o.Dataset.Seed, o.Load.Seed = o.Seed, cmp.Or(o.TimesSeed, o.Seed)
	if o.Dataset.Count = o.Load.Requests(); o.Dataset.Count == 0 && o.Dataset.Kind != dataset.Trace {
		o.Dataset.Count = defaultPrompts
	}
	b := &Bench{o: o, client: c}
	if b.prompts, err = dataset.New(ctx, o.Dataset, c); err != nil {
		return nil, err
	}
	if o.Dataset.Kind == dataset.Trace {
		b.followTrace()
	}
	if n := len(b.prompts.Prompts); o.NoReuse && (b.Requests() == 0 || b.Requests() > n) {
		b.o.Load.Count = n
	}
	if err := b.o.Load.Validate(); err != nil {
		return nil, err
	}
	for _, p := range b.prompts.Prompts {
		b.bodies = append(b.bodies, c.Body(p.Text, p.Limit))
	}
	if err := b.warmUp(ctx); err != nil || !o.Prime {
		return b, err
	}
	return b, b.prime(ctx)
}

// await waits until the server lists its models.
func await(ctx context.Context, c *client.Client, bound time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	for {
		_, err := c.FirstModel(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return fmt.Errorf("the server is not ready after %v: %w", bound, err)
		}
	}
}

// followTrace sends a trace's requests at its own times, unless a rate is given.
func (b *Bench) followTrace() {
	l := &b.o.Load
	l.Count = len(b.prompts.Prompts)
	if b.o.Untimed || !math.IsInf(l.Rate, 1) || l.Ramp != (load.Ramp{}) {
		return
	}
	for _, p := range b.prompts.Prompts {
		l.Dues = append(l.Dues, p.Due)
	}
}

// warmUp sends requests that do not count. All have the first prompt, as in vllm bench serve.
func (b *Bench) warmUp(ctx context.Context) error {
	for i := range b.o.Warmups {
		a := b.client.Do(ctx, b.o.RequestIDPrefix+"warmup-"+strconv.Itoa(i), b.bodies[0], b.prompts.Prompts[0].Limit)
		if a.Failure != "" {
			return fmt.Errorf("warm up: %s: %s", a.Failure, a.Detail)
		}
	}
	return nil
}

// primers is how many prompts prime sends at once.
const primers = 8

// prime sends each prompt once, for one token, and waits for all answers.
func (b *Bench) prime(ctx context.Context) error {
	var mu sync.Mutex
	var failed error
	plan := load.Plan{Rate: math.Inf(1), Burstiness: 1, Count: len(b.prompts.Prompts), Concurrency: primers}
	plan.Run(ctx, time.Now(), func(ctx context.Context, t load.Turn) {
		a := b.client.Do(ctx, b.o.RequestIDPrefix+"prime-"+strconv.Itoa(t.Index), b.client.Body(b.prompts.Prompts[t.Index].Text, 1), 1)
		if a.Failure != "" {
			mu.Lock()
			defer mu.Unlock()
			failed = fmt.Errorf("have the prompts cached: %s: %s", a.Failure, a.Detail)
		}
	})
	return cmp.Or(failed, ctx.Err())
}

// Requests is how many requests the run will send; 0 when only the duration ends it.
func (b *Bench) Requests() int { return b.o.Load.Requests() }

// Config are the settings of the run.
func (b *Bench) Config() result.Config {
	c := b.o.config()
	c.Cell = b.cell
	return c
}

// Place sets the place of the run in a sweep.
func (b *Bench) Place(c *result.Cell) { b.cell = c }

// Watch makes Run read the metrics of the engines behind the server. say gets their lines, from other
// goroutines.
func (b *Bench) Watch(specs []engines.Spec, say func(string)) { b.engines, b.say = specs, say }

// Run sends the load. It calls done for each request that ended, one at a time. When ctx ends, it
// breaks off the open requests and returns what was measured.
func (b *Bench) Run(ctx context.Context, done func(*result.Record)) *result.Run {
	var lines engineLines
	watcher := engines.Watch(ctx, b.engines, engines.Pace, b.o.Client.Insecure, func(text string) {
		lines.add(text)
		b.say(text)
	})
	run := &result.Run{
		Schema: result.Schema, Tool: b.o.Tool, Config: b.Config(), Started: time.Now(),
		Prompts: result.Prompts{LengthBy: b.prompts.LengthBy, Inexact: b.prompts.Inexact},
	}
	defer b.client.Close()
	p := startPulse()
	type indexed struct {
		index int
		result.Record
	}
	var mu sync.Mutex
	var all []indexed
	b.o.Load.Run(ctx, run.Started, func(ctx context.Context, t load.Turn) {
		rec := b.send(ctx, run.Started, t)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, indexed{t.Index, rec})
		done(&rec)
	})
	run.DurationUS = time.Since(run.Started).Microseconds()
	run.WakeP99US = p.end().Microseconds()
	run.Interrupted = ctx.Err() != nil
	run.Engines = watcher.Stop(ctx)
	run.EngineLines = lines.all // only now nobody adds to them
	slices.SortFunc(all, func(a, b indexed) int { return a.index - b.index })
	for _, r := range all {
		run.Records = append(run.Records, r.Record)
	}
	run.Unsent = max(b.Requests()-len(all), 0)
	run.Prompts.Reused = max(len(all)-len(b.bodies), 0)
	run.Sum()
	return run
}

// engineLines keeps the lines of engines, with the time of each. They come from several goroutines.
type engineLines struct {
	mu  sync.Mutex
	all []string
}

func (l *engineLines) add(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, time.Now().UTC().Format("2006-01-02T15:04:05.000Z ")+text)
}

// send makes one request and its record.
func (b *Bench) send(ctx context.Context, started time.Time, t load.Turn) result.Record {
	i := t.Index % len(b.bodies)
	p := &b.prompts.Prompts[i]
	id := b.o.RequestIDPrefix + strconv.Itoa(t.Index)
	a := b.client.Do(ctx, id, b.bodies[i], p.Limit)
	rec := result.Record{
		ID: id, Asked: p.Tokens, AskedOut: p.Limit,
		DueUS: t.Due.Sub(started).Microseconds(), StartUS: t.Start.Sub(started).Microseconds(), SentUS: a.Sent.Sub(started).Microseconds(),
		Prompt: a.Prompt, Output: a.Output, Cached: a.Cached, Finish: a.Finish, Status: a.Status,
		Failure: a.Failure, Error: a.Detail, Text: a.Text,
	}
	end := a.End
	if !a.First.IsZero() {
		rec.TTFTUS = a.First.Sub(t.Start).Microseconds()
		if rec.OK() {
			end = a.Last
		}
	}
	rec.E2ELUS = end.Sub(t.Start).Microseconds()
	for _, gap := range a.Gaps {
		rec.ITLUS = append(rec.ITLUS, gap.Microseconds())
	}
	return rec
}
