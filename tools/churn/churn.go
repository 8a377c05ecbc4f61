// Package churn lets clients leave in every phase of a completion, and looks for what they leave
// behind.
package churn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"xpyd/kvparams"
	"xpyd/sim"
	"xpyd/tools/completion"
	"xpyd/tools/process"
)

// Proxy is a proxy under test.
type Proxy struct {
	Addr  string // host:port of the data port
	Admin string // host:port of the admin port
	Stop  func() error
}

// Options describe a churn run.
type Options struct {
	Clients         int
	Duration        time.Duration
	MinPerPhase     int  // a phase that is hit less often fails the run
	Prefill, Decode int  // engines
	Ranks           bool // the engines of a pool are the data-parallel ranks of one server
	// Connectors are those of the engines in turn, the n-th of each role with the n-th. None: NIXL.
	Connectors []sim.Connector
	Seed       uint64
	// Alone says that the proxy may send a request to decode alone, as its pd.mode says. Never
	// implies Alone and says that it must, so no client can leave in a prefill.
	Alone, Never bool

	// KeepAlive is how long engines keep idle connections, 5s like uvicorn. The proxy must give
	// them up before that.
	KeepAlive time.Duration

	// Start starts the proxy in front of the engines with these URLs.
	Start func(prefill, decode []string) (Proxy, error)
}

// These are the bounds of what comes after the last client.
const (
	ledgerBound = 10 * time.Second // ledgers must be empty by then; a lease lasts 30 s
	// The proxy closes an idle connection that is too old when it next checks the backend, every 5
	// s. The rest is for a machine that stalls.
	settleBound = 20 * time.Second
)

// Run makes clients leave in every phase of a completion. Then it looks for what they left
// behind: pinned blocks, goroutines, descriptors, requests in flight. It writes a report to out.
// Any of these, a wrong byte, or a phase that was hit too rarely is an error, which names the first
// fault in the report.
func Run(ctx context.Context, o Options, out io.Writer) (err error) {
	if err := o.Validate(); err != nil {
		return err
	}
	t := &counts{}
	b := newBarrier(t)
	b.together = slices.ContainsFunc(o.Connectors, func(c sim.Connector) bool {
		d, ok := kvparams.Lookup(string(c))
		return ok && d.Concurrent()
	})
	engines, err := startFleet(o, b.hook)
	defer func() { err = errors.Join(err, engines.close()) }()
	if err != nil {
		return err
	}
	prefill, decode, err := engines.pools(o)
	if err != nil {
		return err
	}
	proxy, err := o.Start(prefill, decode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, proxy.Stop()) }()
	if err := process.AwaitReady(ctx, proxy.Addr); err != nil {
		return err
	}
	if err := process.AwaitPolled(ctx, proxy.Admin, o.Prefill+o.Decode); err != nil {
		return err
	}
	// Probes of the backends come and go. The process must return to its quietest moment.
	base, err := quietest(o.KeepAlive + 500*time.Millisecond)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d clients for %v, %d prefill and %d decode engines, seed %d\n\n", o.Clients, o.Duration, o.Prefill, o.Decode, o.Seed)
	runClients(ctx, o, proxy.Addr, b, t)
	b.held.Wait()
	r := report{tally: t, engines: engines, base: base}
	if err := r.look(ctx, o, proxy.Admin); err != nil {
		return err
	}
	return r.write(out)
}

// Validate reports options with which no run is possible.
func (o *Options) Validate() error {
	if o.Clients < 1 || o.Duration <= 0 || o.Prefill < 1 || o.Decode < 1 || o.MinPerPhase < 0 || o.KeepAlive <= 0 {
		return fmt.Errorf("churn with %d clients for %v over %d prefill and %d decode engines, keep-alive %v: each must be more than 0",
			o.Clients, o.Duration, o.Prefill, o.Decode, o.KeepAlive)
	}
	for _, c := range o.Connectors {
		if o.Ranks && c.Stores() {
			return fmt.Errorf("churn with ranks: engines of %s have none", c)
		}
	}
	return nil
}

func (o *Options) has(c sim.Connector) bool { return slices.Contains(o.Connectors, c) }

// stores reports whether some engines need a folder for the KV.
func (o *Options) stores() bool { return slices.ContainsFunc(o.Connectors, sim.Connector.Stores) }

// connectorOf is that of the i-th engine of a role.
func (o *Options) connectorOf(i int) sim.Connector {
	if len(o.Connectors) == 0 {
		return ""
	}
	return o.Connectors[i%len(o.Connectors)]
}

