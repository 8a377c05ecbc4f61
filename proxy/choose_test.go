package proxy_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"xpyd/router"
	"xpyd/sim"
)

func pathOf(a answer) string {
	return a.header.Get("X-Xpyd-Path") + " " + a.header.Get("X-Xpyd-Reason")
}

func streamBody(words int) string {
	return `{"model":"sim","stream":true,"max_tokens":4,"prompt":"` + strings.Repeat("abc ", words) + `"}`
}

// pd.mode and pd.threshold_tokens say which requests get a prefill; the client sees which way and
// why, and P sees only those requests.
func TestModeAndThresholdChooseThePath(t *testing.T) {
	together(t)
	for name, tc := range map[string]struct {
		pd          router.PD
		short, long string
		prefills    int
	}{
		"always":    {router.PD{Mode: router.PDAlways}, "disaggregated none", "disaggregated none", 2},
		"never":     {router.PD{Mode: router.PDNever}, "decode_only pd_never", "decode_only pd_never", 0},
		"threshold": {router.PD{Mode: router.PDAlways, ThresholdTokens: 100}, "decode_only short_prompt", "disaggregated none", 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{router: func(c *router.Config) { c.PD = tc.pd }})
			short, long := r.post("/v1/completions", streamBody(20)), r.post("/v1/completions", streamBody(400))
			for _, got := range []struct{ what, is, want string }{{"short", pathOf(short), tc.short}, {"long", pathOf(long), tc.long}} {
				if got.is != got.want {
					t.Errorf("%s prompt: %s, want %s", got.what, got.is, got.want)
				}
			}
			if short.status != 200 || long.status != 200 || !strings.HasSuffix(long.body, "data: [DONE]\n\n") {
				t.Errorf("%d, %d, %q", short.status, long.status, long.body)
			}
			if got := len(r.prefill[0].Requests()); got != tc.prefills {
				t.Errorf("%d requests on the prefill engine, want %d", got, tc.prefills)
			}
		})
	}
}

// In mode auto a transfer that takes longer than what it saves is learned from the
// first streams, and both prices are told at level debug.
func TestAutoLearnsThatTheTransferIsDear(t *testing.T) {
	r := newRig(t, rigOptions{
		router: func(c *router.Config) { c.PD.Mode = router.PDAuto },
		engine: func(o *sim.Options) { o.PrefillTokensPerSecond, o.TransferPerBlock = 1e6, 5*time.Millisecond },
	})
	if got := pathOf(r.post("/v1/completions", streamBody(400))); got != "disaggregated price" {
		t.Errorf("the first request, of which nothing is known: %s", got)
	}
	if got := pathOf(r.post("/v1/completions", streamBody(400))); got != "decode_only price" {
		t.Errorf("after a transfer of half a second: %s", got)
	}
	if logs := r.logs.String(); !strings.Contains(logs, `"split_ms":`) || !strings.Contains(logs, `"local_ms":`) {
		t.Errorf("no prices in the log:\n%s", logs)
	}
}

// While the first transfers are under way, no price of one is known. Requests that come meanwhile must not
// line up after them.
func TestAutoDoesNotWaitForTheFirstTransferToEnd(t *testing.T) {
	r := newRig(t, rigOptions{
		router: func(c *router.Config) { c.PD.Mode = router.PDAuto },
		engine: func(o *sim.Options) { o.PrefillTokensPerSecond, o.TransferPerBlock = 1e6, 200*time.Millisecond },
	})
	first := make(chan answer, 1)
	go func() { first <- r.post("/v1/completions", streamBody(400)) }()
	r.await("pinned", func() bool { return r.prefill[0].Ledger().Pinned > 0 })
	time.Sleep(300 * time.Millisecond) // decode needs far less for the prompt
	if got := pathOf(r.post("/v1/completions", streamBody(400))); got != "decode_only price" {
		t.Errorf("while the first transfer takes seconds: %s", got)
	}
	select {
	case <-first:
		t.Error("the first transfer has ended: the test proves nothing")
	default:
		if got := pathOf(r.soon(first)); got != "disaggregated price" {
			t.Errorf("the first request: %s", got)
		}
	}
}

