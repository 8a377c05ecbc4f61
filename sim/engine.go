package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"xpyd/sim/announce"
)

// Engine is one simulated vLLM server. It outlives its own deaths: Kill ends an incarnation and
// Restart begins one, while records and faults stay.
type Engine struct {
	o       Options
	records *records

	transfer atomic.Int64 // nanoseconds a block; its owner is SetTransferPerBlock

	mu     sync.Mutex
	core   *core   // the current or last incarnation
	past   []*core // dead ones for whose goroutines Close waits
	fault  armedFault
	closed bool

	restarts sync.WaitGroup // restarts that the engine asked for itself

	loads bool // it loads adapters; guarded by mu

	events, replay string // where it publishes its KV events; empty: nowhere; guarded by mu
}

// Start brings up an engine. It chooses the ports, which stay the same over restarts.
func Start(o Options) (*Engine, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &Engine{o: o, records: newRecords(o.Log)}
	e.SetTransferPerBlock(o.TransferPerBlock)
	if e.core, err = startCore(e, o); err != nil {
		return nil, err
	}
	e.o.Listen = e.core.http.Addr().String()
	if e.core.side != nil {
		e.o.SideChannel = e.core.side.Addr().String()
	}
	if e.core.boot != nil {
		e.o.Bootstrap = e.core.boot.Addr().String()
	}
	return e, nil
}

// Announce makes the engine publish what it stores in its KV cache and removes, at host:port as in vLLM's
// --kv-events-config. At replay it says that once more, unless it is empty. Call it before any request.
func (e *Engine) Announce(events, replay string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events, e.replay = events, replay
	if err := e.announceFrom(e.core); err != nil {
		return err
	}
	e.events, e.replay = e.core.ledger.news.Addrs()
	return nil
}

// LoadAdapters makes the engine load and unload LoRA adapters, as with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING. Call
// it before any request.
func (e *Engine) LoadAdapters() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.loads, e.core.adapters = true, new(adapters)
}

// announceFrom makes an incarnation publish. Each has other hashes.
func (e *Engine) announceFrom(c *core) (err error) {
	if e.events == "" {
		return nil
	}
	l := c.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	l.news, err = announce.Start(e.events, e.replay, hashText(c.id), c.gate.wait)
	l.cache.listed = err == nil
	return err
}

// KVEvents are host:port of the engine's KV events and of their replay; empty if there are none.
func (e *Engine) KVEvents() (events, replay string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.events, e.replay
}

// DropEvents makes the engine not publish its next n batches of KV events. If forget is set, a replay does not have them
// either.
func (e *Engine) DropEvents(n int, forget bool) { e.current().ledger.news.Drop(n, forget) }

// CutReplay makes the next replay of KV events drop what comes after n batches, as a socket does that has no room for more.
func (e *Engine) CutReplay(n int) { e.current().ledger.news.CutReplay(n) }

// Subscribers is how many listen to the engine's KV events.
func (e *Engine) Subscribers() int { return e.current().ledger.news.Subscribers() }

// ClearCache empties the prefix cache, as POST /reset_prefix_cache does while nothing runs.
func (e *Engine) ClearCache() { e.current().ledger.uncache(math.MaxInt) }

// Evict takes the n free blocks out of the prefix cache that have not been used for longest.
func (e *Engine) Evict(n int) { e.current().ledger.uncache(n) }

// Cached is how many blocks the prefix cache has.
func (e *Engine) Cached() int {
	l := e.current().ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.cache.byKey)
}

// Addr is host:port of the HTTP side.
func (e *Engine) Addr() string { return e.o.Listen }

// URL is the engine's base URL, without a trailing slash.
func (e *Engine) URL() string {
	if e.o.TLS != nil {
		return "https://" + e.o.Listen
	}
	return "http://" + e.o.Listen
}

// Name is Options.Name.
func (e *Engine) Name() string { return e.o.Name }

// SideChannelAddr is host:port of the side channel, or "" without a connector.
func (e *Engine) SideChannelAddr() string {
	if !e.o.reachable() {
		return ""
	}
	return e.o.SideChannel
}

