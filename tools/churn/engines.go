package churn

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"xpyd/sim"
	"xpyd/tools/completion"
)

// fleet is the engines of a churn run.
type fleet struct {
	prefill, decode []*sim.Engine
	fronts          []*sim.Ranks // one before each pool whose engines are ranks
	log             recordCounter
	storage         string // folder for the KV of connectors that need one; "" without
	firstSide       int    // port of the side channel of rank 0 of the role that is started, where those of its ranks follow each other
	limited         bool   // what no decode reads waits for the engine's own limit, and nothing else ends it
}

// startFleet returns what it has started also when it fails.
func startFleet(o Options, hook func(sim.Event)) (*fleet, error) {
	f := &fleet{limited: o.has(sim.ConnectorP2P)}
	if o.stores() {
		folder, err := os.MkdirTemp("", "xpyd-churn-kv-")
		if err != nil {
			return f, fmt.Errorf("make a folder for KV: %w", err)
		}
		f.storage = folder
	}
	for i := range o.Prefill + o.Decode {
		opts := sim.Options{
			Name: fmt.Sprintf("prefill-%d", i), Role: sim.RolePrefill, Model: completion.Model,
			Connector: o.connectorOf(i), Storage: f.storage,
			// Room for all clients at once: what queues here is not what is tested.
			MaxSeqs: 2*o.Clients + 64, NumBlocks: 160*o.Clients + 4096,
			PrefillTokensPerSecond: 100_000, TransferPerBlock: 100 * time.Microsecond, TokenLatency: 2 * time.Millisecond,
			KeepAlive: o.KeepAlive, Log: &f.log, Hook: hook,
		}
		if f.limited {
			opts.Lease = ledgerBound / 4
		}
		if i >= o.Prefill {
			opts.Name, opts.Role = fmt.Sprintf("decode-%d", i-o.Prefill), sim.RoleDecode
			opts.Connector = o.connectorOf(i - o.Prefill)
		}
		if err := f.rank(o, &opts); err != nil {
			return f, err
		}
		e, err := sim.Start(opts)
		if err != nil {
			return f, fmt.Errorf("start %s: %w", opts.Name, err)
		}
		if i < o.Prefill {
			f.prefill = append(f.prefill, e)
		} else {
			f.decode = append(f.decode, e)
		}
	}
	return f, nil
}

// rank makes the engine to come a rank, if the engines of its role are ranks.
func (f *fleet) rank(o Options, opts *sim.Options) error {
	if !o.Ranks {
		return nil
	}
	opts.Parallel.Rank, opts.Parallel.Ranks = len(f.prefill), o.Prefill
	if opts.Role == sim.RoleDecode {
		opts.Parallel.Rank, opts.Parallel.Ranks = len(f.decode), o.Decode
	}
	if !opts.Connector.Neighbours(opts.Role) {
		return nil
	}
	if opts.Parallel.Rank == 0 {
		var err error
		if f.firstSide, err = freePorts(opts.Parallel.Ranks); err != nil {
			return err
		}
	}
	opts.SideChannel = net.JoinHostPort("127.0.0.1", strconv.Itoa(f.firstSide+opts.Parallel.Rank))
	return nil
}

// freePorts returns the first of n ports of loopback that follow each other and are free now. They lie below those that Linux
// gives to whoever asks for any.
func freePorts(n int) (first int, err error) {
	for range 50 {
		var all []net.Listener
		first, err = 20_000+rand.N(12_000), nil
		for i := range n {
			var l net.Listener
			if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(first+i))); err != nil {
				break
			}
			all = append(all, l)
		}
		for _, l := range all {
			_ = l.Close()
		}
		if err == nil {
			return first, nil
		}
	}
	return 0, fmt.Errorf("find %d free ports that follow each other: %w", n, err)
}

func (f *fleet) close() error {
	var errs []error
	for _, front := range f.fronts {
		errs = append(errs, front.Close())
	}
	for _, e := range f.all() {
		errs = append(errs, e.Close())
	}
	if f.storage != "" {
		errs = append(errs, os.RemoveAll(f.storage))
	}
	return errors.Join(errs...)
}

func (f *fleet) all() []*sim.Engine { return slices.Concat(f.prefill, f.decode) }

// ranks puts the engines behind one port, as data-parallel ranks of one server, and lists them as a pool
// does.
func (f *fleet) ranks(o Options, engines []*sim.Engine) ([]string, error) {
	var urls []string
	var ports []int // of the bootstrap servers
	for _, e := range engines {
		urls = append(urls, e.URL())
		if port := e.BootstrapPort(); port > 0 {
			ports = append(ports, port)
		}
	}
	front, err := sim.StartRanks(urls...)
	if err != nil {
		return nil, err
	}
	f.fronts = append(f.fronts, front)
	bootstrap := ""
	if len(ports) > 0 {
		port := ports[0]
		if o.has(sim.ConnectorMooncake) {
			if port, err = front.JoinBootstraps("127.0.0.1:0", ports...); err != nil {
				return nil, err
			}
		}
		bootstrap = fmt.Sprintf(" bootstrap=%d", port)
	}
	var all []string
	for rank := range engines {
		all = append(all, fmt.Sprintf("%s@%d%s", front.URL(), rank, bootstrap))
	}
	return all, nil
}

