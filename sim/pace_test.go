package sim_test

import (
	"math"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"xpyd/sim"
)

// This prompt is computed for an hour, before or after others.
const (
	slowSpeed = 0.01 // tokens a second
	slow      = "one prompt of a few tokens"
)

func TestPromptsAreComputedOneAfterTheOther(t *testing.T) {
	e := start(t, sim.Options{PrefillTokensPerSecond: slowSpeed})
	first := send(t, e, completionsPath, streamedBody(slow))
	await(t, "it runs", func() bool { return gauge(t, e, "vllm:num_requests_running") == 1 })
	second := send(t, e, completionsPath, streamedBody("two"))
	await(t, "it queues", func() bool { return gauge(t, e, "vllm:num_requests_waiting") == 1 })
	if got := gauge(t, e, "vllm:num_requests_waiting_by_reason", `reason="capacity"`); got != 1 {
		t.Errorf("%v wait for capacity", got)
	}
	third := send(t, e, completionsPath, streamedBody("three"))
	await(t, "both queue", func() bool { return gauge(t, e, "vllm:num_requests_waiting") == 2 })
	second.leave()
	await(t, "one has left the queue", func() bool { return gauge(t, e, "vllm:num_requests_waiting") == 1 })
	first.leave()
	await(t, "the next one runs", func() bool {
		return gauge(t, e, "vllm:num_requests_waiting") == 0 && gauge(t, e, "vllm:num_requests_running") == 1
	})
	third.leave()
}

func TestPromptsInTheirOrderTakeTheSumOfTheirTimes(t *testing.T) {
	e := start(t, sim.Options{PrefillTokensPerSecond: 1000, MaxBatchedTokens: 16})
	begin := time.Now()
	done := make(chan time.Duration)
	for _, seed := range []string{"a", "b", "c", "d"} {
		go func() {
			if status, answer, err := tryPost(e.URL()+completionsPath, body{"prompt": tokens(seed, 50), "max_tokens": 1}); err != nil || status != 200 {
				t.Errorf("%d %s %v", status, answer, err)
			}
			done <- time.Since(begin)
		}()
	}
	took := []time.Duration{<-done, <-done, <-done, <-done}
	slices.Sort(took) // two that measure may overtake each other
	for i, took := range took {
		if least := time.Duration(i+1) * 50 * time.Millisecond; took < least {
			t.Errorf("answer %d after %v, want %v of computing before", i, took, least)
		}
	}
}

func TestPromptsThatDoNotSlowEachOther(t *testing.T) {
	e := start(t, sim.Options{PrefillTokensPerSecond: slowSpeed, MaxBatchedTokens: -1})
	for range 3 {
		send(t, e, completionsPath, streamedBody(slow))
	}
	await(t, "all run", func() bool { return gauge(t, e, "vllm:num_requests_running") == 3 })
}

func TestCachedTokensCostNoTime(t *testing.T) {
	p, _ := pair(t, sim.Options{PrefillTokensPerSecond: 400, AbortWindow: -1})
	prompt := tokens("a", 97)
	begin := time.Now()
	prefill(t, p, completionsPath, body{"prompt": prompt})
	cold := time.Since(begin)
	best := time.Hour // a busy machine can only delay
	for range 5 {
		begin = time.Now()
		prefill(t, p, completionsPath, body{"prompt": prompt}) // one token of 97
		best = min(best, time.Since(begin))
	}
	if cold < 97*time.Second/400 || best > cold/2 {
		t.Errorf("%v cold, %v cached", cold, best)
	}
}

