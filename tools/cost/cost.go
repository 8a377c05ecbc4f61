// Package cost measures what the proxy costs: CPU, allocations, memory.
package cost

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"xpyd/tools/certs"
	"xpyd/tools/completion"
	"xpyd/tools/process"
)

// Options describes a cost run.
type Options struct {
	Xpyd, Self string        // the proxy, and this program, whose command engines runs the engines
	Streams    int           // streams whose events are all counted
	Idle       int           // streams that wait for their next event
	Window     time.Duration // length of each measurement under load
	TLS        bool          // clients, proxy and engines speak it
}

// Validate reports options with which no run is possible.
func (o *Options) Validate() error {
	if o.Streams < 1 || o.Idle < 1 || o.Window <= 0 {
		return fmt.Errorf("cost with %d streams, %d idle ones, for %v: each must be more than 0", o.Streams, o.Idle, o.Window)
	}
	return nil
}

// These are the goals of the lines of the report.
const (
	goalCompletion = 60.0 // µs of CPU, both legs
	goalAllocs     = 0.01 // for each event; not 0 because of what is counted once in a while
	goalIdle       = 45.0 // KB
)

// endBound is how long a process whose streams have ended may take to end.
const endBound = 30 * time.Second

// run is a proxy and engines, each in a process of its own, with the load from this process.
type run struct {
	o     Options
	out   io.Writer
	proxy *process.Xpyd
	dial  dialer
}

