package kvevents

import (
	"context"
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
	"xpyd/router/prefix"
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
	p, events, again := announcing(t, replay, blocks)
	entry := p.URL() + " kv_events=tcp://" + events
	if replay {
		entry += " kv_replay=tcp://" + again
	}
	x := listenTo(t, p, entry)
	x.wait("listens", router.NewsOf(x.b).Live)
	return x
}

// announcing is an engine that publishes.
func announcing(t *testing.T, replay bool, blocks int) (p *sim.Engine, events, again string) {
	t.Helper()
	o := sim.Options{Role: sim.RolePrefill, NumBlocks: blocks, MaxBatchedTokens: -1, Lease: 50 * time.Millisecond}.Fast()
	p, err := sim.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	if replay {
		again = "127.0.0.1:0"
	}
	if err := p.Announce("127.0.0.1:0", again); err != nil {
		t.Fatal(err)
	}
	events, again = p.KVEvents()
	return p, events, again
}

func listenTo(t *testing.T, p *sim.Engine, entry string) *rig {
	t.Helper()
	cfg := router.DefaultConfig()
	cfg.Prefill, cfg.Decode = router.MustEntries(entry), router.MustEntries("http://127.0.0.1:1")
	return listenAs(t, p, cfg)
}

func listenAs(t *testing.T, p *sim.Engine, cfg router.Config) *rig {
	t.Helper()
	r, err := router.New(cfg, 1, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	m := Start(Config{
		Router: r, Dial: (&net.Dialer{}).DialContext, Log: zerolog.Nop(),
		Guard: func(f func()) bool { f(); return true },
		Get: func(ctx context.Context, b *router.Backend, path string) (int, []byte, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.Base()+path, nil)
			if err != nil {
				return 0, nil, err
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				return 0, nil, err
			}
			defer func() { _ = res.Body.Close() }()
			body, err := io.ReadAll(res.Body)
			return res.StatusCode, body, err
		},
	})
	t.Cleanup(m.Close)
	x := &rig{t: t, p: p, r: r, m: m, b: r.Snapshot().Backends(router.Prefill)[0]}
	return x
}

// An engine without a role is asked where its events are, and listened to once. Both of its backends hear of its cache.
func TestOneSubscriptionForBothRoles(t *testing.T) {
	t.Parallel()
	p, _, _ := announcing(t, true, 256)
	cfg := router.DefaultConfig()
	cfg.Engines, cfg.DecodePolicy = router.MustEntries(p.URL()+" kv_events=auto"), "prefix"
	x := listenAs(t, p, cfg)
	twin := x.b.Twin()
	x.wait("both listen", func() bool { return router.NewsOf(x.b).Live() && router.NewsOf(twin).Live() })
	x.send(prose(1, 600))
	x.equal("one prompt")
	if n := router.NewsOf(twin).Counts().Blocks.Load(); int(n) != x.known() {
		t.Errorf("%d blocks in the other role, and %d in this one", n, x.known())
	}
	if n := p.Subscribers(); n != 1 {
		t.Errorf("%d subscriptions to one engine", n)
	}
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
	if e := router.MustEntries("http://h:8100 kv_events=auto")[0]; e.Events != router.AutoEvents || e.String() != "http://h:8100 kv_events=auto" {
		t.Errorf("%+v", e)
	}
	for _, bad := range []string{"kv_events=auto kv_events=auto", "kv_replay=auto", "kv_events=h:5557", "kv_events=tcp://h", "kv_events=tcp://h:0", "kv_replay=", "kv_events=tcp://h:1 kv_events=tcp://h:1"} {
		if _, err := router.ParseEntry("http://h:8100 " + bad); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

// A replay that is longer than its socket has room for is asked for again from where it ended.
func TestCutReplays(t *testing.T) {
	t.Parallel()
	x := newRig(t, true, 1024)
	x.send(prose(1, 600))
	x.equal("before")
	x.p.DropEvents(6, false)
	for i := range uint64(6) {
		x.send(prose(10+i, 600))
	}
	x.p.CutReplay(2)
	x.send(prose(20, 600))
	x.wait("the rest is replayed", func() bool { return x.known() == x.p.Cached() })
	if n := router.NewsOf(x.b).Counts().Missed.Load(); n != 0 {
		t.Errorf("%d batches missed", n)
	}
}

// Engines say themselves where they publish.
func TestSourcesAreRead(t *testing.T) {
	const two = `{"0":{"publisher":"zmq","endpoint":"tcp://*:5557","replay_endpoint":null},"1":{"publisher":"zmq","endpoint":"tcp://[::]:5558","replay_endpoint":"tcp://10.0.0.9:7"}}`
	for _, c := range []struct {
		body string
		rank int
		want address
	}{
		{two, 0, address{"h:5557", ""}},
		{two, 1, address{"h:5558", "10.0.0.9:7"}},
		{two, router.NoRank, address{}},
		{two, 2, address{}},
		{`{"0":{"publisher":"zmq","endpoint":"tcp://0.0.0.0:1","replay_endpoint":"tcp://*:2"}}`, router.NoRank, address{"h:1", "h:2"}},
		{`{"0":{"publisher":"zmq","endpoint":"ipc:///tmp/x"}}`, router.NoRank, address{}},
		{`{"0":{"publisher":"null","endpoint":"tcp://*:1"}}`, router.NoRank, address{}},
		{`{}`, router.NoRank, address{}},
		{`[]`, router.NoRank, address{}},
	} {
		if at, err := readSources([]byte(c.body), c.rank, "h"); at != c.want || (err == nil) != (c.want != address{}) {
			t.Errorf("%s, rank %d: %+v, %v", c.body, c.rank, at, err)
		}
	}
}

// What is behind a prompt is not known until its own part of the chain has come, however soon the next turn follows.
func TestTheNextTurnDoesNotHideAChain(t *testing.T) {
	x := newTestIndex(100)
	store := func(parent uint64, from, n int) {
		e := event{change: stored, parent: parent, size: 2, gpu: true}
		for i := range n {
			e.hashes = append(e.hashes, uint64(from+i+1))
			e.tokens = append(e.tokens, uint32(from+i), 0)
		}
		x.take(&e, time.Unix(100, 0))
	}
	store(0, 0, 3)
	x.hear(prefix.Heard{Keys: []uint64{7}, Ends: []int32{1}, Blocks: 1, Tokens: 6}, time.Unix(100, 0))
	store(3, 3, 2) // the next turn, or the next part of another prompt
	x.settle(time.Unix(101, 0))
	x.hear(prefix.Heard{Keys: []uint64{8}, Ends: []int32{2}, Blocks: 2, Tokens: 10, Cached: 6}, time.Unix(100, 0))
	x.settle(time.Unix(101, 0))
	if n := x.to[0].Counts().Learned.Load(); n != 2 {
		t.Errorf("%d of 2 prompts learned", n)
	}
}

// A block that prompts have computed at the same time is there as long as one of its copies is.
func TestCopiesCount(t *testing.T) {
	x := newTestIndex(10)
	e := event{change: stored, hashes: []uint64{1}, tokens: []uint32{1, 2}, size: 2, gpu: true}
	x.take(&e, time.Time{})
	x.take(&e, time.Time{})
	gone := event{change: removed, hashes: []uint64{1}, gpu: true}
	if x.take(&gone, time.Time{}); len(x.blocks) != 1 {
		t.Error("removed with its first copy")
	}
	if x.take(&gone, time.Time{}); len(x.blocks) != 0 {
		t.Error("still there")
	}
}