// While a prompt is computed, a running answer gets one token for each chunk.
func TestLocalPrefillSlowsRunningAnswers(t *testing.T) {
	const latency = 2 * time.Millisecond
	var written atomic.Int64
	hook := func(ev sim.Event) {
		if ev.Phase == sim.PhaseStreamEvent {
			written.Add(1)
		}
	}
	e := start(t, sim.Options{TokenLatency: latency, PrefillTokensPerSecond: 1000, MaxBatchedTokens: 100, Hook: hook})
	send(t, e, completionsPath, body{"prompt": "a", "stream": true, "max_tokens": 8000})
	await(t, "it is written", func() bool { return written.Load() > 1 })
	var before int64
	least := int64(math.MaxInt64) // a test that is held up counts too many
	for _, seed := range []string{"a", "b", "c", "d", "e"} {
		before = written.Load()
		ask(t, e, tokens(seed, 400), 1) // 4 chunks of 100 ms
		if least = min(least, written.Load()-before); least <= 100 {
			break
		}
	}
	if least > 100 {
		t.Errorf("%v tokens while 400 ms were computed: at %v a token, as if nothing were", least, latency)
	}
	await(t, "the answer goes on", func() bool { return written.Load() > before+20 })
}

func TestPullOnABusyEngineGoesOn(t *testing.T) {
	p, _ := pair(t, sim.Options{})
	busy := start(t, sim.Options{Role: sim.RoleDecode, Name: "d2", PrefillTokensPerSecond: slowSpeed})
	send(t, busy, completionsPath, streamedBody(slow))
	await(t, "it computes", func() bool { return gauge(t, busy, "vllm:num_requests_running") == 1 })
	status, answer := post(t, busy.URL()+completionsPath, textBody.with("max_tokens", 1).with("kv_transfer_params", prefill(t, p, completionsPath, textBody)))
	if status != 200 || text(t, answer) != sim.Text(textBody["prompt"].(string), 1) {
		t.Errorf("%d %s", status, answer)
	}
}

func TestTransferTimeChangesWhileItRuns(t *testing.T) {
	p, d := pair(t, sim.Options{})
	pull := func() time.Duration {
		b := textBody.with("prompt", tokens("a", 160)).with("cache_salt", itoa(int(time.Now().UnixNano())))
		handle := prefill(t, p, completionsPath, b)
		begin := time.Now()
		if status, answer := post(t, d.URL()+completionsPath, b.with("kv_transfer_params", handle)); status != 200 {
			t.Fatalf("%d %s", status, answer)
		}
		return time.Since(begin)
	}
	pull()
	if status, answer := post(t, d.URL()+"/sim/speed", body{"transfer_per_block": "20ms"}); status != 200 {
		t.Fatalf("%d %s", status, answer)
	}
	if took := pull(); took < 200*time.Millisecond {
		t.Errorf("10 blocks in %v, want 200ms", took)
	}
	d.SetTransferPerBlock(0)
	best := time.Hour // a busy machine can only delay
	for range 50 {
		if best = min(best, pull()); best < 200*time.Millisecond {
			break
		}
	}
	if best >= 200*time.Millisecond {
		t.Errorf("10 blocks in %v, want no time", best)
	}
	for _, b := range []body{{"transfer_per_block": "soon"}, {"token_latency": "1ms"}, {}} {
		if status, _ := post(t, d.URL()+"/sim/speed", b); status != http.StatusBadRequest {
			t.Errorf("%v: %d, want 400", b, status)
		}
	}
}

// A request whose KV did not come ends while it still counts as one that waits for it.
func TestNothingRunsLessThanNotAtAll(t *testing.T) {
	seen := make(chan float64, 1)
	var d *sim.Engine
	hook := func(ev sim.Event) {
		if ev.Phase == sim.PhaseAborted {
			seen <- gauge(t, d, "vllm:num_requests_running")
		}
	}
	p := start(t, sim.Options{Role: sim.RolePrefill})
	d = start(t, sim.Options{Role: sim.RoleDecode, LoadFailure: "recompute", PrefillTokensPerSecond: slowSpeed, Hook: hook})
	b := textBody.with("prompt", "a tale [[D:kvfail]]")
	c := send(t, d, completionsPath, b.with("kv_transfer_params", prefill(t, p, completionsPath, b)))
	await(t, "it waits for its blocks", func() bool { return gauge(t, d, "vllm:num_requests_waiting") == 1 })
	c.leave()
	if n := <-seen; n != 0 {
		t.Errorf("%v requests run once the only one has ended", n)
	}
}
