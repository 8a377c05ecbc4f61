package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// CostOptions describe a cost run.
type CostOptions struct {
	Xpyd, Self string        // programs: the proxy, and this one, whose command engines runs the engines
	Streams    int           // streams of which each event is counted
	Idle       int           // streams that wait for their next event
	Window     time.Duration // length of each measurement under load
}

// Validate tells what no run can be made of.
func (o *CostOptions) Validate() error {
	if o.Streams < 1 || o.Idle < 1 || o.Window <= 0 {
		return fmt.Errorf("cost with %d streams, %d idle ones, for %v: each must be more than 0", o.Streams, o.Idle, o.Window)
	}
	return nil
}

// Goals of the lines of the report.
const (
	goalCompletion = 60.0 // µs of CPU, both legs
	goalAllocs     = 0.01 // an event; 0 but for what is counted once in a while
	goalIdle       = 45.0 // KB
)

// costRun is a proxy and engines, each in a process of its own, under load from here.
type costRun struct {
	o     CostOptions
	out   io.Writer
	proxy *child
	addr  string // data port
	admin string
}

// Cost measures what the proxy costs and writes one line a figure to out: what,
// measured, goal, and whether it is met. Missing a goal is no error.
func Cost(ctx context.Context, o CostOptions, out io.Writer) (err error) {
	if err := o.Validate(); err != nil {
		return err
	}
	engines, pools, err := startEngines(ctx, o.Self)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engines.stop()) }()
	c := &costRun{o: o, out: out}
	if c.proxy, c.addr, c.admin, err = startServe(ctx, o.Xpyd, pools); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.proxy.stop()) }()
	if err := awaitReady(ctx, c.addr); err != nil {
		return err
	}
	fmt.Fprintf(out, "%-52s %12s %10s\n", "proxy, a process of its own", "measured", "goal")
	for _, measure := range []func(context.Context) error{c.idleStreams, c.events, c.completions} {
		if err := measure(ctx); err != nil {
			return err
		}
		if err := c.awaitIdle(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (c *costRun) line(what string, measured float64, unit string, goal float64) {
	verdict := "ok"
	if measured > goal {
		verdict = "over"
	}
	fmt.Fprintf(c.out, "%-52s %9.3g %-2s %7g %-2s  %s\n", what, measured, unit, goal, unit, verdict)
}

// info is a figure without a goal.
func (c *costRun) info(what string, measured float64, unit string) {
	fmt.Fprintf(c.out, "%-52s %9.3g %-2s\n", what, measured, unit)
}

// awaitIdle waits until the proxy has no request in flight.
func (c *costRun) awaitIdle(ctx context.Context) error {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		g, err := readGauges(ctx, c.admin)
		if err != nil || g.inFlight == 0 {
			return err
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return errors.New("cost: requests are still in flight 10 s after their clients left")
}

// idleStreams measures memory. It comes first, while the heap holds nothing else; what
// opening the streams took stays in it, as it does in service.
func (c *costRun) idleStreams(ctx context.Context) error {
	warm, err := openStreams(ctx, c.addr, 16, stalled())
	closeStreams(warm)
	if err != nil {
		return err
	}
	before, err := c.proxy.rss()
	if err != nil {
		return err
	}
	streams, err := openStreams(ctx, c.addr, c.o.Idle, stalled())
	defer closeStreams(streams)
	if err != nil {
		return err
	}
	if err := sleep(ctx, time.Second); err != nil {
		return err
	}
	after, err := c.proxy.rss()
	if err != nil {
		return err
	}
	perStream := (after - before) / 1000 / float64(c.o.Idle)
	c.line(fmt.Sprintf("RSS of an open stream that waits (%d of them)", c.o.Idle), perStream, "KB", goalIdle)
	c.info("RSS with them", after/1e6, "MB")
	return nil
}

// events measures allocations and CPU of streams alone: all are open before and after.
func (c *costRun) events(ctx context.Context) error {
	base, err := c.window(ctx, nil)
	if err != nil {
		return err
	}
	streams, err := openStreams(ctx, c.addr, c.o.Streams, steady(c.o.Window+10*time.Second))
	defer closeStreams(streams)
	if err != nil {
		return err
	}
	// Buffers and pools grow with the first events.
	if err := sleep(ctx, time.Second); err != nil {
		return err
	}
	load, err := c.window(ctx, streams)
	if err != nil {
		return err
	}
	if load.ended > 0 || load.events == 0 {
		return fmt.Errorf("cost: %d of %d streams ended while %g events were counted", load.ended, len(streams), load.events)
	}
	c.line(fmt.Sprintf("allocations an event (%d streams, %.0f events/s)", len(streams), load.events/c.o.Window.Seconds()),
		max(0, load.mallocs-base.mallocs)/load.events, "", goalAllocs)
	c.info("objects allocated meanwhile", load.mallocs, "")
	c.info("objects allocated in the same time without load", base.mallocs, "")
	c.info("CPU an event", (load.cpu-base.cpu)/load.events*1e6, "µs")
	return nil
}

// window is what happened between two looks at the proxy.
type window struct {
	mallocs, cpu, events float64 // objects, seconds, events
	ended                int     // streams
}

func (c *costRun) window(ctx context.Context, streams []*stream) (window, error) {
	first, err := c.look(ctx, streams)
	if err != nil {
		return window{}, err
	}
	if err := sleep(ctx, c.o.Window); err != nil {
		return window{}, err
	}
	last, err := c.look(ctx, streams)
	if err != nil {
		return window{}, err
	}
	return window{
		mallocs: last.mallocs - first.mallocs, cpu: last.cpu - first.cpu,
		events: last.events - first.events, ended: last.ended,
	}, nil
}

func (c *costRun) look(ctx context.Context, streams []*stream) (window, error) {
	var w window
	series, err := scrape(ctx, c.admin)
	if err != nil {
		return w, err
	}
	w.mallocs = series["go_memstats_mallocs_total"]
	if w.mallocs == 0 {
		return w, errors.New("cost: the proxy's /metrics has no go_memstats_mallocs_total")
	}
	if w.cpu, err = c.proxy.cpu(); err != nil {
		return w, err
	}
	for _, s := range streams {
		w.events += float64(s.events.Load())
		if s.ended.Load() {
			w.ended++
		}
	}
	return w, nil
}

// completions measures the CPU of short answers that are not streamed: as many as the
// machine can do, and fewer, where each wake-up serves one request alone and costs more.
func (c *costRun) completions(ctx context.Context) error {
	cpu, rate, err := c.completionCPU(ctx, short(1))
	if err != nil {
		return err
	}
	c.line(fmt.Sprintf("CPU a short completion, both legs (%.0f/s)", rate), cpu, "µs", goalCompletion)
	if cpu, rate, err = c.completionCPU(ctx, short(2)); err != nil {
		return err
	}
	c.info(fmt.Sprintf("the same at %.0f/s", rate), cpu, "µs")
	return nil
}

// clientsAtOnce is how many connections send completions.
const clientsAtOnce = 32

// completionCPU is the CPU of one completion in µs, and how many a second there were.
func (c *costRun) completionCPU(ctx context.Context, call call) (cpu, rate float64, err error) {
	if _, err := completeFor(ctx, c.addr, clientsAtOnce, 500*time.Millisecond, call); err != nil {
		return 0, 0, err
	}
	before, err := c.proxy.cpu()
	if err != nil {
		return 0, 0, err
	}
	n, err := completeFor(ctx, c.addr, clientsAtOnce, c.o.Window/2, call)
	if err != nil {
		return 0, 0, err
	}
	after, err := c.proxy.cpu()
	if err != nil {
		return 0, 0, err
	}
	return (after - before) / float64(n) * 1e6, float64(n) / (c.o.Window / 2).Seconds(), nil
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
