package kvevents

import (
	"container/heap"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"xpyd/router"
	"xpyd/router/prefix"
)

// fleet is several replicas of xpyd that know nothing of each other before the same engines, in virtual time. Prompts are
// of words of 16 bytes and 2 to 6 tokens, so that xpyd, which counts bytes, does not know where an engine's block ends.
type fleet struct {
	knows    string // what replicas know of the caches: estimate, events or oracle
	from     time.Time
	now      float64 // seconds
	order    int
	due      dues
	rand     *rand.Rand
	replicas []*replica
	prefill  []*computer
	busy     []float64 // by decode engine: until when its network is

	asked, cached int // tokens of the turns after the first that began after warm, and those of them that were cached
	warm          float64
	took          []float64
}

// replica is one xpyd.
type replica struct {
	r     *router.Router
	names names
	index []*index
	heard []chan prefix.Heard
	most  [2][]int64 // in flight since the last reading, by role and engine
}

const (
	fleetBlock   = 16     // tokens of an engine's block
	fleetSpeed   = 40_000 // tokens that an engine computes a second
	fleetRoom    = 4096   // blocks of an engine's cache
	fleetNews    = 0.003  // seconds until an event is heard
	wordBytes    = 16
	fleetNetwork = 400_000 // tokens that a decode engine pulls a second
)

// computer is a prefill engine, which computes one prompt after the other and keeps the blocks that it used last.
type computer struct {
	seed    uint64
	queue   []*turn
	pending int64
	used    map[uint64]int // by block: when, in uses
	lru     []use
	uses    int
}

type use struct {
	key uint64
	at  int
}

// chat is one conversation, or a plain prompt that grows.
type chat struct {
	id     uint64
	plain  bool
	bytes  int
	prefix []uint64 // of whole blocks of 256 bytes
	ends   []int    // tokens up to the end of each
	tokens []uint32
	keys   []uint64 // of the engine's whole blocks
	sum    uint64   // of all words so far
}

// turn is a request.
type turn struct {
	chat    *chat
	first   bool
	by      *replica
	lease   *router.Lease // of prefill
	decode  *router.Lease
	begun   float64
	bytes   int
	engine  int
	had     int // tokens
	after   func()
	dropped []uint64
}

type due struct {
	at    float64
	order int
	do    func()
}

type dues []due

func (d dues) Len() int { return len(d) }
func (d dues) Less(i, j int) bool {
	return d[i].at < d[j].at || d[i].at == d[j].at && d[i].order < d[j].order
}
func (d dues) Swap(i, j int) { d[i], d[j] = d[j], d[i] }
func (d *dues) Push(x any)   { *d = append(*d, x.(due)) }
func (d *dues) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}

func (f *fleet) after(seconds float64, do func()) {
	f.order++
	heap.Push(&f.due, due{f.now + seconds, f.order, do})
}

func (f *fleet) run(seconds float64) {
	for f.now < seconds {
		d := heap.Pop(&f.due).(due)
		f.now = d.at
		d.do()
	}
}

func (f *fleet) time() time.Time { return f.from.Add(time.Duration(f.now * float64(time.Second))) }

func newFleet(b *testing.B, knows string, replicas, engines int, seed uint64) *fleet {
	f := &fleet{knows: knows, from: time.Unix(1000, 0), rand: rand.New(rand.NewPCG(seed, 2)), busy: make([]float64, engines)}
	for n := range engines {
		f.prefill = append(f.prefill, &computer{seed: uint64(n) * 0x9e3779b97f4a7c15, used: map[uint64]int{}})
	}
	cfg := router.DefaultConfig()
	cfg.PrefillPolicy, cfg.Health.SlowStart, cfg.Affinity.Headers = "prefix", 0, []string{"x-session"}
	for n := range engines {
		cfg.Prefill = append(cfg.Prefill, router.MustEntries(fmt.Sprintf("http://p%d:1", n))...)
		cfg.Decode = append(cfg.Decode, router.MustEntries(fmt.Sprintf("http://d%d:1", n))...)
	}
	bound := new(atomic.Int64)
	bound.Store(1 << 20)
	for range replicas {
		r, err := router.New(cfg, 1, f.time)
		if err != nil {
			b.Fatal(err)
		}
		x := &replica{r: r, most: [2][]int64{make([]int64, engines), make([]int64, engines)}}
		x.names.resize(1 << 30)
		for n, back := range r.Snapshot().Backends(router.Prefill) {
			news := router.NewsOf(back)
			x.heard = append(x.heard, make(chan prefix.Heard, heardRoom))
			x.index = append(x.index, newIndex(caches{news}, &x.names, bound))
			if knows != "estimate" {
				news.Listen(x.heard[n])
			}
		}
		f.replicas = append(f.replicas, x)
		f.after(f.rand.Float64(), func() { f.poll(x) })
	}
	return f
}