// BootstrapPort is the port at which others have to be told to find the engine, or 0 if its connector has none.
func (e *Engine) BootstrapPort() int {
	addr := ""
	switch e.o.Connector {
	case ConnectorMooncake:
		addr = e.o.Bootstrap
	case ConnectorSGLang, ConnectorP2P:
		addr = e.o.SideChannel
	}
	if e.o.Connector == ConnectorWrite && e.o.Role == RoleDecode {
		addr = e.o.SideChannel
	}
	_, text, _ := net.SplitHostPort(addr) // "" has no port
	port, _ := strconv.Atoi(text)
	return port
}

// Ledger returns a snapshot of the blocks that this incarnation pins or pinned.
func (e *Engine) Ledger() Ledger { return e.current().ledger.snapshot() }

// Used is how many KV blocks requests and pins hold.
func (e *Engine) Used() int { return e.current().ledger.load().used }

// Requests lists what the last 1024 completion requests carried, oldest first, across restarts. A
// request is listed just before the last bytes of its answer are written.
func (e *Engine) Requests() []Record { return e.records.list() }

// Freeze stops the engine as SIGSTOP does. It accepts and answers nothing, its side channel is
// silent, and its leases do not run out. Ledger and Requests still work, because they do not ask
// the engine.
func (e *Engine) Freeze() { e.current().gate.shut() }

// Thaw undoes Freeze.
func (e *Engine) Thaw() { e.current().gate.open() }

// Kill ends the engine as kill -9 does: every connection is reset and both ports are closed. It
// does not wait for the goroutines that end with it.
func (e *Engine) Kill() { e.current().kill() }

// Died is closed when the current incarnation has ended by Kill, Restart, Close, or a handle that
// kills. During a Restart it waits for the next one.
func (e *Engine) Died() <-chan struct{} { return e.current().life.Done() }

// Restart starts a new incarnation on the same ports, with a new engine id and an empty ledger. It
// first kills an engine that still runs.
func (e *Engine) Restart() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return fmt.Errorf("restart engine %s: closed", e.o.Name)
	}
	e.core.kill()
	next, err := startCore(e, e.o)
	if err != nil {
		return fmt.Errorf("restart engine %s: %w", e.o.Name, err)
	}
	e.core.letGo()
	e.past = append(e.past, e.core)
	e.core = next
	return next.refuse(e.fault.Kind == FaultRefuse)
}

// Upgrade is Restart with another Options.Version.
func (e *Engine) Upgrade(version string) error {
	e.mu.Lock()
	e.o.Version = version
	e.mu.Unlock()
	return e.Restart()
}

// Close ends the engine, breaks off what is running, and waits for all its goroutines, including
// those of killed incarnations.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	cores := append(e.past, e.core)
	e.past = nil
	e.mu.Unlock()
	e.restarts.Wait()
	for _, c := range cores {
		c.stop(false)
		c.letGo()
		c.wg.Wait()
	}
	return nil
}

// SetFault makes the engine misbehave until another fault replaces this one or its Count is used
// up. The zero Fault clears it.
func (e *Engine) SetFault(f Fault) error {
	if err := f.validate(); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fault = armedFault{Fault: f, left: f.Count}
	if f.Kind == FaultRandom {
		e.fault.dice = rand.New(rand.NewPCG(f.Seed, 0))
	}
	return e.core.refuse(f.Kind == FaultRefuse)
}

// SetTransferPerBlock changes Options.TransferPerBlock of a running decode engine. It applies to
// transfers that begin later, and survives restarts.
func (e *Engine) SetTransferPerBlock(d time.Duration) { e.transfer.Store(int64(d)) }

func (e *Engine) transferPerBlock() time.Duration { return time.Duration(e.transfer.Load()) }

// acceptDelay is how long a new connection waits before it is served.
func (e *Engine) acceptDelay() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fault.Kind != FaultAccept {
		return 0
	}
	return e.fault.Delay
}

// restartSoon restarts the engine from one of its own goroutines, which Restart ends. Close waits
// for it.
func (e *Engine) restartSoon() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.restarts.Go(func() { _ = e.Restart() }) // without its port it stays dead, and Died reports that
	}
}

func (e *Engine) current() *core {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.core
}

func (e *Engine) emit(phase Phase, requestID string, index int) {
	if e.o.Hook != nil {
		e.o.Hook(Event{Phase: phase, RequestID: requestID, Engine: e.o.Name, Index: index})
	}
}

func splitPort(addr net.Addr) (string, int) {
	host, port, _ := net.SplitHostPort(addr.String()) // a listener's own address always splits
	n, _ := strconv.Atoi(port)
	return host, n
}