// Run measures what the proxy costs. It writes one line for each figure to out: what it is, what
// was measured, the goal, and whether it is met. A missed goal is no error.
func Run(ctx context.Context, o Options, out io.Writer) (err error) {
	if err := o.Validate(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "cost")
	if err != nil {
		return fmt.Errorf("make a place for logs: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	c := &run{o: o, out: out}
	engines, err := c.start(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.proxy.End(endBound), engines.End(endBound)) }()
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

// start runs the engines and the proxy.
func (c *run) start(ctx context.Context, dir string) (engines *process.Process, err error) {
	scheme, args, flags := "http://", []string{"engines"}, []string(nil)
	trust := (*tls.Config)(nil)
	if c.o.TLS {
		ca, err := certs.New(dir)
		if err != nil {
			return nil, err
		}
		own, err := ca.Pair("own.pem") // of the proxy and of the engines
		if err != nil {
			return nil, err
		}
		trust = &tls.Config{RootCAs: ca.Pool, ServerName: "127.0.0.1"}
		scheme, args = "https://", append(args, "--cert", own, "--key", own)
		flags = []string{"--tls-cert", own, "--tls-key", own, "--backend-tls-ca", ca.File()}
	}
	engines, pools, err := process.StartEngines(ctx, dir, c.o.Self, args...)
	if err != nil {
		return nil, err
	}
	flags = append(flags, "--prefill", scheme+pools.Prefill[0], "--decode", scheme+pools.Decode[0])
	if c.proxy, err = process.Serve(ctx, filepath.Join(dir, "xpyd.log"), nil, c.o.Xpyd, flags...); err != nil {
		return nil, errors.Join(err, engines.End(endBound))
	}
	c.dial = func(ctx context.Context) (net.Conn, error) {
		if trust != nil {
			return (&tls.Dialer{Config: trust}).DialContext(ctx, "tcp", c.proxy.Addr)
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", c.proxy.Addr)
	}
	return engines, nil
}

func (c *run) line(what string, measured float64, unit string, goal float64) {
	verdict := "ok"
	if measured > goal {
		verdict = "over"
	}
	fmt.Fprintf(c.out, "%-52s %9.3g %-2s %7g %-2s  %s\n", what, measured, unit, goal, unit, verdict)
}

// info writes a figure without a goal.
func (c *run) info(what string, measured float64, unit string) {
	fmt.Fprintf(c.out, "%-52s %9.3g %-2s\n", what, measured, unit)
}

// awaitIdle waits until the proxy has no request in flight.
func (c *run) awaitIdle(ctx context.Context) error {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		g, err := process.ReadGauges(ctx, c.proxy.Admin)
		if err != nil || g.InFlight == 0 {
			return err
		}
		if err := process.Sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return errors.New("cost: requests are still in flight 10 s after their clients left")
}

// idleStreams measures memory. It comes first, while the heap holds nothing else. What opening the
// streams took stays in the heap, as it does in service.
func (c *run) idleStreams(ctx context.Context) error {
	warm, err := openStreams(ctx, c.dial, 16, stalled())
	closeStreams(warm)
	if err != nil {
		return err
	}
	before, err := c.proxy.Usage()
	if err != nil {
		return err
	}
	streams, err := openStreams(ctx, c.dial, c.o.Idle, stalled())
	defer closeStreams(streams)
	if err != nil {
		return err
	}
	if err := process.Sleep(ctx, time.Second); err != nil {
		return err
	}
	after, err := c.proxy.Usage()
	if err != nil {
		return err
	}
	perStream := (after.RSS - before.RSS) / 1000 / float64(c.o.Idle)
	c.line(fmt.Sprintf("RSS of an open stream that waits (%d of them)", c.o.Idle), perStream, "KB", goalIdle)
	c.info("RSS with them", after.RSS/1e6, "MB")
	return nil
}

// events measures allocations and CPU of streams alone. All of them are open before and after.
func (c *run) events(ctx context.Context) error {
	base, err := c.window(ctx, nil)
	if err != nil {
		return err
	}
	streams, err := openStreams(ctx, c.dial, c.o.Streams, steady(c.o.Window+10*time.Second))
	defer closeStreams(streams)
	if err != nil {
		return err
	}
	// Buffers and pools grow with the first events.
	if err := process.Sleep(ctx, time.Second); err != nil {
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

func (c *run) window(ctx context.Context, streams []*stream) (window, error) {
	first, err := c.look(ctx, streams)
	if err != nil {
		return window{}, err
	}
	if err := process.Sleep(ctx, c.o.Window); err != nil {
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

func (c *run) look(ctx context.Context, streams []*stream) (window, error) {
	var w window
	series, err := process.Series(ctx, c.proxy.Admin)
	if err != nil {
		return w, err
	}
	w.mallocs = series["go_memstats_mallocs_total"]
	if w.mallocs == 0 {
		return w, errors.New("cost: the proxy's /metrics has no go_memstats_mallocs_total")
	}
	used, err := c.proxy.Usage()
	if err != nil {
		return w, err
	}
	w.cpu = used.CPU
	for _, s := range streams {
		w.events += float64(s.events.Load())
		if s.ended.Load() {
			w.ended++
		}
	}
	return w, nil
}

// completions measures the CPU of short answers that are not streamed. It sends first as many as
// the machine can do, and then fewer. With fewer, each wake-up serves one request alone and costs
// more.
func (c *run) completions(ctx context.Context) error {
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

// clientsAtOnce is the number of connections that send completions.
const clientsAtOnce = 32

// completionCPU returns the CPU of one completion in µs, and how many there were in a second.
func (c *run) completionCPU(ctx context.Context, call completion.Call) (cpu, rate float64, err error) {
	if _, err := completeFor(ctx, c.dial, clientsAtOnce, 500*time.Millisecond, call); err != nil {
		return 0, 0, err
	}
	before, err := c.proxy.Usage()
	if err != nil {
		return 0, 0, err
	}
	n, err := completeFor(ctx, c.dial, clientsAtOnce, c.o.Window/2, call)
	if err != nil {
		return 0, 0, err
	}
	after, err := c.proxy.Usage()
	if err != nil {
		return 0, 0, err
	}
	return (after.CPU - before.CPU) / float64(n) * 1e6, float64(n) / (c.o.Window / 2).Seconds(), nil
}