// pools are the engines as the proxy's two pools list them.
func (f *fleet) pools(o Options) (prefill, decode []string, err error) {
	if !o.Ranks {
		return o.entries(f.prefill), o.entries(f.decode), nil
	}
	if prefill, err = f.ranks(o, f.prefill); err == nil {
		decode, err = f.ranks(o, f.decode)
	}
	return prefill, decode, err
}

// entries are the engines of a role as pools list them.
func (o *Options) entries(engines []*sim.Engine) []string {
	var all []string
	for i, e := range engines {
		entry := e.URL()
		if port := e.BootstrapPort(); port > 0 {
			entry += fmt.Sprintf(" bootstrap=%d", port)
		}
		if c := o.connectorOf(i); c != o.connectorOf(0) {
			entry += " connector=" + string(c)
		}
		all = append(all, entry)
	}
	return all
}

// pinned is how many blocks all engines hold, for readers and for requests.
func (f *fleet) pinned() int {
	n := 0
	for _, e := range f.all() {
		n += max(e.Ledger().Pinned, e.Used())
	}
	return n
}

// awaitUnpinned waits until no engine holds a block for a reader, at most bound.
func (f *fleet) awaitUnpinned(bound time.Duration) {
	for end := time.Now().Add(bound); f.pinned() > 0 && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
}

// problems reads the ledgers: what is still pinned, and what was not given back.
func (f *fleet) problems() []string {
	var all []string
	for _, e := range f.all() {
		l := e.Ledger()
		if l.Pinned > 0 {
			all = append(all, fmt.Sprintf("%s holds %d pinned blocks of %s", e.Name(), l.Pinned, waiting(l)))
		}
		if n := e.Used(); l.Pinned == 0 && n > 0 {
			all = append(all, fmt.Sprintf("%s holds %d blocks of requests that have ended", e.Name(), n))
		}
		if n := l.FreedBy["lease"]; n > 0 && !f.limited {
			all = append(all, fmt.Sprintf("%s: %d prefills were freed by their lease alone", e.Name(), n))
		}
		if l.StaleReads > 0 {
			all = append(all, fmt.Sprintf("%s: %d reads of blocks that were no longer pinned", e.Name(), l.StaleReads))
		}
	}
	return append(all, f.log.problems()...)
}

// waiting counts the entries that are still pinned, and names the first ones.
func waiting(l sim.Ledger) string {
	var ids []string
	for _, e := range l.Entries {
		if e.FreedBy == "" {
			ids = append(ids, e.RequestID)
		}
	}
	return fmt.Sprintf("%d prefills, the first %v", len(ids), ids[:min(3, len(ids))])
}

// freedBy joins how the entries of all ledgers ended.
func (f *fleet) freedBy() string {
	sum := map[string]int{"read": 0, "abort": 0, "reject": 0, "lease": 0}
	for _, e := range f.prefill {
		for by, n := range e.Ledger().FreedBy {
			sum[by] += n
		}
	}
	var parts []string
	for _, by := range slices.Sorted(maps.Keys(sum)) {
		parts = append(parts, fmt.Sprintf("%s %d", by, sum[by]))
	}
	return fmt.Sprint(parts)
}

// recordCounter reads the engines' log lines, as their own memory of requests is
// bounded: no handle may be used twice, no engine may die.
type recordCounter struct {
	mu                             sync.Mutex
	lines                          int
	reused, wrong, stranded, death int
}

func (r *recordCounter) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines++
	for _, c := range []struct {
		mark  string
		count *int
	}{
		{`"handle_reuse":true`, &r.reused}, {`"wrong_kv":true`, &r.wrong},
		{`"outcome":"stranded"`, &r.stranded}, {`"outcome":"dead"`, &r.death},
	} {
		if bytes.Contains(line, []byte(c.mark)) {
			*c.count++
		}
	}
	return len(line), nil
}

func (r *recordCounter) problems() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, c := range []struct {
		count int
		what  string
	}{
		{r.reused, "handles were used twice"}, {r.wrong, "requests were answered from another prompt's blocks"},
		{r.stranded, "prefills were cut between their end and their answer"}, {r.death, "requests were met by a dying engine"},
	} {
		if c.count > 0 {
			all = append(all, fmt.Sprintf("%d %s", c.count, c.what))
		}
	}
	return all
}

func (r *recordCounter) total() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lines
}
