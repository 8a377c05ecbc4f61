package engines

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"xpyd/router"
)

// recorded is the body of an exchange with a real engine.
func recorded(tb testing.TB, path string) []byte {
	tb.Helper()
	b, err := os.ReadFile("../sim/testdata/" + path)
	if err != nil {
		tb.Fatal(err)
	}
	_, response, ok := bytes.Cut(b, []byte("\nHTTP/1.1 200 OK\r\n"))
	if !ok {
		tb.Fatalf("%s holds no response", path)
	}
	_, body, ok := bytes.Cut(response, []byte("\r\n\r\n"))
	if !ok {
		tb.Fatalf("%s holds no body", path)
	}
	return body
}

func TestRecordedPages(t *testing.T) {
	for _, tc := range []struct {
		path string
		want func(e *router.EngineState)
	}{
		{"vllm-0.32.0/p-get-metrics.http", func(e *router.EngineState) {
			e.Started = 1.79528784784e+09
			e.PrefixQueries, e.PrefixHits, e.PromptTokens, e.GenerationTokens = 2863, 0, 2863, 14
			e.PulledTokens, e.ComputedTokens = 0, 2863
			e.PrefillSeconds, e.Prefills, e.PrefillTokens = 2.491397522004263, 14, 2863
			e.TransferSeconds, e.Transfers, e.TransferBytes = 0, 0, 0
		}},
		// Its engine pulled blocks, so the prefill times are not its own.
		{"vllm-0.32.0/d-get-metrics.http", func(e *router.EngineState) {
			e.Started = 1.79528784737e+09
			e.PrefixQueries, e.PrefixHits, e.PromptTokens, e.GenerationTokens = 2045, 0, 1227, 26
			e.PulledTokens, e.ComputedTokens = 1227, 0
			e.Prefills, e.PrefillTokens = 10, 2045
			e.TransferSeconds, e.Transfers, e.TransferBytes = 0.521702, 6, 1376256
		}},
		{"vllm-0.28.0/d-get-metrics.http", func(e *router.EngineState) {
			e.Started = 1.79528508078e+09
			e.PrefixQueries, e.PrefixHits, e.PromptTokens, e.GenerationTokens = 2045, 0, 1227, 26
			e.PulledTokens, e.ComputedTokens = 1227, 0
			e.Prefills, e.PrefillTokens = 10, 818
			e.TransferSeconds, e.Transfers, e.TransferBytes = 0.270824, 6, 1376256
		}},
	} {
		t.Run(tc.path, func(t *testing.T) {
			want := router.UnknownEngine()
			want.Running, want.Waiting, want.KVUsage, want.BlockSize, want.Blocks, want.WholeBlocks = 0, 0, 0, 32, 256, true
			tc.want(&want)
			got, err := parsePage(recorded(t, tc.path), router.NoRank)
			if err != nil || got != want {
				t.Errorf("%+v, %v\nwant %+v", got, err, want)
			}
		})
	}
}

// load are the lines of a page with all of an engine's load.
func load(running, waiting, usage string) string {
	return fmt.Sprintf("vllm:num_requests_running{engine=\"0\",model_name=\"m\"} %s\nvllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} %s\n"+
		"vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} %s\n", running, waiting, usage)
}