// poll is a reading of all engines, one a second.
func (f *fleet) poll(x *replica) {
	for n, b := range x.r.Snapshot().Backends(router.Prefill) {
		e := router.UnknownEngine()
		e.Running, e.Waiting, e.BlockSize, e.Blocks = f.prefill[n].pending, 0, fleetBlock, fleetRoom
		b.SetEngine(e, x.most[0][n], 3*time.Second)
		x.most[0][n] = b.InFlight()
	}
	f.after(1, func() { f.poll(x) })
}

// say adds so many words to the chat.
func (c *chat) say(r *rand.Rand, words int) {
	var raw [8]byte
	for range words {
		word := r.Uint64()
		binary.LittleEndian.PutUint64(raw[:], c.sum^word)
		c.sum = xxhash.Sum64(raw[:])
		for i := range 2 + word%5 {
			c.tokens = append(c.tokens, uint32(c.sum+i))
			if n := len(c.tokens); n%fleetBlock == 0 {
				c.keys = append(c.keys, max(1, c.sum*31+i))
			}
		}
		if c.bytes += wordBytes; c.bytes%256 == 0 {
			c.prefix, c.ends = append(c.prefix, c.sum), append(c.ends, len(c.tokens))
		}
	}
}

// workload is chats of so many turns, one after the other in each of so many places.
type workload struct {
	chats, turns int
	first, more  int // words of the first turn, and the mean of each further one
	plain        bool
	sessions     bool
	think        float64 // mean seconds between two turns
}

func (f *fleet) talk(w workload) {
	c := &chat{id: f.rand.Uint64(), plain: w.plain}
	c.sum = c.id
	c.say(f.rand, w.first)
	var next func(n int)
	next = func(n int) {
		if n == w.turns {
			f.talk(w)
			return
		}
		f.serve(c, n == 0, w.sessions, func() {
			c.say(f.rand, w.more/2+f.rand.IntN(w.more))
			f.after(w.think*f.rand.ExpFloat64(), func() { next(n + 1) })
		})
	}
	f.after(w.think*f.rand.ExpFloat64(), func() { next(0) })
}

// serve sends a turn through any replica.
func (f *fleet) serve(c *chat, first, sessions bool, done func()) {
	x := f.replicas[f.rand.IntN(len(f.replicas))]
	t := &turn{chat: c, first: first, by: x, begun: f.now, bytes: c.bytes, lease: new(router.Lease), decode: new(router.Lease), after: done}
	if f.knows == "oracle" {
		f.look(x, c)
	}
	w := router.Want{Role: router.Decode, Tokens: c.bytes / 4, Prefix: c.prefix, Conversation: c.id}
	if c.plain {
		w.Conversation = 0
	}
	if sessions {
		w.Key = c.id
	}
	snap := x.r.Snapshot()
	if err := snap.AcquireFor(w, t.decode); err != nil {
		panic(err)
	}
	w.Role, w.Peer = router.Prefill, t.decode.Backend
	if err := snap.AcquireFor(w, t.lease); err != nil {
		panic(err)
	}
	t.engine = slices.Index(snap.Backends(router.Prefill), t.lease.Backend)
	x.most[0][t.engine] = max(x.most[0][t.engine], t.lease.Backend.InFlight())
	e := f.prefill[t.engine]
	e.pending++
	if e.queue = append(e.queue, t); len(e.queue) == 1 {
		f.compute(e)
	}
}

// look tells a replica what is in all caches of the beginnings of a chat.
func (f *fleet) look(x *replica, c *chat) {
	for n, b := range x.r.Snapshot().Backends(router.Prefill) {
		has := f.prefill[n].has(c) * fleetBlock
		there, _ := slices.BinarySearch(c.ends, has+1)
		router.NewsOf(b).Stored(c.prefix[:there])
		router.NewsOf(b).Removed(c.prefix[there:])
	}
}

// has is how many blocks of the chat are cached.
func (e *computer) has(c *chat) (n int) {
	for n < len(c.keys) && e.used[c.keys[n]] > 0 {
		n++
	}
	return n
}

// compute begins with the first of the queue.
func (f *fleet) compute(e *computer) {
	t := e.queue[0]
	c := t.chat
	had := min(e.has(c), (len(c.tokens)-1)/fleetBlock)
	t.had = had * fleetBlock
	for _, key := range slices.Backward(c.keys) { // the end is evicted first
		e.uses++
		e.used[key] = e.uses
		e.lru = append(e.lru, use{key, e.uses})
	}
	for len(e.used) > fleetRoom {
		if u := e.lru[0]; e.used[u.key] == u.at {
			delete(e.used, u.key)
			t.dropped = append(t.dropped, u.key)
		}
		e.lru = e.lru[1:]
	}
	f.after(0.006+float64(len(c.tokens)-t.had)/fleetSpeed, func() { f.computed(e, t, had) })
}

