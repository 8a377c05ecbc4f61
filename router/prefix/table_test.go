package prefix

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"xpyd/internal/racetest"
)

// chains are the hashes of a prompt: the n-th stands for all words up to it.
func chains(words ...uint64) []uint64 {
	var keys []uint64
	h := uint64(1)
	for _, w := range words {
		h = rand.New(rand.NewPCG(h, w)).Uint64()
		keys = append(keys, h)
	}
	return keys
}

// text is n words that only this seed has.
func text(seed uint64, n int) []uint64 {
	words := make([]uint64, n)
	for i := range words {
		words[i] = seed<<32 | uint64(i)
	}
	return words
}

// caches are n backends with a seat in the table, each with room for the given number of blocks.
func caches(t *Table, n int, capacity uint32) []*Cache {
	var cs []*Cache
	for range n {
		c := new(Cache)
		c.capacity.Store(capacity)
		t.seats.give(c)
		cs = append(cs, c)
	}
	return cs
}

// had is how much of a prompt c has, according to the table.
func (t *Table) had(c *Cache, prefix []uint64) Match {
	var m Matches
	t.Match(prefix, &m)
	return m.By(c)
}

// send is a request as the router makes it to the table.
func (t *Table) send(c *Cache, prefix []uint64) (expected int) {
	had := t.had(c, prefix)
	t.insert(prefix, had, 1)
	return had.Blocks
}

func TestMarks(t *testing.T) {
	n := 0
	for blocks := 1; blocks <= 16384; blocks++ {
		if n < markCount(blocks) {
			if markCount(blocks) != n+1 || markEnd(n) != blocks {
				t.Fatalf("after %d blocks %d marks, the %d-th ends at %d", blocks, markCount(blocks), n, markEnd(n))
			}
			n++
		}
		if lost := blocks - markEnd(n-1); lost*denseMarks/2 > blocks {
			t.Fatalf("of %d blocks the last %d have no mark", blocks, lost)
		}
	}
	if n != 576 {
		t.Errorf("%d marks in 16384 blocks", n)
	}
}

func TestMatch(t *testing.T) {
	system, chat := text(1, 20), text(2, 50)
	cases := []struct {
		name   string
		sent   [][]uint64 // to the backends in their order
		prompt []uint64
		want   []int
	}{
		{"nothing sent", nil, text(1, 10), []int{0, 0, 0}},
		{"the same", [][]uint64{system}, system, []int{20, 0, 0}},
		{"one block", [][]uint64{text(1, 1)}, text(1, 1), []int{1, 0, 0}},
		{"the next turn", [][]uint64{system}, slices.Concat(system, chat), []int{20, 0, 0}},
		{"a part", [][]uint64{slices.Concat(system, chat)}, slices.Concat(system, text(3, 9)), []int{20, 0, 0}},
		{"less than was sent", [][]uint64{slices.Concat(system, chat)}, system, []int{20, 0, 0}},
		{"each another part", [][]uint64{slices.Concat(system, chat), slices.Concat(system, chat[:7], text(4, 5)), slices.Concat(system, text(5, 5))},
			slices.Concat(system, chat), []int{70, 27, 20}},
		{"the same words elsewhere", [][]uint64{slices.Concat(chat, system)}, system, []int{0, 0, 0}},
		{"long", [][]uint64{text(1, 1000), text(1, 3000), text(1, 5000)}, text(1, 4096), []int{1000, 2976, 4096}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			table := NewTable(1 << 20)
			backends := caches(table, 3, 1<<20)
			for i, words := range c.sent {
				table.send(backends[i], chains(words...))
			}
			for i, want := range c.want {
				if got := table.had(backends[i], chains(c.prompt...)).Blocks; got != want {
					t.Errorf("backend %d has %d blocks, want %d", i, got, want)
				}
			}
		})
	}
}

// What a backend has not used is lost after as many new blocks as it has room for, the end of a
// prompt first.
func TestCacheAges(t *testing.T) {
	table := NewTable(1 << 20)
	c := caches(table, 1, 100)[0]
	first := chains(text(1, 40)...)
	table.send(c, first)
	steps := []struct {
		what string
		send []uint64
		want int // of first
	}{
		{"room for both", text(2, 50), 40},
		{"the same again is nothing new", text(2, 50), 40},
		{"its end is lost", text(3, 20), 30},
		{"more of it", text(4, 20), 10},
		{"all of it", text(5, 20), 0},
		{"much later", text(6, 90), 0},
	}
	for _, s := range steps {
		table.send(c, chains(s.send...))
		if got := table.had(c, first).Blocks; got != s.want {
			t.Errorf("%s: %d blocks left, want %d", s.what, got, s.want)
		}
	}
	table.send(c, first)
	if got := table.had(c, first).Blocks; got != 40 {
		t.Errorf("asked for again: %d blocks", got)
	}
	if got := table.send(c, chains(text(7, 150)...)); got != 0 || table.had(c, chains(text(7, 150)...)).Blocks != 100 {
		t.Error("more than a cache holds is expected in it")
	}
}