func TestPages(t *testing.T) {
	type state = router.EngineState
	for _, tc := range []struct {
		name, text string
		fault      string // of the load
		want       func(e *state)
	}{
		{"load", load("3.0", "2.0", "0.25"), "", func(e *state) { e.Running, e.Waiting, e.KVUsage = 3, 2, .25 }},
		{"lines end in CRLF, the last one in nothing", "vllm:num_requests_running 3\r\nvllm:num_requests_waiting 1\r\nvllm:kv_cache_usage_perc 1", "",
			func(e *state) { e.Running, e.Waiting, e.KVUsage = 3, 1, 1 }},
		{"timestamps", "vllm:num_requests_running{} 3 1795287847000\nvllm:num_requests_waiting\t1 17952\nvllm:kv_cache_usage_perc 5e-1 1\n", "",
			func(e *state) { e.Running, e.Waiting, e.KVUsage = 3, 1, .5 }},
		{"ranks are summed, usage is their mean", load("3", "2", "0.25") + strings.ReplaceAll(load("4", "0", "0.75"), `engine="0"`, `engine="1"`) +
			`vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="100"} 1.0` + "\n" +
			`vllm:cache_config_info{block_size="16",engine="1",num_gpu_blocks="120"} 1.0` + "\n", "",
			func(e *state) {
				e.Running, e.Waiting, e.KVUsage, e.BlockSize, e.Blocks = 7, 2, .5, 16, 220
			}},
		{"by reason is not the whole", load("0", "5", "0") + `vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 5` + "\n", "",
			func(e *state) { e.Running, e.Waiting, e.KVUsage = 0, 5, 0 }},
		{"old names", "vllm:num_requests_running 1\nvllm:num_requests_waiting 0\nvllm:gpu_cache_usage_perc 0.5\nvllm:gpu_prefix_cache_queries_total 20\nvllm:gpu_prefix_cache_hits_total 10\n", "",
			func(e *state) {
				e.Running, e.Waiting, e.KVUsage, e.PrefixQueries, e.PrefixHits = 1, 0, .5, 20, 10
			}},
		{"old names beside new ones", "vllm:gpu_cache_usage_perc 0.5\nvllm:gpu_prefix_cache_queries_total 20\nvllm:gpu_prefix_cache_hits_total 10\n" +
			load("1", "0", "0.5") + "vllm:prefix_cache_queries 20\nvllm:prefix_cache_hits 10\n", "",
			func(e *state) {
				e.Running, e.Waiting, e.KVUsage, e.PrefixQueries, e.PrefixHits = 1, 0, .5, 20, 10
			}},
		{"a counter's creation time is none of its values", load("0", "0", "0") + "vllm:prompt_tokens_total 7.0\nvllm:prompt_tokens_created 1.79e+09\n", "",
			func(e *state) { e.Running, e.Waiting, e.KVUsage, e.PromptTokens = 0, 0, 0, 7 }},
		{"labels with everything in them", `vllm:num_requests_running{engine="0",model_name="a} 9 \" \\"} 3` + "\n" + load("0", "1", "0"), "",
			func(e *state) { e.Running, e.Waiting, e.KVUsage = 3, 1, 0 }},
		{"more hits than queries", load("0", "0", "0") + "vllm:prefix_cache_queries_total 5\nvllm:prefix_cache_hits_total 6\n", "",
			func(e *state) { e.Running, e.Waiting, e.KVUsage = 0, 0, 0 }},
		{"no size yet", load("0", "0", "0") + `vllm:cache_config_info{mamba_block_size="8",block_size="16",num_gpu_blocks="None",num_gpu_blocks_override="5"} 1.0` + "\n", "",
			func(e *state) { e.Running, e.Waiting, e.KVUsage, e.BlockSize = 0, 0, 0, 16 }},

		{"empty", "", "no vllm:num_requests_running, no vllm:num_requests_waiting, no vllm:kv_cache_usage_perc", func(*state) {}},
		{"another server's", "sglang:num_running_reqs 3\nnum_requests_running 4\nprocess_start_time_seconds 1.5e9\n",
			"no vllm:num_requests_running, no vllm:num_requests_waiting, no vllm:kv_cache_usage_perc", func(e *state) { e.Started = 1.5e9 }},
		{"comments", "# TYPE vllm:num_requests_running gauge\n#vllm:num_requests_running 4\n" + load("0", "0", "0"), "",
			func(e *state) { e.Running, e.Waiting, e.KVUsage = 0, 0, 0 }},
		{"below 0", load("-1", "2", "-0.5"), "vllm:num_requests_running has an impossible value, vllm:kv_cache_usage_perc has an impossible value",
			func(e *state) { e.Waiting = 2 }},
		{"one rank below 0", load("5", "2", "0") + "vllm:num_requests_running -1\n", "vllm:num_requests_running has an impossible value",
			func(e *state) { e.Waiting, e.KVUsage = 2, 0 }},
		{"no number", load("NaN", "+Inf", "nan"), "vllm:num_requests_running has an impossible value, vllm:num_requests_waiting has an impossible value, vllm:kv_cache_usage_perc has an impossible value",
			func(*state) {}},
		{"a number that is no count", load("1e300", "1", "0"), "vllm:num_requests_running has an impossible value",
			func(e *state) { e.Waiting, e.KVUsage = 1, 0 }},
		{"per cent", load("1", "1", "57.5"), "vllm:kv_cache_usage_perc has an impossible value", func(e *state) { e.Running, e.Waiting = 1, 1 }},
		{"garbage", "vllm:num_requests_running{engine=\"0\"\nvllm:num_requests_waiting{engine=0} 5\nvllm:kv_cache_usage_perc{\"} 0.5\n",
			"vllm:num_requests_running has an impossible value, vllm:num_requests_waiting has an impossible value, vllm:kv_cache_usage_perc has an impossible value", func(*state) {}},
		{"no values", "vllm:num_requests_running\nvllm:num_requests_waiting{}\nvllm:kv_cache_usage_perc{} \n",
			"no vllm:num_requests_running, vllm:num_requests_waiting has an impossible value, vllm:kv_cache_usage_perc has an impossible value", func(*state) {}},
		{"a number of many digits", load(strings.Repeat("1", 33), "1", "0"), "vllm:num_requests_running has an impossible value",
			func(e *state) { e.Waiting, e.KVUsage = 1, 0 }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want := router.UnknownEngine()
			tc.want(&want)
			got, err := parsePage([]byte(tc.text), router.NoRank)
			if fault := fmt.Sprint(err); got != want || err == nil != (tc.fault == "") || err != nil && fault != tc.fault {
				t.Errorf("%+v, %v\nwant %+v, %v", got, err, want, tc.fault)
			}
		})
	}
}