// computed ends a prefill.
func (f *fleet) computed(e *computer, t *turn, had int) {
	c, x := t.chat, t.by
	e.pending--
	if e.queue = e.queue[1:]; len(e.queue) > 0 {
		f.compute(e)
	}
	if f.knows == "events" {
		f.publish(t, e, had)
	}
	if !t.first && t.begun >= f.warm {
		f.asked += len(c.tokens)
		f.cached += t.had
	}
	x.r.Prefilled(t.lease.Ahead(), t.lease.Tokens(), time.Duration((f.now-t.begun)*float64(time.Second)))
	t.lease.Told(c.prefix, len(c.tokens), t.had)
	t.lease.Release(router.OK)
	if f.knows == "events" {
		h := <-x.heard[t.engine]
		x.index[t.engine].hear(h, f.time())
		f.after(settles.Seconds()+0.01, func() { x.index[t.engine].settle(f.time()) })
	} else if f.knows == "oracle" {
		<-x.heard[t.engine]
	}
	d := slices.Index(x.r.Snapshot().Backends(router.Decode), t.decode.Backend)
	f.busy[d] = max(f.busy[d], f.now) + float64(len(c.tokens))/fleetNetwork
	f.after(f.busy[d]-f.now, func() {
		if t.begun >= f.warm {
			f.took = append(f.took, f.now-t.begun)
		}
		t.decode.Release(router.OK)
		t.after()
	})
}

// publish has all replicas hear what the engine has stored and removed.
func (f *fleet) publish(t *turn, e *computer, had int) {
	c := t.chat
	stored := event{change: stored, size: fleetBlock, gpu: true, tokens: slices.Clone(c.tokens[had*fleetBlock : len(c.keys)*fleetBlock])}
	for _, key := range c.keys[had:] {
		stored.hashes = append(stored.hashes, key^e.seed)
	}
	if had > 0 {
		stored.parent = c.keys[had-1] ^ e.seed
	}
	removed := event{change: removed, gpu: true}
	for _, key := range t.dropped {
		removed.hashes = append(removed.hashes, key^e.seed)
	}
	f.after(fleetNews, func() {
		for _, x := range f.replicas {
			x.index[t.engine].take(&removed, f.time())
			x.index[t.engine].take(&stored, f.time())
		}
	})
}

func (f *fleet) p90() float64 {
	slices.Sort(f.took)
	return f.took[len(f.took)*9/10]
}

func (f *fleet) found() float64 { return float64(f.cached) / float64(f.asked) }

// BenchmarkReplicas is the table of replicas in docs/results/routing.md: what they find in the caches of four prefill engines.
func BenchmarkReplicas(b *testing.B) {
	for _, first := range []int{1, 5} {
		for _, plain := range []bool{true, false} {
			for _, sessions := range []bool{false, true} {
				for _, knows := range []string{"estimate", "events", "oracle"} {
					b.Run(fmt.Sprintf("first=%dKB,plain=%v,sessions=%v,%s", first, plain, sessions, knows), func(b *testing.B) {
						for b.Loop() {
							w := workload{chats: 24, turns: 8, first: first * 64, more: 64, plain: plain, sessions: sessions, think: 0.1}
							text := ""
							var learned, heard int64
							for _, replicas := range []int{1, 3, 8} {
								found, p90 := 0.0, 0.0
								for seed := range uint64(3) {
									f := newFleet(b, knows, replicas, 4, seed+1)
									for range w.chats {
										f.talk(w)
									}
									f.run(60)
									for _, x := range f.replicas {
										for _, b := range x.r.Snapshot().Backends(router.Prefill) {
											learned += router.NewsOf(b).Counts().Learned.Load()
										}
									}
									heard += int64(len(f.took))
									found, p90 = found+f.found()/3, p90+f.p90()/3
								}
								text += fmt.Sprintf("  %d: %.3f, %.0f ms", replicas, found, 1000*p90)
							}
							b.Log(text, learned, heard)
						}
					})
				}
			}
		}
	}
}

// BenchmarkPressure is the table of working sets that are twice the caches.
func BenchmarkPressure(b *testing.B) {
	for _, engines := range []int{1, 2, 4, 8} {
		for _, replicas := range []int{1, 3} {
			for _, knows := range []string{"estimate", "events", "oracle"} {
				b.Run(fmt.Sprintf("%dP%dD,replicas=%d,%s", engines, engines, replicas, knows), func(b *testing.B) {
					for b.Loop() {
						f := newFleet(b, knows, replicas, engines, 1)
						f.warm = 60
						// A chat has 2,600 tokens on average.
						w := workload{chats: engines * 2 * fleetRoom * fleetBlock / 2600, turns: 8, first: 320, more: 96, think: 3.2}
						for range w.chats {
							f.talk(w)
						}
						f.run(240)
						b.Logf("%.3f, %.0f ms, %d turns", f.found(), 1000*f.p90(), len(f.took))
					}
				})
			}
		}
	}
}
