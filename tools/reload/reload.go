// Package reload lets backends come and go by reload, and looks for what they leave behind.
package reload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"xpyd/tools/probe"
)

// Options describe a run in which backends come and go by reload.
type Options struct {
	Backends int           // in the configuration at any time, half of them prefill
	Duration time.Duration // of the load and the reloads, without start, warm-up and settling
	Clients  int
	// Part is the most backends that one reload replaces.
	Part int
	// Rest is how long the proxy is watched at rest. It is longer than its connections stay idle.
	Rest time.Duration
	Seed uint64
	// Serve is the command line of the proxy, to which "--config FILE" is added.
	Serve []string
	// Settings are keys of the proxy's configuration on top of the run's own.
	Settings map[string]any
}

// Validate reports options with which no run is possible. The engines' sockets belong to this
// process, and the other ends to the proxy. Each process has its own limit of descriptors.
func (o *Options) Validate() error {
	if o.Backends < 4 || o.Backends%2 != 0 || o.Duration <= 0 || o.Clients < 1 || o.Part < 1 || o.Part > o.Backends/2 || o.Rest <= 0 || len(o.Serve) == 0 {
		return fmt.Errorf("reload of %d backends, %d at a time, for %v under %d clients: want an even number of 4 backends or more, at most half of them at a time, and the others more than 0",
			o.Backends, o.Part, o.Duration, o.Clients)
	}
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	if need := uint64(6*o.Backends + 1024); lim.Max < need {
		return fmt.Errorf("%d backends need %d open files, the limit is %d: raise it (ulimit -Hn), or give fewer backends", o.Backends, need, lim.Max)
	}
	return nil
}

// These are the times of a run.
const (
	leastPause = 500 * time.Millisecond // between two reloads, and up to twice that
	settleTime = 40 * time.Second       // until what is idle has gone
)

// run is one run.
type run struct {
	o        Options
	began    time.Time // ids of requests give their start as the time since then
	findings *findings
	handles  *openHandles
	fleet    *fleet
	proxy    *proxy
	tally    tally
	leaving  sync.Map // by request id: makes the client leave, a context.CancelFunc

	base, after probe.Census
}

// Run runs the proxy under load while reloads (HUP) replace most of its backends again and
// again. It fails if a request or a check reaches a backend that was removed, if a client sees an
// error, or if a handle is not given back. It also fails if anything of the removed backends stays
// in the proxy: goroutines, descriptors, memory, metrics. It writes a report to out.
func Run(ctx context.Context, o Options, out io.Writer) (err error) {
	if err := o.Validate(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "xpyd-reload")
	if err != nil {
		return fmt.Errorf("make a directory for the configuration: %w", err)
	}
	defer func() {
		if err == nil {
			err = os.RemoveAll(dir)
		} else {
			fmt.Fprintf(out, "the proxy's configuration and log are in %s\n", dir)
		}
	}()
	r := &run{o: o, began: time.Now(), findings: &findings{}, handles: newOpenHandles()}
	r.fleet = newFleet(r)
	defer r.fleet.close()
	if err := r.fleet.fill(o.Backends / 2); err != nil {
		return err
	}
	if r.proxy, err = startProxy(ctx, o.Serve, dir, r.settings(), r.findings); err != nil {
		return err
	}
	stopped := false
	defer func() {
		if !stopped {
			err = errors.Join(err, r.proxy.End(stopBound))
		}
	}()
	if err := r.run(ctx, out); err != nil {
		return err
	}
	stopped = true
	if err := r.proxy.End(stopBound); err != nil {
		r.findings.add("the proxy did not end well", "%v", err)
	}
	return r.report(out)
}

// settings returns the proxy's configuration with the present pools.
func (r *run) settings() map[string]any {
	all := map[string]any{
		"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "pprof": true,
		"log":     map[string]any{"flush": "0s"}, // each reload is known when it is in force
		"prefill": r.fleet.urls(true), "decode": r.fleet.urls(false),
		"routing": map[string]any{"prefix_memory": "8MiB"}, // soon resident in full
	}
	for key, value := range r.o.Settings {
		all[key] = value
	}
	return all
}

// run goes through the stages: some reloads first, so that what the proxy allocates once does not
// look like a leak, then a rest, the run itself, and another rest.
func (r *run) run(ctx context.Context, out io.Writer) (err error) {
	if err := probe.AwaitReady(ctx, r.proxy.addr); err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(r.o.Seed, 0))
	r.work(ctx, random, max(r.o.Duration/10, 3*leastPause))
	if r.base, err = r.rest(ctx, nil); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d backends that come and go for %v, up to %d a reload, %d clients, seed %d\nat rest: %v\n",
		r.o.Backends, r.o.Duration, r.o.Part, r.o.Clients, r.o.Seed, r.base)
	r.work(ctx, random, r.o.Duration)
	if ctx.Err() != nil {
		return fmt.Errorf("reload: %w", ctx.Err())
	}
	if r.after, err = r.rest(ctx, &r.base); err != nil {
		return err
	}
	fmt.Fprintf(out, "after:   %v\n", r.after)
	return r.judge(ctx)
}

