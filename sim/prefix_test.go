package sim_test

import (
	"encoding/json"
	"strings"
	"testing"

	"xpyd/sim"
)

// tokens returns a text of n tokens that shares no block with the text of another seed.
func tokens(seed string, n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(seed + itoa(100 + i)[:3])
	}
	return b.String()
}

// usage returns what an answer says of its prompt.
type usage struct {
	Prompt  int `json:"prompt_tokens"`
	Details struct {
		Cached  int `json:"cached_tokens"`
		Created int `json:"created_cache_tokens"`
	} `json:"prompt_tokens_details"`
}

func usageOf(t *testing.T, answer []byte) usage {
	t.Helper()
	var got struct{ Usage usage }
	decodeJSON(t, answer, &got)
	return got.Usage
}

func ask(t *testing.T, e *sim.Engine, prompt any, n int) []byte {
	t.Helper()
	status, answer := post(t, e.URL()+completionsPath, body{"prompt": prompt, "max_tokens": n})
	if status != 200 {
		t.Fatalf("%d %s", status, answer)
	}
	return answer
}

func TestCachedPrefixIsWholeBlocksAndNeverTheLastToken(t *testing.T) {
	long := tokens("a", 200)
	for _, tc := range []struct {
		name          string
		first, second string
		want          int
	}{
		{"the same", long[:4*100], long[:4*100], 96},
		{"the same, whole blocks", long[:4*96], long[:4*96], 80},
		{"one token more than whole blocks", long[:4*97], long[:4*97], 96},
		{"longer", long[:4*96], long[:4*200], 96},
		{"shorter", long[:4*200], long[:4*50], 48},
		{"less than a block", long[:4*15], long[:4*15], 0},
		{"another end", long[:4*100], long[:4*40] + tokens("b", 60), 32},
		{"another beginning", long[:4*100], "x" + long[1:4*100], 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := start(t, sim.Options{})
			if got := usageOf(t, ask(t, e, tc.first, 1)); got.Details.Cached != 0 {
				t.Errorf("first: %+v", got)
			}
			answer := ask(t, e, tc.second, 4)
			if got := usageOf(t, answer).Details.Cached; got != tc.want {
				t.Errorf("%d tokens cached, want %d", got, tc.want)
			}
			if got := text(t, answer); got != sim.Text(tc.second, 4) {
				t.Errorf("text %q", got)
			}
			if got := gauge(t, e, "vllm:prefix_cache_hits_total"); got != float64(tc.want) {
				t.Errorf("hits %v, want %d", got, tc.want)
			}
			if got := gauge(t, e, "vllm:prefix_cache_queries_total"); got != float64((len(tc.first)+len(tc.second))/4) {
				t.Errorf("queries %v", got)
			}
		})
	}
}

func TestWhatSetsPrefixesApart(t *testing.T) {
	prompt := tokens("a", 64)
	ids := make([]int, 64)
	for i := range ids {
		ids[i] = 500 + i
	}
	for _, tc := range []struct {
		name          string
		o             sim.Options
		first, second body
		want          int
	}{
		{"nothing", sim.Options{}, body{}, body{}, 48},
		{"token ids", sim.Options{}, body{"prompt": ids}, body{"prompt": ids}, 48},
		{"the same salt", sim.Options{}, body{"cache_salt": "s"}, body{"cache_salt": "s"}, 48},
		{"another salt", sim.Options{}, body{"cache_salt": "s"}, body{"cache_salt": "t"}, 0},
		{"no salt", sim.Options{}, body{"cache_salt": "s"}, body{}, 0},
		{"sampling does not", sim.Options{}, body{"temperature": 1}, body{"temperature": 0.5, "max_tokens": 9}, 48},
		{"log probabilities of the prompt", sim.Options{}, body{}, body{"echo": true, "logprobs": 1}, 0},
		{"off", sim.Options{NoPrefixCaching: true}, body{}, body{}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := start(t, tc.o)
			var cached []int
			for _, more := range []body{tc.first, tc.second} {
				b := body{"prompt": prompt, "max_tokens": 2}
				for name, value := range more {
					b = b.with(name, value)
				}
				_, answer := post(t, e.URL()+completionsPath, b)
				cached = append(cached, usageOf(t, answer).Details.Cached)
			}
			if cached[0] != 0 || cached[1] != tc.want {
				t.Errorf("cached %v, want 0 and %d", cached, tc.want)
			}
		})
	}
}