// The blocks of prompts that are still with a prefill engine come to decode before those of a further one.
func TestAutoCountsTransfersThatWillCome(t *testing.T) {
	const ahead, transfer = 3, 100. // in number, and in ms
	r := newRig(t, rigOptions{
		router: func(c *router.Config) { c.PD = router.PD{Mode: router.PDAuto, StallWeight: 1e4} }, // one running answer, and all others are split
		engine: func(o *sim.Options) {
			o.PrefillTokensPerSecond, o.TransferPerBlock, o.TokenLatency = 1e6, 4*time.Millisecond, 10*time.Millisecond
		},
	})
	long := func(i int) string { // none shares its beginning with another
		return strings.Replace(streamBody(400), `"abc `, fmt.Sprintf(`"%d abc `, i), 1)
	}
	r.post("/v1/completions", long(0)) // shows the price
	prices := func() (split []float64) {
		for line := range strings.Lines(r.logs.String()) {
			var priced struct {
				Split *float64 `json:"split_ms"`
			}
			if json.Unmarshal([]byte(line), &priced) == nil && priced.Split != nil {
				split = append(split, *priced.Split)
			}
		}
		return split
	}
	answers := make(chan answer, 1+ahead)
	send := func(body string) {
		n := len(prices())
		go func() { answers <- r.post("/v1/completions", body) }()
		r.await("priced", func() bool { return len(prices()) > n })
	}
	send(`{"model":"sim","stream":true,"max_tokens":300,"prompt":"abc"}`)
	r.await("running", func() bool { return r.metric("xpyd_in_flight") >= 1 })
	r.prefill[0].Freeze()
	for i := range ahead {
		send(long(1 + i))
	}
	r.prefill[0].Thaw()
	for range 1 + ahead {
		r.soon(answers)
	}
	// Each one ahead adds its transfer. What a prompt costs besides depends on the machine.
	if p := prices(); p[len(p)-1]-p[2] < 1.5*transfer {
		t.Errorf("split costs %.0f ms, a transfer %v ms", p, transfer)
	}
}