func FuzzPage(f *testing.F) {
	f.Add(recorded(f, "vllm-0.32.0/p-get-metrics.http"))
	f.Add([]byte(load("1", "2", "0.5") + load("NaN", "-1", "+Inf")))
	f.Add([]byte("vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"9\\\"\"} 1\nvllm:num_requests_running{a=\"\\"))
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := parsePage(text, router.NoRank)
		if err == nil && (e.Running < 0 || e.Waiting < 0 || e.KVUsage < 0) {
			t.Errorf("no fault in %+v", e)
		}
		for _, v := range []int64{e.Running, e.Waiting, e.BlockSize, e.Blocks, e.PrefixQueries, e.PrefixHits, e.PromptTokens, e.GenerationTokens, e.Prefills, e.PrefillTokens, e.Transfers, e.TransferBytes} {
			if v < -1 || v > 1<<53 {
				t.Errorf("%d in %+v", v, e)
			}
		}
		if e.KVTokens() < -1 || !(e.KVUsage == -1 || e.KVUsage >= 0 && e.KVUsage <= 1) || !(e.Started == -1 || e.Started >= 0) || e.PrefixHits > e.PrefixQueries {
			t.Errorf("%+v", e)
		}
		if len(text) > 0 { // a page that is cut anywhere causes no panic
			_, _ = parsePage(text[:len(text)/2], router.NoRank)
		}
	})
}

func BenchmarkPage(b *testing.B) {
	text := recorded(b, "vllm-0.32.0/d-get-metrics.http")
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := parsePage(text, router.NoRank); err != nil {
			b.Fatal(err)
		}
	}
}
