// Package soak breaks engines and connections under load, and checks that nothing is lost and nothing
// leaks.
package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"xpyd/tools/completion"
	"xpyd/tools/process"
	"xpyd/tools/tally"
)

// Options describe a soak.
type Options struct {
	Duration time.Duration // of the load, without start and settling
	Streams  int           // clients that hold a stream each
	TLS      bool          // clients, proxy and engines speak TLS, and certificates are replaced
	Events   int           // tokens of a stream, 50 ms apart
	Seed     uint64
	// Artefacts is the directory for what a failed run leaves behind. It is made if needed. A good
	// run leaves nothing there.
	Artefacts string
	// Serve is the command line of the proxy, to which "--config FILE" is added.
	Serve []string
	// Alone says that the proxy may send a request to decode alone, as its pd.mode says. Then a
	// prefill engine may have no requests.
	Alone bool
	// Settings are keys of the proxy's configuration on top of the soak's own.
	Settings map[string]any
}

// Validate reports options with which no run is possible.
func (o *Options) Validate() error {
	if o.Duration <= 0 || o.Streams < 1 || o.Events < 2 || o.Artefacts == "" || len(o.Serve) == 0 {
		return fmt.Errorf("soak of %v with %d streams of %d events, artefacts %q: each must be more than nothing, and events 2",
			o.Duration, o.Streams, o.Events, o.Artefacts)
	}
	return nil
}

// These are timeouts of the proxy under soak. They are short, like the engines' leases. As with the
// defaults, a leg may take longer than a lease, and the checks find earlier that an engine has
// stopped. The checks take at most 4 s: 1 s to the next one, then three of 400 ms, each tried
// twice, 200 ms apart.
const (
	requestDeadline = 20 * time.Second
	legTimeout      = 10 * time.Second
	writeStall      = 2 * time.Second
	stopBound       = time.Minute // of all processes; a drain may take 30 s
)

// soak is one run.
type soak struct {
	o       Options
	plan    plan
	key     string
	verdict *tally.Verdict
	tally   *counts
	faults  *faultBook
	fleet   *fleet
	proxy   *proxy
	log     *proxyLog
	watch   *sampler
	certs   *runCerts      // nil without TLS
	inForce map[string]any // the configuration that the proxy's file holds

	deaths int // engines that were dead for longer than killSeen
	strays int // the most legs that went to one of them after that

	base, after process.Census
	settled     time.Duration // time until the ledgers were empty
}

// Run runs the proxy in front of simulated engines under load, while engines and connections fail
// in every way. It checks from the clients' and the engines' side that nothing is lost and nothing
// leaks. It writes a report to out. A broken invariant is an error. What is needed to investigate
// it is then in o.Artefacts.
func Run(ctx context.Context, o Options, out io.Writer) (err error) {
	if err := o.Validate(); err != nil {
		return err
	}
	if err := os.MkdirAll(o.Artefacts, 0o755); err != nil {
		return fmt.Errorf("make the directory of artefacts: %w", err)
	}
	faultLog, err := os.Create(filepath.Join(o.Artefacts, "faults.jsonl"))
	if err != nil {
		return fmt.Errorf("open the fault log: %w", err)
	}
	defer func() { _ = faultLog.Close() }()
	r := rand.New(rand.NewPCG(o.Seed, 0))
	s := &soak{
		o: o, key: fmt.Sprintf("sk-soak-%016x", r.Uint64()),
		verdict: &tally.Verdict{Seen: out}, tally: newCounts(),
	}
	s.faults = newFaultBook(faultLog, s.tally.starved)
	err = s.run(ctx, r, out)
	if s.log != nil {
		s.log.close()
	}
	if s.fleet != nil {
		err = errors.Join(err, s.fleet.close())
	}
	return s.conclude(out, err)
}

// run goes through the stages. The proxy has ended when it returns.
func (s *soak) run(ctx context.Context, r *rand.Rand, out io.Writer) (err error) {
	if err := adopt(1); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, adopt(0)) }()
	if err := s.start(ctx); err != nil {
		return err
	}
	stopped := false
	defer func() {
		if !stopped {
			err = errors.Join(err, s.proxy.stop(stopBound))
		}
	}()
	if s.base, err = s.baseline(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "soak of %v, %d streams, seed %d; 3 prefill and 3 decode engines behind relays\nat rest: %v\n", s.o.Duration, s.o.Streams, s.o.Seed, s.base)
	s.plan = newPlan(time.Now(), s.o.Duration)
	s.faults.start(s.plan)
	s.tally.start(s.plan)
	s.watch = newSampler(s)
	s.serveLoad(ctx, r)
	if ctx.Err() != nil {
		return fmt.Errorf("soak: %w", ctx.Err())
	}
	s.settle()
	if err := s.leaks(ctx); err != nil {
		return err
	}
	if err := s.watch.look(ctx); err != nil {
		return err
	}
	s.judge()
	if len(s.verdict.Of("")) > 0 {
		s.keepState(ctx, "end")
	}
	stopped = true
	return s.proxy.stop(stopBound)
}

