package kvevents

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"xpyd/router"
	"xpyd/sim"
)

// rig is an engine that publishes, and a manager that listens to it.
type rig struct {
	t *testing.T
	p *sim.Engine
	r *router.Router
	m *Manager
	b *router.Backend
}

func newRig(t *testing.T, replay bool, blocks int) *rig {
	t.Helper()
	o := sim.Options{Role: sim.RolePrefill, NumBlocks: blocks, MaxBatchedTokens: -1, Lease: 50 * time.Millisecond}.Fast()
	p, err := sim.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	again := ""
	if replay {
		again = "127.0.0.1:0"
	}
	if err := p.Announce("127.0.0.1:0", again); err != nil {
		t.Fatal(err)
	}
	events, again := p.KVEvents()
	entry := p.URL() + " kv_events=tcp://" + events
	if replay {
		entry += " kv_replay=tcp://" + again
	}
	x := listenTo(t, p, entry)
	x.wait("listens", router.NewsOf(x.b).Live)
	return x
}

func listenTo(t *testing.T, p *sim.Engine, entry string) *rig {
	t.Helper()
	cfg := router.DefaultConfig()
	cfg.Prefill, cfg.Decode = router.MustEntries(entry), router.MustEntries("http://127.0.0.1:1")
	r, err := router.New(cfg, 1, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	m := Start(Config{
		Router: r, Dial: (&net.Dialer{}).DialContext, Log: zerolog.Nop(),
		Guard: func(f func()) bool { f(); return true },
	})
	t.Cleanup(m.Close)
	x := &rig{t: t, p: p, r: r, m: m, b: r.Snapshot().Backends(router.Prefill)[0]}
	return x
}

func (x *rig) wait(what string, ok func() bool) {
	x.t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			x.t.Fatalf("never: %s", what)
		}
	}
}

// send has the engine compute a prompt, and returns how many tokens it has.
func (x *rig) send(prompt string) {
	x.t.Helper()
	body := fmt.Sprintf(`{"model":"sim","prompt":%q,"max_tokens":1,"kv_transfer_params":{"do_remote_decode":true}}`, prompt)
	res, err := http.Post(x.p.URL()+"/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		x.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != http.StatusOK {
		x.t.Fatal(res.Status, err)
	}
}

// known is how many blocks the index has.
func (x *rig) known() int { return int(router.NewsOf(x.b).Counts().Blocks.Load()) }

func prose(seed uint64, n int) string {
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('a' + r.IntN(26))
	}
	return string(b)
}

// equal waits until the index has as many blocks as the engine's cache.
func (x *rig) equal(what string) {
	x.t.Helper()
	x.wait(fmt.Sprintf("%s: as many blocks as the engine, which has %d", what, x.p.Cached()), func() bool { return x.known() == x.p.Cached() })
}

func TestIndexEqualsTheCache(t *testing.T) {
	t.Parallel()
	x := newRig(t, true, 256)
	x.send(prose(1, 600))
	x.equal("one prompt")
	for i := range uint64(60) {
		x.send(prose(i%20, 200+100*int(i%7)))
	}
	x.equal("more than the cache holds")
	x.p.Evict(10)
	x.equal("after an eviction")
	x.p.ClearCache()
	x.equal("after a reset")
	x.send(prose(3, 600))
	x.equal("after that")
	if n := router.NewsOf(x.b).Counts().Missed.Load(); n != 0 {
		t.Errorf("%d batches missed", n)
	}
}

func TestGapsAreReplayed(t *testing.T) {
	t.Parallel()
	x := newRig(t, true, 1024)
	x.send(prose(1, 600))
	x.equal("before")
	x.p.DropEvents(3, false)
	for i := range uint64(4) {
		x.send(prose(10+i, 600))
	}
	x.equal("after a gap")
	x.p.DropEvents(1, true)
	x.send(prose(20, 600))
	x.send(prose(21, 640))
	x.wait("a batch is missed", func() bool { return router.NewsOf(x.b).Counts().Missed.Load() == 1 })
	x.wait("only what came after the gap is known", func() bool { return x.known() == 640/4/16 })
}

func TestGapsWithoutReplay(t *testing.T) {
	t.Parallel()
	x := newRig(t, false, 1024)
	x.wait("subscribed", func() bool {
		x.send(prose(rand.Uint64(), 64)) // the first batches may come too early
		return x.known() > 0
	})
	x.p.DropEvents(2, false)
	for i := range uint64(3) {
		x.send(prose(30+i, 640))
	}
	x.wait("two batches missed", func() bool { return router.NewsOf(x.b).Counts().Missed.Load() == 2 })
	x.wait("what came after", func() bool { return x.known() == 640/4/16 })
}

