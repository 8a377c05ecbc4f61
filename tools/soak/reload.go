package soak

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"xpyd/tools/completion"
	"xpyd/tools/process"
	"xpyd/tools/tally"
)

// ReloadOptions describe a run in which backends come and go by reload.
type ReloadOptions struct {
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
func (o *ReloadOptions) Validate() error {
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
	restTime   = 40 * time.Second       // until what is idle has gone
	reloadWait = 20 * time.Second       // far longer than a reload of thousands of backends takes on a busy machine
	reloadStop = 30 * time.Second       // until the proxy has ended
)

// reload is a run in which nothing fails, and backends come and go. All of it is one calm stage.
type reload struct {
	*soak
	o        ReloadOptions
	backends *backends
	handles  *openHandles
	leaving  sync.Map    // by request id: makes the client leave, a func()
	reloaded chan []byte // lines of the proxy's log about reloads, good or bad

	reloads, left, back, checks atomic.Int64
	late                        atomic.Int64 // timeouts that the proxy's log complained of
}

func newReload(o ReloadOptions) *reload {
	s := &soak{key: fmt.Sprintf("sk-soak-%016x", rand.Uint64()), verdict: &tally.Verdict{}, tally: newCounts(), fleet: &fleet{}}
	s.plan.begin = time.Now()
	for st := stageStandard; st < stages; st++ {
		s.plan.until[st] = 10_000 * time.Hour
	}
	s.faults = newFaultBook(io.Discard, s.tally.starved)
	s.faults.start(s.plan)
	s.tally.start(s.plan)
	r := &reload{soak: s, o: o, handles: newOpenHandles(), reloaded: make(chan []byte, 1)}
	r.backends = &backends{r: r, out: map[string]time.Time{}}
	return r
}

// Reload runs the proxy under load while reloads (HUP) replace most of its backends again and
// again. It fails if a request or a check reaches a backend that was removed, if a client sees an
// error, or if a handle is not given back. It also fails if anything of the removed backends stays
// in the proxy: goroutines, descriptors, memory, metrics. It writes a report to out.
func Reload(ctx context.Context, o ReloadOptions, out io.Writer) (err error) {
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
	r := newReload(o)
	defer r.backends.close()
	if err := r.backends.fill(o.Backends / 2); err != nil {
		return err
	}
	if r.log, err = newProxyLog(dir, r.key, r.tally, r.verdict, func(string) {}); err != nil {
		return err
	}
	defer r.log.close()
	r.log.also = r.line
	if r.proxy, err = startProxy(ctx, o.Serve, nil, dir, r.settings(), r.log, r.verdict); err != nil {
		return errors.Join(append([]error{err}, r.faultsFound()...)...)
	}
	stopped := false
	defer func() {
		if !stopped {
			err = errors.Join(err, r.proxy.stop(reloadStop))
		}
	}()
	if err := r.run(ctx, out); err != nil {
		return err
	}
	stopped = true
	if err := r.proxy.stop(reloadStop); err != nil {
		r.found("the proxy did not end well", "%v", err)
	}
	return r.report(out)
}

// found files a fault.
func (r *reload) found(what, detail string, args ...any) {
	r.verdict.Breach(invHealth, what, detail, args...)
}

// faultsFound are all of them, with how often and the first of each.
func (r *reload) faultsFound() (all []error) {
	for _, b := range r.verdict.Of("") {
		all = append(all, fmt.Errorf("%d× %s: %s", b.Count, b.What, b.First))
	}
	return all
}

// settings returns the proxy's configuration with the present pools.
func (r *reload) settings() map[string]any {
	all := map[string]any{
		"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "pprof": true, "api_keys": []string{r.key},
		"log":     map[string]any{"flush": "0s"}, // each reload is known when it is in force
		"prefill": r.backends.urls(true), "decode": r.backends.urls(false),
		"routing": map[string]any{"prefix_memory": "8MiB"}, // soon resident in full
	}
	maps.Copy(all, r.o.Settings)
	return all
}

// line reads one line of the log. No engine fails, so a line of level warn or above is a fault.
// Timeouts are caused by the machine, which runs a thousand engines beside the proxy, and are only
// counted. What a client sees of them is still a fault.
func (r *reload) line(line []byte) {
	switch {
	case bytes.Contains(line, []byte(`"message":"pools reloaded"`)), bytes.Contains(line, []byte(`"message":"reload failed`)):
		r.reloaded <- line
	case bytes.Contains(line, []byte(`"message":"questionable setting"`)): // some policies with the run's own prefix_memory cause this
	case bytes.Contains(line, []byte("i/o timeout")), bytes.Contains(line, []byte("deadline exceeded")):
		r.late.Add(1)
	case !bytes.Contains(line, []byte(`"level":"info"`)) && !bytes.Contains(line, []byte(`"level":"debug"`)):
		var said struct{ Message string }
		_ = json.Unmarshal(line, &said) // a line that is not JSON has no message
		r.found("complaint in the log, "+said.Message, "%s", bytes.TrimSpace(line))
	}
}

// run goes through the stages: some reloads first, so that what the proxy allocates once does not
// look like a leak, then a rest, the run itself, and another rest.
func (r *reload) run(ctx context.Context, out io.Writer) (err error) {
	if err := process.AwaitReady(ctx, r.proxy.address()); err != nil {
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
func (r *reload) work(ctx context.Context, random *rand.Rand, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var wg sync.WaitGroup
	for i := range r.o.Clients {
		wg.Go(func() { r.client(ctx, i) })
	}
	for {
		wait := leastPause + time.Duration(random.Int64N(int64(leastPause)))
		if !process.SleepUntil(ctx, time.Now().Add(wait)) {
			break
		}
		if err := r.replace(context.WithoutCancel(ctx), random); err != nil {
			r.found("a reload that did not come into force", "%v", err)
			break
		}
	}
	wg.Wait()
}

// client sends one request after the other until ctx ends. The last one also ends well.
func (r *reload) client(ctx context.Context, i int) {
	c := &client{s: r.soak, r: rand.New(rand.NewPCG(r.o.Seed, uint64(i)+1))}
	defer c.drop()
	for n := 0; process.SleepUntil(ctx, time.Now().Add(time.Duration(c.r.IntN(100))*time.Millisecond)); n++ {
		begin := time.Now()
		q := r.draw(c.r, fmt.Sprintf("%s%d-%d-%d", reloadID, time.Since(r.plan.begin).Nanoseconds(), i, n))
		switch what := c.do(q); what {
		case "complete", "left", "WRONG": // the last is filed
		default:
			r.found("an error at a client", "%s, %d tokens, streamed: %v, after %v: %s", q.id, q.Tokens, q.Stream, time.Since(begin).Round(time.Millisecond), what)
		}
		r.leaving.Delete(q.id)
	}
}

// draw draws one request. In one of eight the client leaves, half of the time while its prefill is
// computed, and one stream in ten lasts for seconds and so for several reloads. There are few
// prompts, so that the proxy's memory of them fills early.
func (r *reload) draw(random *rand.Rand, id string) *request {
	q := &request{load: "reload", id: id, key: r.key, Call: completion.Call{Stream: random.IntN(2) == 0, Tokens: 1 + random.IntN(6)}}
	q.Prompt = fmt.Sprintf("prompt %d %s", random.IntN(256), strings.Repeat(" lorem ipsum dolor", 40))
	if q.Stream && random.IntN(10) == 0 {
		q.Tokens = 60
	}
	switch random.IntN(16) {
	case 0:
		after := time.Duration(1+random.IntN(40)) * time.Millisecond
		q.told = func(leave func()) { time.AfterFunc(after, leave) }
	case 1:
		q.told = func(leave func()) { r.leaving.Store(id, leave) }
	}
	return q
}

// replace takes some backends out of the configuration and puts as many others in.
func (r *reload) replace(ctx context.Context, random *rand.Rand) error {
	left, joined, err := r.backends.exchange(random, 1+random.IntN(r.o.Part))
	if err != nil {
		return err
	}
	said, err := r.putInForce(ctx)
	if err != nil {
		return err
	}
	r.backends.removed(left)
	r.reloads.Add(1)
	r.left.Add(int64(len(left)))
	if said.Joined != joined || said.Left != len(left) {
		r.found("a reload of other backends", "%d joined and %d left, of %d and %d in the file", said.Joined, said.Left, joined, len(left))
	}
	return nil
}

// reloadedLine is what the proxy says about a reload.
type reloadedLine struct{ Joined, Left int }

// putInForce reloads with the present pools and returns what the proxy says about it.
func (r *reload) putInForce(ctx context.Context) (said reloadedLine, err error) {
	if err := r.proxy.configure(r.settings()); err != nil {
		return said, err
	}
	pid, _, _ := r.proxy.now()
	if err := r.proxy.signal(pid, syscall.SIGHUP); err != nil {
		return said, err
	}
	select {
	case line := <-r.reloaded:
		if bytes.Contains(line, []byte(`"message":"reload failed`)) {
			return said, fmt.Errorf("the proxy refuses the configuration: %s", bytes.TrimSpace(line))
		}
		if err := json.Unmarshal(line, &said); err != nil {
			return said, fmt.Errorf("read %q: %w", line, err)
		}
		return said, nil
	case <-time.After(reloadWait):
		return said, fmt.Errorf("the proxy has not reloaded after %v", reloadWait)
	case <-ctx.Done():
		return said, ctx.Err()
	}
}

// rest waits until the proxy has no requests, no connection to a removed backend, and holds no more
// than want and what the counters take that it keeps of removed backends. With nil it may hold anything.
func (r *reload) rest(ctx context.Context, want *process.Census) (least process.Census, err error) {
	const bound = 5 * time.Minute
	_, admin, _ := r.proxy.now()
	switch warmed, err := process.AwaitWarmed(ctx, admin, r.o.Rest/2, bound); {
	case err != nil:
		return least, err
	case !warmed:
		return least, fmt.Errorf("the proxy still warms pairs up after %v", bound)
	}
	if want != nil {
		series, err := process.Series(ctx, admin)
		if err != nil {
			return least, err
		}
		_, kept := r.otherSeries(series)
		want.Heap, want.RSS = want.Heap+float64(kept*seriesSize), want.RSS+float64(kept*seriesSize)
	}
	begin := time.Now()
	for time.Since(begin) < restTime && ctx.Err() == nil {
		c, err := r.census(ctx)
		if err != nil {
			return least, err
		}
		if least.Goroutines == 0 {
			least = c
		}
		least = least.Smallest(c)
		if time.Since(begin) > r.o.Rest && (want == nil || beyond(least, *want) == "" && r.backends.clinging() == 0) {
			break
		}
		process.SleepUntil(ctx, time.Now().Add(200*time.Millisecond))
	}
	return least, ctx.Err()
}

// seriesSize is about what a counter takes in the proxy's heap.
const seriesSize = 1 << 10

// beyond says what c has more than base, or "" if nothing. Descriptors come and go with the
// readings of the engines. The engines count those that belong to removed ones.
func beyond(c, base process.Census) string {
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
func (r *reload) report(out io.Writer) error {
	ended := func(what string) int {
		return r.tally.total(0, stageAfter, func(e ending) bool { return e.What == what })
	}
	fmt.Fprintf(out, "%d reloads, %d backends removed, %d of them back later; %d completions, %d more of clients that left, %d handles, %d given back unread; %d checks and readings; the proxy logged %d timeouts\n",
		r.reloads.Load(), r.left.Load(), r.back.Load(), ended("complete"), ended("left"), r.handles.issued(), r.handles.released(), r.checks.Load(), r.late.Load())
	all := r.faultsFound()
	if len(all) == 0 {
		fmt.Fprintln(out, "\nreload: ok, nothing goes to a backend that has left, and nothing of it stays")
		return nil
	}
	fmt.Fprintf(out, "\nreload: FAILED\n")
	for _, fault := range all {
		fmt.Fprintf(out, "  %v\n", fault)
	}
	return fmt.Errorf("reload found %d kinds of fault: %w", len(all), all[0])
}