func TestLeastRecentlyUsedIsEvictedFirstAndFromItsEnd(t *testing.T) {
	e := start(t, sim.Options{NumBlocks: 12}) // of 16 tokens
	a, b, c := tokens("a", 64), tokens("b", 64), tokens("c", 64)
	for _, step := range []struct {
		prompt string
		cached int
		why    string
	}{
		{a, 0, "4 blocks"},
		{b, 0, "4 more"},
		{a, 48, "3 found, the last computed anew"},
		{c, 0, "takes the 4 that were never used"},
		{tokens("d", 16), 0, "takes the oldest: the first answer's last block"},
		{a, 48, "a was used after b"},
		{b, 32, "its last block and one more are gone"},
	} {
		if got := usageOf(t, ask(t, e, step.prompt, 1)).Details.Cached; got != step.cached {
			t.Errorf("%s...: %d cached, want %d: %s", step.prompt[:4], got, step.cached, step.why)
		}
		// An answer is there a moment before its blocks are free.
		await(t, "nothing is in use", func() bool { return gauge(t, e, "vllm:kv_cache_usage_perc") == 0 })
	}
}

func TestPinnedBlocksAreSharedAndNeverEvicted(t *testing.T) {
	p, d := pair(t, sim.Options{NumBlocks: 12})
	a := body{"prompt": tokens("a", 64), "max_tokens": 4}
	first, second := prefill(t, p, completionsPath, a), prefill(t, p, completionsPath, a)
	if got := gauge(t, p, "vllm:kv_cache_usage_perc"); got != 5.0/12 {
		t.Errorf("usage %v, want 3 shared blocks and 2 ends of 12", got)
	}
	if got := p.Ledger().Pinned; got != 8 {
		t.Errorf("%d pins, want two of 4 blocks", got)
	}
	for _, seed := range []string{"b", "c", "d"} { // these take all that is free, again and again
		post(t, p.URL()+completionsPath, body{"prompt": tokens(seed, 96), "max_tokens": 1})
	}
	for i, handle := range []json.RawMessage{first, second} {
		_, answer := post(t, d.URL()+completionsPath, a.with("kv_transfer_params", handle))
		if got := text(t, answer); got != sim.Text(tokens("a", 64), 4) {
			t.Errorf("handle %d: %q", i, got)
		}
	}
	awaitFreed(t, p, "read", 2)
	if got := p.Ledger().StaleReads; got != 0 {
		t.Errorf("%d stale reads", got)
	}
}

// A handle's blocks may be pinned for others, and hold what they held before. A late reader must
// still be noticed.
func TestLateReaderOfSharedBlocksShows(t *testing.T) {
	p, d := pair(t, sim.Options{})
	a := body{"prompt": tokens("a", 64), "max_tokens": 4}
	longer := body{"prompt": tokens("a", 64) + tokens("b", 64), "max_tokens": 4}
	used := prefill(t, p, completionsPath, a)
	post(t, d.URL()+completionsPath, a.with("kv_transfer_params", used))
	awaitFreed(t, p, "read", 1)
	prefill(t, p, completionsPath, longer) // pins all blocks of a
	other := start(t, sim.Options{Role: sim.RoleDecode, Name: "d2"})
	_, answer := post(t, other.URL()+completionsPath, a.with("kv_transfer_params", used))
	if got := text(t, answer); !strings.Contains(got, "WRONG-KV") || p.Ledger().StaleReads != 1 {
		t.Errorf("%q, %d stale reads", got, p.Ledger().StaleReads)
	}
}