// What is used now and then stays, whatever comes in between.
func TestUseKeepsBlocks(t *testing.T) {
	table := NewTable(1 << 20)
	c := caches(table, 1, 320)[0]
	system := chains(text(1, 40)...)
	table.send(c, system)
	for i := range uint64(100) {
		table.send(c, chains(text(100+i, 8)...))
		if got := table.send(c, system); got != 40 {
			t.Fatalf("%d blocks left after %d new prompts", got, i)
		}
	}
}

func TestRestartForgets(t *testing.T) {
	table := NewTable(1 << 20)
	cs := caches(table, 2, 1000)
	prompt := chains(text(1, 40)...)
	for _, c := range cs {
		table.send(c, prompt)
	}
	for range 3 {
		cs[0].Clear()
		if a, b := table.had(cs[0], prompt).Blocks, table.had(cs[1], prompt).Blocks; a != 0 || b != 40 {
			t.Errorf("the restarted one has %d blocks, the other %d", a, b)
		}
		table.send(cs[0], chains(text(2, 30)...))
		if got := table.had(cs[0], prompt).Blocks; got != 0 {
			t.Errorf("%d blocks have come back", got)
		}
	}
	table.send(cs[0], prompt)
	if got := table.had(cs[0], prompt).Blocks; got != 40 {
		t.Errorf("%d blocks after they were sent again", got)
	}
}

// With one seat left, backends come and go, and none is taken for the one that had the seat before.
func TestSeatsAreGivenAgain(t *testing.T) {
	table := NewTable(1 << 20)
	caches(table, seatCount-2, 1<<20)
	prompt := chains(text(1, 10)...)
	for i := range 10 {
		c := caches(table, 1, 1<<20)[0]
		if c.seat.Load() == 0 {
			t.Fatalf("the %d-th backend has no seat", i)
		}
		for n := range uint64(2 * i) { // until its time is past that of the one before
			if got := table.had(c, prompt).Blocks; got != 0 {
				t.Fatalf("the %d-th backend has %d blocks of another one's after %d prompts", i, got, n)
			}
			table.send(c, chains(text(uint64(i)*100+n+2, 10)...))
		}
		table.send(c, prompt)
		if got := table.had(c, prompt).Blocks; got != 10 {
			t.Fatalf("the %d-th backend has %d blocks", i, got)
		}
		table.seats.free(c)
		table.send(c, prompt) // a request of before the reload
		if got := table.had(c, prompt).Blocks; got != 0 {
			t.Fatalf("the %d-th backend has left with %d blocks", i, got)
		}
	}
	c := caches(table, 3, 1<<20)
	if c[0].seat.Load() == 0 || c[1].seat.Load() != 0 || c[2].seat.Load() != 0 {
		t.Errorf("seats %d, %d and %d for one place", c[0].seat.Load(), c[1].seat.Load(), c[2].seat.Load())
	}
	table.send(c[2], prompt) // does nothing
	if got := table.had(c[2], prompt).Blocks; got != 0 {
		t.Errorf("a backend without a seat has %d blocks", got)
	}
}

// What is used stays, and the rest makes room.
func TestTableIsBounded(t *testing.T) {
	table := NewTable(seatBytes + 64<<10) // 1024 lines
	c := caches(table, 1, 1<<20)[0]
	hot := chains(text(1, 10)...)
	table.insert(hot, Match{Cache: c}, 0)
	for tick := range uint32(2000) {
		table.insert(chains(text(uint64(tick+2), 10)...), Match{Cache: c}, tick)
		table.insert(hot, Match{Cache: c}, tick)
	}
	if got := table.had(c, hot).Blocks; got != 10 {
		t.Errorf("%d blocks of the prompt that is always asked for", got)
	}
	if got := table.had(c, chains(text(2, 10)...)).Blocks; got != 0 {
		t.Errorf("%d blocks of the oldest prompt", got)
	}
	if got := table.used.Load(); got != int64(len(table.lines)) {
		t.Errorf("%d lines used of %d", got, len(table.lines))
	}
}

func TestTableMemory(t *testing.T) {
	racetest.SkipPure(t)
	if size := unsafe.Sizeof(line{}); size != lineBytes {
		t.Errorf("a line has %d bytes", size)
	}
	if size := unsafe.Sizeof(Table{}); size > seatBytes {
		t.Errorf("a table has %d bytes besides its lines", size)
	}
	const memory = 32 << 20
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	table := NewTable(memory)
	runtime.ReadMemStats(&after)
	if got := int64(after.TotalAlloc - before.TotalAlloc); got > memory+64<<10 || got < memory*9/10 {
		t.Errorf("%d bytes, want %d", got, memory)
	}
	// 256 backends with 200 prompts each take no more memory.
	cs := caches(table, 256, 16<<10)
	keys := chains(text(1, 40)...)
	var m Matches
	runtime.ReadMemStats(&before)
	for n := range uint64(256 * 200) {
		for i := range keys {
			keys[i] = keys[i]*0x9e3779b97f4a7c15 + n
		}
		table.Match(keys, &m)
		table.insert(keys, m.By(cs[n%256]), uint32(n>>8))
	}
	runtime.ReadMemStats(&after)
	if got := int64(after.TotalAlloc - before.TotalAlloc); got > 64<<10 {
		t.Errorf("%d bytes more in use", got)
	}
}