// runClients returns when the last client has left.
func runClients(ctx context.Context, o Options, addr string, b *barrier, t *counts) {
	ctx, cancel := context.WithTimeout(ctx, o.Duration)
	defer cancel()
	var wg sync.WaitGroup
	for i := range o.Clients {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(o.Seed, uint64(i)))
			c := &client{addr: addr, barrier: b, tally: t, mayBeAlone: o.Alone}
			defer c.drop()
			for n := 0; pause(ctx, r); n++ {
				v := randomVisit(r, fmt.Sprintf("churn-%d-%d", i, n), o.phaseOf(i+n))
				v.loaded = v.loaded && !o.stores() // decode engines look for KV before they begin
				if err := c.do(v); err != nil {
					t.fail(v, err)
				}
			}
		})
	}
	wg.Wait()
}

// phaseOf is the n-th phase, in turn. A prefill of SGLang answers only when decode has its blocks, so
// there is no moment between the legs.
func (o *Options) phaseOf(n int) phase {
	p := phase(n % int(phases))
	if p == phaseAnswered && o.has(sim.ConnectorSGLang) {
		return phaseDecode
	}
	return p
}

// pause waits between two requests of a client, and returns false when the run is over. It keeps
// the machine below saturation, where the engines' own clocks would slip.
func pause(ctx context.Context, r *rand.Rand) bool {
	return process.SleepUntil(ctx, time.Now().Add(time.Duration(r.IntN(600))*time.Millisecond)) && ctx.Err() == nil
}

// randomVisit draws everything about a visit except its phase.
func randomVisit(r *rand.Rand, id string, p phase) *visit {
	v := &visit{
		id: id, phase: p, manner: completion.Manner(r.IntN(3)), call: completion.Random(r, id), loaded: r.IntN(2) == 0,
		entered: make(chan struct{}), left: make(chan struct{}), alone: make(chan struct{}),
	}
	switch p {
	case phaseStream:
		v.call.Stream = true
		v.at = 1 + r.IntN(v.call.Tokens-2) // a chat begins with its role event
	case phaseEnd:
		v.manner = completion.Manner(r.IntN(int(completion.Manners)))
	case phasePrefill:
		v.hold = randomHold(r)
		if r.IntN(8) == 0 {
			v.hold = 1500 * time.Millisecond // beyond prefill_abort_grace: P must be cut
		}
	case phasePrefillEnd, phaseDecode:
		v.hold = randomHold(r)
	}
	return v
}

// randomHold draws from both sides of the 100 ms within which the proxy notices.
func randomHold(r *rand.Rand) time.Duration { return time.Duration(r.IntN(250)) * time.Millisecond }

// report is what a run has found.
type report struct {
	tally       *counts
	engines     *fleet
	base, after census
	gauges      process.Gauges
	unpinned    time.Duration // time until the ledgers were empty, or until it gave up
	problems    []string
}

// look reads the engines' ledgers, the process and the proxy after all clients have left.
func (r *report) look(ctx context.Context, o Options, admin string) (err error) {
	ended := time.Now()
	r.engines.awaitUnpinned(ledgerBound)
	r.unpinned = time.Since(ended)
	r.problems = append(r.engines.problems(), r.tally.problems(o)...)
	if r.after, err = settle(r.base, o.KeepAlive+settleBound); err != nil {
		return err
	}
	if r.gauges, err = process.ReadGauges(ctx, admin); err != nil {
		return err
	}
	if !r.after.within(r.base) {
		r.problems = append(r.problems, fmt.Sprintf("goroutines %d -> %d, descriptors %d -> %d; more than before: %s",
			r.base.goroutines, r.after.goroutines, r.base.fds, r.after.fds, r.after.grown(r.base)))
	}
	r.problems = append(r.problems, r.gauges.Problems()...)
	return nil
}

func (r *report) write(out io.Writer) error {
	r.tally.write(out)
	fmt.Fprintf(out, "\n%-12s %8s   freed by\n", "engine", "pinned")
	for _, e := range r.engines.all() {
		l := e.Ledger()
		fmt.Fprintf(out, "%-12s %8d   %v\n", e.Name(), l.Pinned, l.FreedBy)
	}
	fmt.Fprintf(out, "all: freed by %s; looked at for %v after the last client, %d requests at engines\n",
		r.engines.freedBy(), r.unpinned.Round(time.Millisecond), r.engines.log.total())
	fmt.Fprintf(out, "goroutines %d -> %d, descriptors %d -> %d (not counted: %d idle workers, %d side-channel connections)\n",
		r.base.goroutines, r.after.goroutines, r.base.fds, r.after.fds, r.after.idleWorkers, r.after.sideReaders)
	fmt.Fprintf(out, "the proxy's own count: %s\n", r.gauges)
	if len(r.problems) == 0 {
		fmt.Fprintln(out, "\nchurn: ok, nothing stays behind")
		return nil
	}
	fmt.Fprintf(out, "\nchurn: FAILED\n  %s\n", strings.Join(r.problems, "\n  "))
	return fmt.Errorf("churn found %d faults: %s", len(r.problems), r.problems[0])
}