func TestDecodePullsOnlyWhatItLacks(t *testing.T) {
	p, d := pair(t, sim.Options{})
	long := tokens("a", 160)
	turn := func(prompt string) usage {
		b := body{"prompt": prompt, "max_tokens": 4}
		_, answer := post(t, d.URL()+completionsPath, b.with("kv_transfer_params", prefill(t, p, completionsPath, b)))
		if got := text(t, answer); got != sim.Text(prompt, 4) {
			t.Errorf("text %q", got)
		}
		return usageOf(t, answer)
	}
	if got := turn(long[:4*100]).Details; got.Cached != 0 || got.Created != 0 {
		t.Errorf("first turn: %+v", got)
	}
	if got := turn(long).Details.Cached; got != 96 {
		t.Errorf("second turn: %d cached tokens, want the prefill engine's 96", got)
	}
	for name, want := range map[string]float64{
		"vllm:prefix_cache_queries_total": 260, "vllm:prefix_cache_hits_total": 96,
		"vllm:external_prefix_cache_queries_total": 164, "vllm:external_prefix_cache_hits_total": 164,
		"vllm:nixl_num_descriptors_sum": 7 + 4, "vllm:prompt_tokens_total": 260, "vllm:prompt_tokens_cached_total": 260,
	} {
		if got := gauge(t, d, name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	for source, want := range map[string]float64{"external_kv_transfer": 164, "local_cache_hit": 96, "local_compute": 0} {
		if got := gauge(t, d, "vllm:prompt_tokens_by_source_total", `source="`+source+`"`); got != want {
			t.Errorf("prompt tokens by %s: %v, want %v", source, got, want)
		}
	}
}

// Wrong KV is cached as if it were right, because it is filed by the prompt's tokens.
func TestWrongKVStaysInTheCache(t *testing.T) {
	p, d := pair(t, sim.Options{})
	a := body{"prompt": tokens("a", 64), "max_tokens": 4}
	foreign := prefill(t, p, completionsPath, a.with("prompt", tokens("b", 64)))
	post(t, d.URL()+completionsPath, a.with("kv_transfer_params", foreign))
	_, answer := post(t, d.URL()+completionsPath, a)
	if got := text(t, answer); !strings.Contains(got, "WRONG-KV") {
		t.Errorf("the next request says %q", got)
	}
}

func TestNextTurnOfAChatFindsTheAnswer(t *testing.T) {
	e := start(t, sim.Options{})
	turns := []sim.Message{{Role: "user", Content: tokens("a", 40)}}
	_, answer := post(t, e.URL()+"/v1/chat/completions", body{"messages": turns, "max_tokens": 60})
	said := text(t, answer)
	before := len(sim.ChatPrompt(turns...))/4 + 59
	turns = append(turns, sim.Message{Role: "assistant", Content: said}, sim.Message{Role: "user", Content: "go on"})
	_, answer = post(t, e.URL()+"/v1/chat/completions", body{"messages": turns, "max_tokens": 2})
	if got, want := usageOf(t, answer).Details.Cached, before/16*16; got != want || text(t, answer) != sim.Text(sim.ChatPrompt(turns...), 2) {
		t.Errorf("%d cached, want %d of the first turn's blocks; %q", got, want, text(t, answer))
	}
}

func TestChoicesShareTheirPrompt(t *testing.T) {
	e := start(t, sim.Options{})
	b := body{"prompt": tokens("a", 64), "n": 2, "temperature": 1, "max_tokens": 1}
	post(t, e.URL()+completionsPath, b)
	if got := gauge(t, e, "vllm:prefix_cache_hits_total"); got != 48 {
		t.Errorf("the second choice hit %v tokens, want 48", got)
	}
}

func TestPromptThatWasNeverComputedIsNotCached(t *testing.T) {
	e := start(t, sim.Options{PrefillTokensPerSecond: 1})
	c := send(t, e, completionsPath, body{"prompt": tokens("a", 64)})
	await(t, "it runs", func() bool { return gauge(t, e, "vllm:num_requests_running") == 1 })
	c.leave()
	awaitOutcome(t, e, "aborted")
	send(t, e, completionsPath, body{"prompt": tokens("a", 64)})
	await(t, "it runs", func() bool { return gauge(t, e, "vllm:num_requests_running") == 1 })
	if got := gauge(t, e, "vllm:prefix_cache_hits_total"); got != 0 {
		t.Errorf("%v tokens found", got)
	}
}

func TestRestartEmptiesTheCache(t *testing.T) {
	e := start(t, sim.Options{})
	ask(t, e, tokens("a", 64), 1)
	if err := e.Restart(); err != nil {
		t.Fatal(err)
	}
	if got := usageOf(t, ask(t, e, tokens("a", 64), 1)).Details.Cached; got != 0 {
		t.Errorf("%d tokens cached", got)
	}
}

// Cached blocks without a holder are free ones. A request that finds them takes them from these.
func TestFoundBlocksCountAsTaken(t *testing.T) {
	hold := newBarrier("d1", sim.PhaseStreamEvent)
	_, d := pair(t, sim.Options{NumBlocks: 6, Hook: hold.hook})
	t.Cleanup(func() { close(hold.pass) })
	ask(t, d, tokens("a", 64), 1) // not streamed, so not held
	send(t, d, completionsPath, body{"prompt": tokens("b", 20), "max_tokens": 2, "stream": true})
	<-hold.reached
	send(t, d, completionsPath, body{"prompt": tokens("a", 90), "max_tokens": 2, "stream": true}) // 4 found, 2 more
	await(t, "it queues", func() bool { return gauge(t, d, "vllm:num_requests_waiting") == 1 })
}

// This is how vLLM counts. If only the last token is computed, it counts as found too. A pulled
// prompt of one token counts as computed.
func TestLastTokenIsCountedOddly(t *testing.T) {
	p, d := pair(t, sim.Options{})
	for range 2 {
		prefill(t, p, completionsPath, body{"prompt": tokens("a", 97)})
	}
	one := body{"prompt": "one", "max_tokens": 2}
	post(t, d.URL()+completionsPath, one.with("kv_transfer_params", prefill(t, p, completionsPath, one)))
	for _, tc := range []struct {
		e      *sim.Engine
		source string
		want   float64
	}{
		{p, "local_compute", 97 + 1 + 1}, {p, "local_cache_hit", 97},
		{d, "local_compute", 1}, {d, "external_kv_transfer", 0},
	} {
		if got := gauge(t, tc.e, "vllm:prompt_tokens_by_source_total", `source="`+tc.source+`"`); got != tc.want {
			t.Errorf("%s: prompt tokens by %s: %v, want %v", tc.e.Name(), tc.source, got, tc.want)
		}
	}
	if got := gauge(t, d, "vllm:external_prefix_cache_hits_total"); got != 1 {
		t.Errorf("external hits %v, want 1", got)
	}
}