// modelCache is what the table should say, with every block checked.
type modelCache struct {
	when map[uint64]int // by hash: the backend's time when it was had last
	now  int
	room int
}

// match says how far the prompt is there without a gap, and where its last block is. There are gaps
// if an end was noted again and what comes before it was not.
func (c *modelCache) Match(prefix []uint64) (whole, last int) {
	for i, k := range prefix {
		if at, ok := c.when[k]; ok && c.now-at+i+1 <= c.room {
			if last = i + 1; whole == i {
				whole = i + 1
			}
		}
	}
	return whole, last
}

// send is a request that found n of its blocks.
func (c *modelCache) send(prefix []uint64, n int) {
	again := n == 0 || c.now-c.when[prefix[n-1]] >= c.room/restamp
	c.now += len(prefix) - n
	for i, k := range prefix {
		if again || i >= n {
			c.when[k] = c.now
		}
	}
}

// FuzzMatch compares the table with the model on prompts short enough for a mark each: a trunk that
// all share in part, and then one of four branches.
func FuzzMatch(f *testing.F) {
	f.Add([]byte{0, 1, 20, 1, 2, 30, 2, 1, 25, 0, 3, 90}, uint8(60))
	f.Add([]byte{3, 0x47, 100, 3, 0x87, 120, 1, 0xc7, 100, 3, 0x49, 128}, uint8(255))
	f.Add([]byte("7\ax7\ax0\ac"), uint8('k'))
	f.Fuzz(func(t *testing.T, script []byte, room uint8) {
		table := NewTable(16 << 20)
		cs := caches(table, 4, uint32(room)+1)
		models := make([]modelCache, len(cs))
		for i := range models {
			models[i] = modelCache{when: map[uint64]int{}, room: int(room) + 1}
		}
		for ; len(script) >= 3; script = script[3:] {
			n := int(script[2])%denseMarks + 1
			trunk := min(n, int(script[1]>>6)*32)
			prompt := chains(slices.Concat(text(1, trunk), text(uint64(script[1]%4)+2, n-trunk))...)
			for i, c := range cs {
				whole, last := models[i].Match(prompt)
				if got := table.had(c, prompt).Blocks; got < whole || got > last {
					t.Fatalf("backend %d has %d blocks of %d, want %d to %d", i, got, len(prompt), whole, last)
				}
			}
			to := int(script[0]) % len(cs)
			models[to].send(prompt, table.send(cs[to], prompt))
		}
	})
}

// Requests, restarts and reloads at the same time only make the table forget.
func TestTableUnderRace(t *testing.T) {
	table := NewTable(seatBytes + 64*lineBytes)
	cs := caches(table, 8, 1000)
	var all sync.WaitGroup
	for w := range uint64(4) {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(w, 1))
			for range 2000 {
				prompt := chains(text(rnd.Uint64N(5), 1+rnd.IntN(20))...)
				c := cs[rnd.IntN(len(cs))]
				if n := table.send(c, prompt); n > len(prompt) {
					t.Errorf("%d blocks of %d", n, len(prompt))
				}
				switch rnd.IntN(50) {
				case 0:
					c.Clear()
				case 1:
					table.seats.free(c)
				case 2:
					table.seats.give(new(Cache))
				}
			}
		})
	}
	all.Wait()
}

func BenchmarkTable(b *testing.B) {
	table := NewTable(32 << 20)
	cs := caches(table, 512, 1<<20)
	for i := range uint64(200_000) { // as it is after a while
		table.insert(chains(text(1000+i, 3)...), Match{Cache: cs[i%512]}, uint32(i>>8))
	}
	for _, n := range []int{4, 40, 400, 4000} {
		shared := text(7, n/4)
		for i, c := range cs[:20] {
			table.send(c, chains(slices.Concat(shared, text(uint64(n+i), n/4))...))
		}
		prompt := chains(slices.Concat(shared, text(uint64(n+17), n/4), text(9, n-2*(n/4)))...)
		b.Run(fmt.Sprintf("match/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			var m Matches
			for b.Loop() {
				table.Match(prompt, &m)
			}
			if m.n < 14 {
				b.Fatal(m.n)
			}
		})
		b.Run(fmt.Sprintf("insert/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				for k := range prompt { // new keys each time
					prompt[k] = prompt[k]*0x9e3779b97f4a7c15 + uint64(i)
				}
				table.insert(prompt, Match{Cache: cs[1]}, 5)
			}
		})
	}
}
