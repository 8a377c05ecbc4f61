package router

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"xpyd/router/prefix"
)

// newPrefixRouter has two prefill and four decode backends, prefix in both pools, and tables in
// fresh memory.
func newPrefixRouter(t testing.TB, prefill, decode int) *Router {
	r, _ := newRouterOf(t, prefill, decode, func(c *Config) {
		c.PrefillPolicy, c.DecodePolicy = "prefix", "prefix"
		c.Health.SlowStart = 0
	})
	return r
}

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

// want is a prompt of n words of 64 tokens each.
func want(role Role, words ...uint64) Want {
	return Want{Role: role, Tokens: 64 * len(words), Prefix: chains(words...), Conversation: words[0] + 1, Alone: true}
}

// take is a lease, with the name of its backend.
func take(t testing.TB, r *Router, w Want) (*Lease, string) {
	t.Helper()
	l := new(Lease)
	if err := r.Snapshot().AcquireFor(w, l); err != nil {
		t.Fatal(err)
	}
	return l, name(l.Backend)
}

// serveNow takes a lease and ends it well.
func serveNow(t testing.TB, r *Router, w Want) string {
	t.Helper()
	l, name := take(t, r, w)
	l.Release(OK)
	return name
}

func TestPromptsGoWhereTheirBlocksAre(t *testing.T) {
	r := newPrefixRouter(t, 4, 4)
	for _, role := range []Role{Prefill, Decode} {
		for chat := range uint64(30) {
			turn := text(chat, 10)
			first := serveNow(t, r, want(role, turn...))
			for n := range uint64(3) {
				turn = slices.Concat(turn, text(1000*n+chat, 5))
				w := want(role, turn...)
				w.Conversation = n // not by luck
				if got := serveNow(t, r, w); got != first {
					t.Fatalf("turn %d of %s's chat goes to %s", n+2, first, got)
				}
			}
		}
	}
}

func TestCachedTokensAreNoWork(t *testing.T) {
	r := newPrefixRouter(t, 1, 1)
	prompt := text(1, 20)
	serveNow(t, r, want(Prefill, prompt...))
	serveNow(t, r, want(Decode, prompt...))
	for _, role := range []Role{Prefill, Decode} {
		w := want(role, slices.Concat(prompt, text(2, 20))...)
		b := r.Snapshot().Backends(role)[0]
		if got := r.Snapshot().Cached(w, b); got < 1200 || got > 1280 {
			t.Errorf("%s: %d tokens expected in the cache, want about 1280 of %d", role, got, w.Tokens)
		}
		l, _ := take(t, r, w)
		inFlight := w.Tokens // a decode engine holds the blocks, wherever they came from
		if role == Prefill {
			inFlight -= l.Cached()
		}
		if l.Cached() < 1200 || b.TokensInFlight() != int64(inFlight) {
			t.Errorf("%s: %d cached, %d in flight, want %d", role, l.Cached(), b.TokensInFlight(), inFlight)
		}
		l.Release(OK)
		if e := b.CacheEstimate(); b.TokensInFlight() != 0 || e.Queries != 60*64 || e.Hits != int64(l.Cached()) || e.Capacity < 255_000 || e.Capacity > 256_000 {
			t.Errorf("%s: %d in flight at the end, %+v", role, b.TokensInFlight(), e)
		}
	}
}

// Requests that all share a long document are spread as the load grows, and no backend gets more
// than its part and what the document costs.
func TestHotPrefixSpreads(t *testing.T) {
	r := newPrefixRouter(t, 4, 1)
	document := text(1, 64) // 4096 tokens
	got := map[string]int{}
	for i := range uint64(200) {
		_, b := take(t, r, want(Prefill, slices.Concat(document, text(i+2, 4))...)) // 256 tokens of its own
		got[b]++
	}
	for _, b := range r.Snapshot().Backends(Prefill) {
		if n := got[name(b)]; n < 30 || n > 70 {
			t.Errorf("%s has %d of 200", b.URL, n)
		}
		if n := b.TokensInFlight(); n > (4*4096+200*256)/4+4096 {
			t.Errorf("%s has %d tokens in flight", b.URL, n)
		}
	}
}

// If waiting takes less time than computing the document again, there is no other copy of it.
func TestFewHotRequestsStay(t *testing.T) {
	r := newPrefixRouter(t, 4, 1)
	document := text(1, 64)
	first := serveNow(t, r, want(Prefill, document...))
	for i := range uint64(10) { // 256 tokens each: together less than the document
		if _, b := take(t, r, want(Prefill, slices.Concat(document, text(i+2, 4))...)); b != first {
			t.Fatalf("the %d-th goes to %s, the document is at %s", i, b, first)
		}
	}
}