func TestRestartBeginsAnew(t *testing.T) {
	t.Parallel()
	x := newRig(t, true, 1024)
	for i := range uint64(5) {
		x.send(prose(i, 600))
	}
	x.equal("before")
	if err := x.p.Restart(); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(8) { // more batches than before, so that the numbers go on
		x.send(prose(50+i, 300))
	}
	x.equal("after a restart")
}

// What the events say of blocks corrects what is believed of prompts, in text, that this process has sent.
func TestEventsCorrectTheEstimate(t *testing.T) {
	t.Parallel()
	x := newRig(t, true, 4096)
	x.equal("empty")
	text := prose(7, 256*40)
	w := router.Want{Role: router.Prefill, Tokens: len(text) / 4, Prefix: hashes(7, 40), Alone: true}
	cached := func() int { return x.r.Snapshot().Cached(w, x.b) }
	serve := func() {
		var l router.Lease
		if err := x.r.Snapshot().AcquireFor(w, &l); err != nil {
			t.Fatal(err)
		}
		had := x.p.Requests()
		x.send(text)
		l.Told(w.Prefix, len(text)/4, x.p.Requests()[len(had)].CachedTokens)
		l.Release(router.OK)
	}
	serve()
	x.wait("learned", func() bool { return router.NewsOf(x.b).Counts().Learned.Load() == 1 })
	if n := cached(); n < w.Tokens*9/10 {
		t.Fatalf("%d of %d tokens expected in the cache", n, w.Tokens)
	}
	x.wait("no longer pinned", func() bool { x.p.Evict(80); return x.p.Cached() <= 80 })
	x.equal("evicted")
	x.wait("half of it is expected", func() bool { n := cached(); return n > w.Tokens*4/10 && n < w.Tokens*6/10 })

	x.p.ClearCache()
	x.wait("nothing is expected", func() bool { return cached() == 0 })

	x.send(text) // by another replica
	x.wait("all of it is expected", func() bool { return cached() > w.Tokens*9/10 })
}

// hashes are those of a prompt's blocks.
func hashes(seed uint64, n int) []uint64 {
	r := rand.New(rand.NewPCG(seed, 2))
	all := make([]uint64, n)
	for i := range all {
		all[i] = r.Uint64()
	}
	return all
}

// A peer that is no publisher, one that is silent, and one that sends nonsense do no harm.
func TestLiars(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]func(net.Conn){
		"closes": func(net.Conn) {},
		"silent": func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
		"noise":  func(c net.Conn) { _, _ = c.Write([]byte(strings.Repeat("\xff\x00\x07", 1000))) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }()
			tried := make(chan struct{}, 100)
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					serve(c)
					_ = c.Close()
					tried <- struct{}{}
				}
			}()
			x := listenTo(t, nil, "http://127.0.0.1:9 kv_events=tcp://"+l.Addr().String())
			if name != "silent" {
				<-tried
			}
			w := router.Want{Role: router.Prefill, Tokens: 640, Prefix: hashes(1, 10), Alone: true}
			var lease router.Lease
			if err := x.r.Snapshot().AcquireFor(w, &lease); err != nil {
				t.Fatal(err)
			}
			lease.Release(router.OK)
			if n := x.r.Snapshot().Cached(w, x.b); n == 0 {
				t.Error("nothing is expected in the cache")
			}
		})
	}
}

func TestEntriesNameEvents(t *testing.T) {
	e := router.MustEntries("http://h:8100@0..1 kv_events=tcp://*:5557 kv_replay=tcp://r:5558")[0]
	if e.Events != "h:5557" || e.Replay != "r:5558" || atRank(e.Events, 1) != "h:5558" {
		t.Errorf("%+v", e)
	}
	if again, err := router.ParseEntry(e.String()); err != nil || again != e {
		t.Errorf("%+v: %v", again, err)
	}
	for _, bad := range []string{"kv_events=h:5557", "kv_events=tcp://h", "kv_events=tcp://h:0", "kv_replay=", "kv_events=tcp://h:1 kv_events=tcp://h:1"} {
		if _, err := router.ParseEntry("http://h:8100 " + bad); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}