// work serves clients and reloads for d.
func (r *run) work(ctx context.Context, random *rand.Rand, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var wg sync.WaitGroup
	for i := range r.o.Clients {
		wg.Go(func() { r.client(ctx, i) })
	}
	for {
		wait := leastPause + time.Duration(random.Int64N(int64(leastPause)))
		if !probe.SleepUntil(ctx, time.Now().Add(wait)) {
			break
		}
		if err := r.replace(context.WithoutCancel(ctx), random); err != nil {
			r.findings.add("a reload that did not come into force", "%v", err)
			break
		}
	}
	wg.Wait()
}

// replace takes some backends out of the configuration and puts as many others in.
func (r *run) replace(ctx context.Context, random *rand.Rand) error {
	left, joined, err := r.fleet.exchange(random, 1+random.IntN(r.o.Part))
	if err != nil {
		return err
	}
	said, err := r.proxy.reload(ctx, r.settings())
	if err != nil {
		return err
	}
	r.fleet.removed(left)
	r.tally.reloads.Add(1)
	r.tally.left.Add(int64(len(left)))
	if said.Joined != joined || said.Left != len(left) {
		r.findings.add("a reload of other backends", "%d joined and %d left, of %d and %d in the file", said.Joined, said.Left, joined, len(left))
	}
	return nil
}

// rest waits until the proxy has no requests, no connection to a removed backend, and holds no more
// than want. With nil it may hold anything.
func (r *run) rest(ctx context.Context, want *probe.Census) (least probe.Census, err error) {
	if err := r.warmedUp(ctx); err != nil {
		return least, err
	}
	begin := time.Now()
	for time.Since(begin) < settleTime && ctx.Err() == nil {
		c, err := probe.TakeCensus(ctx, r.proxy.PID(), r.proxy.admin)
		if err != nil {
			return least, err
		}
		if least.Goroutines == 0 {
			least = c
		}
		least = least.Smallest(c)
		if time.Since(begin) > r.o.Rest && (want == nil || beyond(least, *want) == "" && r.fleet.clinging() == 0) {
			break
		}
		probe.SleepUntil(ctx, time.Now().Add(200*time.Millisecond))
	}
	return least, ctx.Err()
}

// warmedUp waits until the proxy sends no more requests of its own over new pairs.
func (r *run) warmedUp(ctx context.Context) error {
	const bound = 5 * time.Minute
	last := -1.0
	for end := time.Now().Add(bound); time.Now().Before(end); {
		series, err := probe.Series(ctx, r.proxy.admin)
		if err != nil {
			return err
		}
		sum := series[`xpyd_warmups_total{result="ok"}`] + series[`xpyd_warmups_total{result="failed"}`]
		if sum == last {
			return nil
		}
		last = sum
		probe.SleepUntil(ctx, time.Now().Add(r.o.Rest/2))
	}
	return fmt.Errorf("the proxy still warms pairs up after %v", bound)
}

// beyond says what c has more than base, or "" if nothing. Descriptors come and go with the
// readings of the engines. The engines count those that belong to removed ones.
func beyond(c, base probe.Census) string {
	var more []string
	if c.Goroutines > base.Goroutines+8 {
		more = append(more, "goroutines")
	}
	if c.FDs > base.FDs+base.FDs/5+16 {
		more = append(more, "descriptors")
	}
	if c.Heap > base.Heap*1.1+2<<20 {
		more = append(more, "heap")
	}
	if c.RSS > base.RSS*1.25+16<<20 {
		more = append(more, "RSS")
	}
	return strings.Join(more, ", ")
}

// report writes what was found.
func (r *run) report(out io.Writer) error {
	t := &r.tally
	fmt.Fprintf(out, "%d reloads, %d backends removed, %d of them back later; %d completions, %d more of clients that left, %d handles, %d given back unread; %d checks and readings; the proxy logged %d timeouts\n",
		t.reloads.Load(), t.left.Load(), t.back.Load(), t.complete.Load(), t.gone.Load(), r.handles.issued(), r.handles.released(), t.checks.Load(), r.proxy.late.Load())
	all := r.findings.all()
	if len(all) == 0 {
		fmt.Fprintln(out, "\nreload: ok, nothing goes to a backend that has left, and nothing of it stays")
		return nil
	}
	fmt.Fprintf(out, "\nreload: FAILED\n  %s\n", strings.Join(all, "\n  "))
	return fmt.Errorf("reload found %d kinds of fault: %s", len(all), all[0])
}