// start brings up engines, relays and the proxy.
func (s *soak) start(ctx context.Context) (err error) {
	if s.o.TLS {
		if s.certs, err = newCerts(s.o.Artefacts); err != nil {
			return err
		}
	}
	book := newHandleBook(s.tally, s.verdict)
	book.held = s.faults.held
	if s.fleet, err = startFleet(s.o, s.certs, book, s.faults.injected, func(l leased) { s.faults.found(l, s.verdict) }); err != nil {
		return err
	}
	if s.log, err = newProxyLog(s.o.Artefacts, s.key, s.tally, s.verdict, s.tookDown); err != nil {
		return err
	}
	if err = os.Remove(filepath.Join(s.o.Artefacts, stateFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	s.inForce = s.settings(nil, nil)
	if s.proxy, err = startProxy(ctx, s.o.Serve, []string{"GOMEMLIMIT=256MiB"}, s.o.Artefacts, s.inForce, s.log, s.verdict); err != nil {
		return err
	}
	return nil
}

// stateFile keeps over a hand-over what the operator has changed.
const stateFile = "members.json"

// settings returns the proxy's configuration. nil stands for the whole pool.
func (s *soak) settings(prefill, decode []string) map[string]any {
	if prefill == nil {
		prefill, decode = relayURLs(s.fleet.prefill), relayURLs(s.fleet.decode)
	}
	all := map[string]any{
		"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "pprof": true,
		"api_keys": []string{s.key}, "state_file": filepath.Join(s.o.Artefacts, stateFile),
		"prefill": prefill, "decode": decode,
		"health": map[string]any{
			"eject_for": "2s", "eject_max": "6s", "slow_start": "2s",
			"interval": "1s", "suspect_interval": "200ms", "timeout": "400ms",
		},
		"timeouts": map[string]any{
			"request": requestDeadline.String(), "header": "3s", "body": "3s", "dial": "500ms",
			"prefill": legTimeout.String(), "first_event": legTimeout.String(), "stream_idle": "3s",
			"write_stall": writeStall.String(), "upstream_idle": "2s", "prefill_abort_grace": "500ms", "drain": "30s",
		},
		"kv": map[string]any{"lease": kvLease.String(), "lease_margin": kvLeaseMargin.String()},
		// This is so little that all of it is resident within seconds, and adds no growth after
		// that.
		"routing": map[string]any{"prefix_memory": "8MiB"},
	}
	if s.certs != nil {
		s.certs.settings(all)
	}
	maps.Copy(all, s.o.Settings)
	return all
}

// baseline returns what the proxy holds at rest. Its heap is that of a process that has served,
// because what it allocates once is no leak.
func (s *soak) baseline(ctx context.Context) (process.Census, error) {
	_, admin, _ := s.proxy.now()
	if err := process.AwaitReady(ctx, admin); err != nil {
		return process.Census{}, err
	}
	if err := process.AwaitPolled(ctx, admin, 2*poolSize); err != nil {
		return process.Census{}, err
	}
	rest, err := s.quietest(ctx, restFor)
	if err != nil {
		return rest, err
	}
	var wg sync.WaitGroup
	for i := range s.o.Streams {
		wg.Go(func() {
			c := &client{s: s, r: rand.New(rand.NewPCG(s.o.Seed, uint64(1e6+i)))}
			defer c.drop()
			c.do(&request{load: "first", id: fmt.Sprintf("soak-first-%d", i), key: s.key, Call: completion.Call{Stream: true, Tokens: 4, Prompt: drawPrompt(c.r, "first")}})
		})
	}
	wg.Wait()
	served, err := s.census(ctx)
	rest.Heap = served.Heap
	return rest, err
}

// restFor is how long the proxy is watched at rest. Connections to engines may be idle for 2 s, and
// checks of the six engines come and go.
const restFor = 4 * time.Second

// quietest returns the smallest census of a span.
func (s *soak) quietest(ctx context.Context, span time.Duration) (least process.Census, err error) {
	for end := time.Now().Add(span); ; time.Sleep(250 * time.Millisecond) {
		c, err := s.census(ctx)
		if err != nil {
			return least, err
		}
		if least.Goroutines == 0 {
			least = c
		}
		least = least.Smallest(c)
		if time.Now().After(end) {
			return least, nil
		}
	}
}

// serveLoad runs clients, faults and the sampler until the last client has left.
func (s *soak) serveLoad(ctx context.Context, r *rand.Rand) {
	watching, stop := context.WithCancel(ctx)
	var beside, clients sync.WaitGroup
	loading, unload := context.WithCancel(ctx)
	defer unload()
	beside.Go(func() { s.watch.run(watching) })
	beside.Go(func() {
		st := &storm{s: s, r: r, busy: map[*station]bool{}}
		if process.SleepUntil(ctx, s.plan.start(stageFaults)) {
			st.run(ctx)
		}
		beside.Go(func() {
			process.SleepUntil(ctx, s.plan.end(stageRecovery))
			unload()
		})
		if process.SleepUntil(ctx, s.plan.end(stageHealing)) {
			s.wellAgain(ctx)
		}
	})
	op := &operator{s: s, r: rand.New(rand.NewPCG(s.o.Seed, 3<<20))}
	beside.Go(func() { op.run(loading) })
	if s.certs != nil {
		beside.Go(func() { (&renewer{s: s}).run(ctx) })
	}
	for i := range s.o.Streams {
		clients.Go(func() { s.streams(loading, i) })
	}
	for i := range max(s.o.Streams/6, 1) {
		clients.Go(func() { s.shorts(loading, i) })
	}
	for i := range max(s.o.Streams/20, 1) {
		clients.Go(func() { s.controls(loading, i) })
	}
	clients.Wait()
	stop()
	beside.Wait()
}

// streams is one client that holds one stream after the other.
func (s *soak) streams(ctx context.Context, i int) {
	c := &client{s: s, r: rand.New(rand.NewPCG(s.o.Seed, uint64(i)+1))}
	defer c.drop()
	process.SleepUntil(ctx, time.Now().Add(time.Duration(c.r.IntN(int(s.plan.until[stageWarm])))))
	for n := 0; ctx.Err() == nil; n++ {
		switch k := c.r.IntN(1000); {
		case k < malformed:
			c.misbehave("malformed", malformedRequests())
		case k < malformed+forbidden:
			c.misbehave("forbidden", forbiddenRequests())
		default:
			c.do(c.draw(fmt.Sprintf("soak-%d-%d", i, n)))
		}
		process.SleepUntil(ctx, time.Now().Add(time.Duration(c.r.IntN(100))*time.Millisecond))
	}
}

// shorts is one client that requests a short answer about once a second.
func (s *soak) shorts(ctx context.Context, i int) {
	c := &client{s: s, r: rand.New(rand.NewPCG(s.o.Seed, uint64(i)+1<<20))}
	defer c.drop()
	for n := 0; process.SleepUntil(ctx, time.Now().Add(time.Duration(200+c.r.IntN(1200))*time.Millisecond)); n++ {
		c.do(c.drawShort(fmt.Sprintf("soak-s%d-%d", i, n)))
	}
}

// controls is one client whose streams do not go through the proxy. What slows them down is the
// machine.
func (s *soak) controls(ctx context.Context, i int) {
	c := &client{s: s, r: rand.New(rand.NewPCG(s.o.Seed, uint64(i)+2<<20)), direct: true}
	defer c.drop()
	process.SleepUntil(ctx, time.Now().Add(time.Duration(c.r.IntN(int(s.plan.until[stageWarm])))))
	for n := 0; ctx.Err() == nil; n++ {
		c.do(c.drawControl(fmt.Sprintf("soak-c%d-%d", i, n)))
		process.SleepUntil(ctx, time.Now().Add(time.Duration(c.r.IntN(100))*time.Millisecond))
	}
}

// settle waits until no engine holds a block for a reader. It takes at most a lease.
func (s *soak) settle() {
	begin := time.Now()
	for time.Since(begin) < kvLease+time.Second && s.fleet.pinnedNow() > 0 {
		time.Sleep(20 * time.Millisecond)
	}
	s.settled = time.Since(begin)
}

// settleTime is far longer than idle connections may stay, which is 2 s and the time to a check of
// their backend.
const settleTime = 20 * time.Second

// leaks waits until the proxy holds no more than before the load.
func (s *soak) leaks(ctx context.Context) error {
	for end := time.Now().Add(settleTime); ; time.Sleep(250 * time.Millisecond) {
		var err error
		if s.after, err = s.census(ctx); err != nil {
			return err
		}
		if within(s.after, s.base) || time.Now().After(end) {
			return nil
		}
	}
}

// within allows what a probe of a backend holds at that moment, and a heap that is larger by a
// fifth but by no less than 2 MiB. A heap of 3 MiB cannot be measured to a fifth.
func within(c, base process.Census) bool {
	return c.Goroutines <= base.Goroutines+2 && c.FDs <= base.FDs+2 && c.Heap <= max(base.Heap*1.2, base.Heap+2<<20)
}