// GET /advice and the gauges say what the ratio of the pools should be, from the times of the legs
// and the metrics of the decode engines.
func TestAdviceOnTheAdminPort(t *testing.T) {
	r := newRig(t, rigOptions{router: func(c *router.Config) { c.Routing.Poll = 20 * time.Millisecond }})
	if text := r.adminText("/advice"); !strings.Contains(text, `"prices": {}`) {
		t.Errorf("before any request: %s", text)
	}
	for range 3 {
		r.post("/v1/completions", streamBody(400))
	}
	r.await("advised", func() bool { return strings.Contains(r.adminText("/advice"), `"short": "none"`) })
	r.await("transfers in the metrics", func() bool {
		text := r.metricsText()
		return strings.Contains(text, `xpyd_engine_transfer_bytes_total{backend=`) && strings.Contains(text, `xpyd_engine_transfer_seconds_total{backend=`)
	})
	text := r.adminText("/advice")
	for _, want := range []string{`"arithmetic": "prefill: `, `"balanced_prefill": 1`, `"balanced_decode": 1`, `"transfer": {`, `"requests": 3`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	for query, want := range map[string]string{
		"?ttft=500ms": `"words": "with TTFT p90 ≤ 500 ms: 1:1 up to `, "?tpot=20": `"tpot_seconds": 0.02`,
		"?ttft=soon": `ttft=\"soon\": want a time`, "?itl=20ms": `there is no parameter \"itl\"`,
	} {
		if text := r.adminText("/advice" + query); !strings.Contains(text, want) {
			t.Errorf("%s: no %s in %s", query, want, text)
		}
	}
	for _, name := range []string{`xpyd_pool_load_ratio{role="prefill"}`, `xpyd_pool_balanced_backends{role="decode"}`, `xpyd_price_per_token_seconds{work="transfer"}`} {
		if !strings.Contains(r.metricsText(), name) {
			t.Errorf("no %s among the metrics", name)
		}
	}
}

// What would go to decode alone anyway does not suffer when there is no prefill engine.
func TestAutoKeepsTheThresholdWithoutPrefill(t *testing.T) {
	r := newRig(t, rigOptions{router: func(c *router.Config) {
		c.PD = router.PD{Mode: router.PDAuto, ThresholdTokens: 100}
		c.Health.Interval, c.Health.SuspectInterval = 20*time.Millisecond, 20*time.Millisecond
	}})
	r.prefill[0].Kill()
	r.await("down", func() bool { return r.metric("xpyd_backend_up") == 1 })
	if got := pathOf(r.post("/v1/completions", streamBody(20))); got != "decode_only short_prompt" {
		t.Errorf("short prompt: %s", got)
	}
	if got := pathOf(r.post("/v1/completions", streamBody(400))); got != "decode_only prefill_unavailable" {
		t.Errorf("long prompt: %s", got)
	}
}

// P has computed the part of the prompt that it had not cached, also if the estimated size of the
// prompt is far from the real one.
func TestCachedPartIsNotPriced(t *testing.T) {
	r := newRig(t, rigOptions{})
	body := `{"model":"sim","stream":true,"max_tokens":4,"prompt":"` + strings.Repeat(`\u0061`, 4000) + `"}` // 1,000 tokens, estimated as 6,000
	computed := func() float64 {
		var a struct{ Prefill router.PoolAdvice }
		if err := json.Unmarshal([]byte(r.adminText("/advice")), &a); err != nil {
			t.Fatal(err)
		}
		return float64(a.Prefill.Tokens)
	}
	r.post("/v1/completions", body)
	first := computed()
	r.post("/v1/completions", body)
	if second := computed() - first; first < 5000 || second > first/20 {
		t.Errorf("%v tokens computed, and %v of the same again", first, second)
	}
}

// A prompt that decode computes pauses the answers that run there meanwhile, and not its own, which begins when it is
// over. Answers that never run beside such a prompt say nothing of what it costs others, however long their own were.
func TestAPromptDoesNotPauseItsOwnAnswer(t *testing.T) {
	together(t)
	r := newRig(t, rigOptions{
		router: func(c *router.Config) { c.PD.Mode = router.PDNever },
		engine: func(o *sim.Options) { o.PrefillTokensPerSecond = 1000 },
	})
	for i := range 20 {
		body := strings.Replace(streamBody(20+i%2*400), "abc", fmt.Sprintf("%03d", i), 1) // of a prompt that no cache has
		if got := r.post("/v1/completions", body); got.status != 200 {
			t.Fatal(got.status, got.body)
		}
	}
	if got := r.stallShare(t); got < 0.9 || got > 1.1 {
		t.Errorf("a share of %.2f of a prompt's time is lost by others, want 1: there were none", got)
	}
}

// Where no prefill engine tells how many tokens a prompt has, the answer's usage does. Otherwise a fleet that serves whole
// would take prompts for a third of what they are, or three times that, for ever.
func TestWholeAnswersTellTheTokensOfPrompts(t *testing.T) {
	together(t)
	for name, more := range map[string]string{"whole": ``, "streamed": `,"stream":true,"stream_options":{"include_usage":true}`} {
		r := newRig(t, rigOptions{router: func(c *router.Config) { c.PD.Mode, c.DecodePolicy = router.PDNever, "prefix" }})
		was, estimate := 0.0, 0.0
		for i := range 12 {
			prompt := fmt.Sprintf("%03d", i) + strings.Repeat(`\u00e9`, 4000) // 12 bytes of the body are a token
			if got := r.post("/v1/completions", `{"model":"sim","max_tokens":1,"prompt":"`+prompt+`"`+more+`}`); got.status != 200 {
				t.Fatal(name, got.status, got.body)
			}
			now := r.metric(`xpyd_prefix_cache_estimated_queries_total{`)
			if estimate, was = now-was, now; i == 0 && estimate < 5000 {
				t.Fatalf("%s: nothing was known, and 2,000 tokens in 24 KB were taken for %v", name, estimate)
			}
		}
		if estimate > 2300 {
			t.Errorf("%s: a prompt of 2,000 tokens is taken for %v", name, estimate)
		}
	}
}

// The first event of a list of prompts comes when the first of them are computed, so its time is not that of all.
func TestListsOfPromptsDoNotPriceTheirTokens(t *testing.T) {
	r := newRig(t, rigOptions{router: func(c *router.Config) { c.PD.Mode = router.PDAuto }})
	list := `{"model":"sim","stream":true,"max_tokens":4,"prompt":["a","` + strings.Repeat("abc ", 50) + `"]}`
	if got := r.post("/v1/completions", list); got.status != 200 || pathOf(got) != "decode_only prompt_list" {
		t.Fatal(got.status, got.body, pathOf(got))
	}
	var advice struct {
		Prices map[string]json.RawMessage `json:"prices"`
	}
	if err := json.Unmarshal([]byte(r.adminText("/advice")), &advice); err != nil || advice.Prices["local"] != nil {
		t.Errorf("a price of prompts on decode, learned from a list: %s (%v)", advice.Prices["local"], err)
	}
}

// A stream of four choices has four events for each step of the engine, so it is no slower for the events that it has.
// Counted as steps they made the share 3. A busy machine moves it a little.
func TestSeveralChoicesDoNotTellTheStallShare(t *testing.T) {
	r := newRig(t, rigOptions{
		router: func(c *router.Config) { c.PD.Mode = router.PDNever },
		engine: func(o *sim.Options) { o.PrefillTokensPerSecond, o.TokenLatency = 200, 10*time.Millisecond },
	})
	var answers sync.WaitGroup
	for i := range 20 {
		answers.Go(func() {
			r.post("/v1/completions", fmt.Sprintf(`{"model":"sim","stream":true,"max_tokens":200,"n":%d,"prompt":"%d"}`, 1+i%2*3, i))
		})
	}
	for i := range 3 {
		time.Sleep(300 * time.Millisecond) // the answers have begun
		r.post("/v1/completions", strings.Replace(streamBody(50), "abc", fmt.Sprintf("%03d", i), 1))
	}
	answers.Wait()
	if got := r.stallShare(t); got < 0.4 || got > 1.8 {
		t.Errorf("running answers lose %.2f of a prompt's time, want about 1", got)
	}
}

func (r *rig) stallShare(t *testing.T) float64 {
	t.Helper()
	var advice struct {
		StallShare float64 `json:"stall_share"`
	}
	if err := json.Unmarshal([]byte(r.adminText("/advice")), &advice); err != nil {
		t.Fatal(err)
	}
	return advice.StallShare
}

// An image of a megabyte has some thousand tokens. Were its bytes counted as text, the price of a token would fall to
// nothing, and with it that of the pauses of running answers.
func TestImagesAreNotPricedAsText(t *testing.T) {
	r := newRig(t, rigOptions{router: func(c *router.Config) { c.PD.Mode = router.PDAuto }})
	image := `{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat("A", 1<<20) + `"}}`
	body := `{"model":"sim","stream":true,"max_tokens":4,"messages":[{"role":"user","content":[{"type":"text","text":"what is this?"},` + image + `]}]}`
	if got := r.post("/v1/chat/completions", body); got.status != 200 {
		t.Fatal(got.status, got.body)
	}
	var line struct {
		Tokens int `json:"prompt_tokens"`
	}
	for log := range strings.Lines(r.logs.String()) {
		if strings.Contains(log, `"path priced"`) && json.Unmarshal([]byte(log), &line) != nil {
			t.Fatal(log)
		}
	}
	if line.Tokens < 100 || line.Tokens > 5000 {
		t.Errorf("the prompt is expected to have %d tokens", line.Tokens)
	}
}