// Routers that do not know each other send the same prompt to the same backend, and the next turn
// of a conversation too.
func TestReplicasAgree(t *testing.T) {
	a, b := newPrefixRouter(t, 5, 1), newPrefixRouter(t, 5, 1)
	got := map[string]int{}
	for chat := range uint64(500) {
		turn := text(chat, 10)
		first := serveNow(t, a, want(Prefill, turn...))
		if other := serveNow(t, b, want(Prefill, slices.Concat(turn, text(chat+9999, 7))...)); other != first {
			t.Fatalf("chat %d: %s and %s", chat, first, other)
		}
		got[first]++
	}
	for b, n := range got {
		if n < 60 || n > 140 {
			t.Errorf("%s has %d of 500 chats", b, n)
		}
	}
	if len(got) != 5 {
		t.Errorf("%d backends used", len(got))
	}
}

func TestPrefixHolderThatIsUnfit(t *testing.T) {
	for _, what := range []string{"down", "ejected", "skipped", "full", "removed", "another model", "restarted", "restarted by its metrics"} {
		t.Run(what, func(t *testing.T) {
			r, _ := newRouterOf(t, 3, 1, func(c *Config) {
				c.PrefillPolicy, c.PrefillMaxInFlight, c.Health.SlowStart = "prefix", 2, 0
			})
			w := want(Prefill, text(1, 20)...)
			w.Conversation = 0
			l, first := take(t, r, w)
			l.Release(OK)
			b := l.Backend
			makeUnfit(t, r, b, what, &w)
			if strings.HasPrefix(what, "restarted") {
				if n := r.Snapshot().Cached(w, b); n != 0 {
					t.Errorf("%d tokens expected in the cache", n)
				}
			} else if _, second := take(t, r, w); second == first {
				t.Errorf("%s again", second)
			}
		})
	}
}

// makeUnfit makes b unfit for w by the cause named.
func makeUnfit(t *testing.T, r *Router, b *Backend, what string, w *Want) {
	t.Helper()
	s := r.Snapshot()
	switch what {
	case "down":
		b.force(Down)
	case "ejected":
		r.Eject(b, EjectStall)
	case "skipped":
		w.Skip = []*Backend{b}
	case "full":
		leaseOn(t, s, b)
		leaseOn(t, s, b)
	case "removed":
		cfg := DefaultConfig()
		cfg.Routing.PrefixMemory, cfg.PrefillPolicy, cfg.Decode = 1<<20, "prefix", urls("d", 1)
		cfg.Prefill = slices.DeleteFunc(urls("p", 3), func(e Entry) bool { return e.URL == b.URL+":80" || e.URL == b.URL })
		if _, err := r.Reload(cfg, 0.25, nil); err != nil || len(cfg.Prefill) != 2 {
			t.Fatal(err, cfg.Prefill)
		}
	case "another model":
		for _, x := range s.Backends(Prefill) {
			x.SetModels([]string{map[bool]string{true: "b", false: "a"}[x == b]})
		}
		w.Model = []byte("a")
	case "restarted":
		b.Reset()
	case "restarted by its metrics":
		e := UnknownEngine()
		for _, e.Started = range []float64{1, 2} {
			b.SetEngine(e, 0, time.Second)
		}
	}
}

// The size of the cache in the engine's metrics bounds the estimate.
func TestKVSizeBoundsTheEstimate(t *testing.T) {
	r := newPrefixRouter(t, 1, 1)
	b := r.Snapshot().Backends(Prefill)[0]
	e := UnknownEngine()
	e.BlockSize, e.Blocks = 16, 640/16*4 // 2560 tokens, 40 blocks of ours
	b.SetEngine(e, 0, time.Second)
	prompt := want(Prefill, text(1, 30)...)
	serveNow(t, r, prompt)
	serveNow(t, r, want(Prefill, text(2, 20)...))
	if n := r.Snapshot().Cached(prompt, b); n < 19*64 || n > 20*64 {
		t.Errorf("%d tokens, want those of 20 blocks", n)
	}
	for range 1000 {
		r.ObservePrompt(8000, 0, 1000) // twice as many bytes in a token
	}
	r.ObservePrompt(0, 0, 5)
	r.ObservePrompt(5, 0, 0)
	if m := r.TokenBytes(); m < 7.9 || m > 8 {
		t.Errorf("%v bytes a token", m)
	}
	serveNow(t, r, prompt)
	serveNow(t, r, want(Prefill, text(3, 30)...))
	if n := r.Snapshot().Cached(prompt, b); n < 29*64 {
		t.Errorf("%d tokens, want all", n)
	}
}

// The size of the cache counts before any prompt has been sent there.
func TestKVSizeCountsAtOnce(t *testing.T) {
	r, _ := newRouterOf(t, 1, 1, func(c *Config) { c.PrefillPolicy, c.DecodePolicy = "prefix", "least_request" })
	e := UnknownEngine()
	e.BlockSize, e.Blocks = 16, 4000
	for role, want := range map[Role]int64{Prefill: 64_000, Decode: 0} { // nothing is remembered of decode
		b := r.Snapshot().Backends(role)[0]
		if got := b.CacheEstimate().Capacity; role == Prefill && got != 256_000 {
			t.Errorf("%s: %d tokens where the engine has told nothing", role, got)
		}
		b.SetEngine(e, 0, time.Second)
		if got := b.CacheEstimate().Capacity; got != want {
			t.Errorf("%s: %d tokens, want %d", role, got, want)
		}
	}
}

// Tables are made where they are needed, and kept over a reload that does not change their size.
func TestTablesAreMadeWhereNeeded(t *testing.T) {
	for _, c := range []struct {
		prefill, decode string
		memory          int64
		estimate        bool
		want            [2]int64
	}{
		{"least_request", "round_robin", 4 << 20, false, [2]int64{}},
		{"cache_aware", "least_request", 4 << 20, false, [2]int64{2 << 20, 0}},
		{"least_request", "prefix", 4 << 20, false, [2]int64{0, 2 << 20}},
		{"least_request", "least_tokens", 4 << 20, true, [2]int64{2 << 20, 2 << 20}},
		{"prefix", "prefix", 0, true, [2]int64{}},
	} {
		cfg := DefaultConfig()
		cfg.Prefill, cfg.Decode, cfg.PrefillPolicy, cfg.DecodePolicy = urls("p", 2), urls("d", 2), c.prefill, c.decode
		cfg.Routing.PrefixMemory, cfg.Routing.EstimateCaches = c.memory, c.estimate
		r, err := New(cfg, 0.25, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		for _, role := range []Role{Prefill, Decode} {
			serveNow(t, r, want(role, text(1, 10)...))
			used, memory := r.Snapshot().PrefixTable(role)
			if memory != c.want[role] || (used == 10*64) != (memory > 0) {
				t.Errorf("%+v: %s has %d of %d", c, role, used, memory)
			}
			if _, err := r.Reload(cfg, 0.25, nil); err != nil {
				t.Fatal(err)
			}
			if now, _ := r.Snapshot().PrefixTable(role); now != used {
				t.Errorf("%+v: %s has %d after a reload, had %d", c, role, now, used)
			}
		}
	}
}

// 3,000 backends come and go, and the one that stays keeps what is known about it.
func TestReloadsLeakNoSeats(t *testing.T) {
	r := newPrefixRouter(t, 1, 1)
	prompt := want(Prefill, text(1, 10)...)
	serveNow(t, r, prompt)
	stays := r.Snapshot().Backends(Prefill)[0]
	cfg := DefaultConfig()
	cfg.Routing.PrefixMemory, cfg.PrefillPolicy, cfg.DecodePolicy, cfg.Decode = 1<<20, "prefix", "prefix", urls("d", 1)
	for n := range 100 {
		cfg.Prefill = append(urls("p", 1), urls(fmt.Sprintf("x%d-", n), 30)...)
		if _, err := r.Reload(cfg, 0.25, nil); err != nil {
			t.Fatal(err)
		}
		for _, b := range r.Snapshot().Backends(Prefill) {
			if !b.cache.Seated() {
				t.Fatalf("%s has no seat at reload %d", b.URL, n)
			}
			if got := r.Snapshot().Cached(prompt, b); (got > 0) != (b == stays) {
				t.Fatalf("%s has %d tokens of the prompt at reload %d", b.URL, got, n)
			}
		}
	}
	if taken := r.Snapshot().prefill.prefix.Seated(); taken != 31 {
		t.Errorf("%d seats taken by 31 backends", taken)
	}
}

// A backend that is drained or disabled keeps what is known of its cache until it leaves the pool.
func TestDrainKeepsThePrefixMemory(t *testing.T) {
	r := newPrefixRouter(t, 2, 3)
	load := func(states map[string]AdminState) {
		cfg := poolsWith(states)
		cfg.Routing.PrefixMemory, cfg.PrefillPolicy, cfg.DecodePolicy = 1<<20, "prefix", "prefix"
		if _, err := r.Reload(cfg, 0.25, nil); err != nil {
			t.Fatal(err)
		}
	}
	load(nil)
	for _, role := range []Role{Prefill, Decode} {
		prompt := want(role, text(7, 10)...)
		had := serveNow(t, r, prompt)
		b := named(t, r.Snapshot(), had)
		before := r.Snapshot().Cached(prompt, b)
		for _, state := range []AdminState{Drain, Disabled} {
			load(map[string]AdminState{had: state})
			if got := serveNow(t, r, want(role, text(8, 10)...)); got == had {
				t.Fatalf("%s gets a request", had)
			}
			load(nil)
			if now := r.Snapshot().Cached(prompt, b); now != before || before == 0 {
				t.Errorf("%s after %s: %d tokens of the prompt, before %d", had, state, now, before)
			}
		}
	}
}

// Hashes of blocks of another size say nothing of the former ones.
func TestReloadOfTheBlockSizeForgets(t *testing.T) {
	r := newPrefixRouter(t, 2, 3)
	load := func(block int64) {
		cfg := poolsWith(nil)
		cfg.Routing.PrefixMemory, cfg.Routing.PrefixBlock, cfg.PrefillPolicy = 1<<20, block, "prefix"
		if _, err := r.Reload(cfg, 0.25, nil); err != nil {
			t.Fatal(err)
		}
	}
	load(256)
	prompt := want(Prefill, text(7, 10)...)
	had := named(t, r.Snapshot(), serveNow(t, r, prompt))
	tokens := had.CacheEstimate().Capacity
	if load(256); r.Snapshot().Cached(prompt, had) == 0 {
		t.Error("a reload of the same size has forgotten a prompt")
	}
	if load(1024); r.Snapshot().Cached(prompt, had) != 0 || PrefixBlock(r.Snapshot()) != 1024 {
		t.Errorf("blocks of %d bytes, and %d tokens of the prompt in the cache", PrefixBlock(r.Snapshot()), r.Snapshot().Cached(prompt, had))
	}
	serveNow(t, r, prompt)
	if now := had.CacheEstimate().Capacity; now < tokens-10 || now > tokens+10 {
		t.Errorf("the cache holds %d tokens, before %d", now, tokens)
	}
}

func TestPrefixAllocatesNothing(t *testing.T) {
	r := newPrefixRouter(t, 4, 1)
	s, w := r.Snapshot(), want(Prefill, text(1, 300)...)
	var l Lease
	if n := testing.AllocsPerRun(200, func() {
		w.Prefix[250]++ // there are blocks to note each time
		if s.AcquireFor(w, &l) != nil {
			t.Fatal("no lease")
		}
		l.Release(OK)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkPrefixChoice measures the choice of one backend and its release, among n busy backends,
// for prompts half of whose blocks are known at three backends.
func BenchmarkPrefixChoice(b *testing.B) {
	for _, n := range []int{2, 16, 512} {
		for _, blocks := range []int{4, 40, 400, 4000} {
			b.Run(fmt.Sprintf("%d/%d", n, blocks), func(b *testing.B) { benchPrefix(b, n, blocks, text(9, blocks/2)) })
		}
		b.Run(fmt.Sprintf("%d/unknown", n), func(b *testing.B) { benchPrefix(b, n, 40, nil) })
	}
}

func benchPrefix(b *testing.B, backends, blocks int, known []uint64) {
	r := newPrefixRouter(b, backends, 1)
	s := r.Snapshot()
	for _, x := range s.Backends(Prefill)[:min(3, backends)] {
		if len(known) > 0 {
			s.prefill.prefix.Insert(chains(known...), prefix.Match{Cache: &x.cache}, 0)
		}
	}
	for _, x := range s.Backends(Prefill) {
		x.tokens.Add(3000)
	}
	w := want(Prefill, slices.Concat(known, text(8, blocks-len(known)))...)
	b.ReportAllocs()
	for b.Loop() {
		if s.Pick(w) == nil {
			b.Fatal("none")
		}
	}
}

// Engines count what a prompt with images has, and its text is known. The rest is the images'.
func TestImagesTeachTheirTokens(t *testing.T) {
	r := newPricer(t).r
	for range 100 {
		r.ObservePrompt(4000, 2, 1000+2*256)
	}
	near(t, "tokens of an image", r.MediaTokens(), 256, 0.02)
	r.ObservePrompt(4000, 2, 0) // not counted, as where both legs begin together
	near(t, "the same", r.MediaTokens(), 256, 0.02)
	r.ObservePrompt(1<<20, 0, 1500) // an image that passed for text
	near(t, "bytes of a token of text", r.TokenBytes(), 4, 0)
	r.ObservePrompt(400_000, 1, 3) // whose text was taken for more than all of it
	if m := r.MediaTokens(); m < 1 || m > 256 {
		t.Errorf("%g tokens of an image", m)
	}
}
