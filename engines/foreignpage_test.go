package engines

import (
	"fmt"
	"strings"
	"testing"

	"xpyd/kvparams"
	"xpyd/router"
)

func sglangSeries(t testing.TB) *kvparams.Series {
	t.Helper()
	d, _ := kvparams.Lookup("sglang")
	s := d.(kvparams.Foreign).Series()
	return &s
}

// sglangLine is a gauge as SGLang 0.5.23 labels it.
func sglangLine(name, more, value string) string {
	return fmt.Sprintf("sglang:%s{engine_type=\"prefill\",model_name=\"m\",moe_ep_rank=\"0\",pp_rank=\"0\",tp_rank=\"0\"%s} %s\n", name, more, value)
}

func TestPagesOfSGLang(t *testing.T) {
	load := sglangLine("num_running_reqs", "", "3.0") + sglangLine("num_queue_reqs", "", "2.0") + sglangLine("token_usage", "", "0.25")
	type state = router.EngineState
	for _, tc := range []struct {
		name, text string
		fault      string
		want       func(e *state)
	}{
		{"load", load, "", func(e *state) { e.Running, e.Waiting, e.KVUsage = 3, 2, .25 }},
		{"all queues of a prefill server wait", load + sglangLine("num_grammar_queue_reqs", "", "1.0") + sglangLine("num_prefill_bootstrap_queue_reqs", "", "4.0") +
			sglangLine("num_prefill_inflight_queue_reqs", "", "5.0"), "", func(e *state) { e.Running, e.Waiting, e.KVUsage = 3, 12, .25 }},
		{"the bootstrap queue by its older name", load + sglangLine("num_prefill_prealloc_queue_reqs", "", "4.0"), "",
			func(e *state) { e.Running, e.Waiting, e.KVUsage = 3, 6, .25 }},
		{"all queues of a decode server wait", load + sglangLine("num_decode_prealloc_queue_reqs", "", "6.0") + sglangLine("num_decode_transfer_queue_reqs", "", "7.0") +
			sglangLine("num_decode_host_receive_queue_reqs", "", "7.0"), "", func(e *state) { e.Running, e.Waiting, e.KVUsage = 3, 15, .25 }},
		{"data-parallel ranks are summed, usage is their mean", strings.ReplaceAll(load, "}", `,dp_rank="0"}`) +
			strings.ReplaceAll(strings.ReplaceAll(load, "}", `,dp_rank="1"}`), "0.25", "0.75"), "",
			func(e *state) { e.Running, e.Waiting, e.KVUsage = 6, 4, .5 }},
		{"pipeline ranks have the same requests", load + strings.ReplaceAll(load, `pp_rank="0"`, `pp_rank="1"`), "",
			func(e *state) { e.Running, e.Waiting, e.KVUsage = 3, 2, .25 }},
		{"a priority is part of the whole", strings.ReplaceAll(load, "}", `,priority=""}`) + sglangLine("num_queue_reqs", `,priority="5"`, "2.0"), "",
			func(e *state) { e.Running, e.Waiting, e.KVUsage = 3, 2, .25 }},
		{"a counter is the sum of its priorities", load + sglangLine("prompt_tokens_total", `,is_streaming="True",priority="1"`, "7.0") +
			sglangLine("prompt_tokens_total", `,is_streaming="False",priority=""`, "5.0") + sglangLine("generation_tokens_total", "", "9.0"), "",
			func(e *state) { e.Running, e.Waiting, e.KVUsage, e.PromptTokens, e.GenerationTokens = 3, 2, .25, 12, 9 }},
		{"the size of the cache", load + sglangLine("page_size", "", "64.0") + sglangLine("num_pages", "", "100.0"), "",
			func(e *state) { e.Running, e.Waiting, e.KVUsage, e.BlockSize, e.Blocks = 3, 2, .25, 64, 100 }},
		{"lines end in CRLF, the last one in nothing", "sglang:num_running_reqs 3\r\nsglang:num_queue_reqs 2\r\nsglang:token_usage 0.25", "",
			func(e *state) { e.Running, e.Waiting, e.KVUsage = 3, 2, .25 }},
		{"a longer name", load + "sglang:num_running_reqs_offline_batch 9\n", "", func(e *state) { e.Running, e.Waiting, e.KVUsage = 3, 2, .25 }},
		{"vLLM's", "vllm:num_requests_running 3\nvllm:num_requests_waiting 2\nvllm:kv_cache_usage_perc 0.25\nprocess_start_time_seconds 1.5e9\n",
			"no sglang:num_running_reqs, no sglang:num_queue_reqs, no sglang:token_usage", func(e *state) { e.Started = 1.5e9 }},
		{"no number", strings.ReplaceAll(load, "3.0", "NaN"), "sglang:num_running_reqs has an impossible value", func(e *state) { e.Waiting, e.KVUsage = 2, .25 }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want := router.UnknownEngine()
			tc.want(&want)
			got, err := parseForeign([]byte(tc.text), sglangSeries(t), router.NoRank)
			if fault := fmt.Sprint(err); got != want || err == nil != (tc.fault == "") || err != nil && fault != tc.fault {
				t.Errorf("%+v, %v\nwant %+v, %v", got, err, want, tc.fault)
			}
		})
	}
}

// A rank has the gauges with its label, and no counter of the whole server.
func TestForeignPageOfARank(t *testing.T) {
	var text strings.Builder
	for rank, running := range []string{"3.0", "5.0"} {
		label := fmt.Sprintf(`,dp_rank="%d"`, rank)
		text.WriteString(sglangLine("num_running_reqs", label, running) + sglangLine("num_queue_reqs", label, "2.0") + sglangLine("token_usage", label, "0.25") +
			sglangLine("page_size", label, "64.0") + sglangLine("prompt_tokens_total", label, "7.0"))
	}
	text.WriteString(sglangLine("generation_tokens_total", `,is_streaming="False"`, "9.0"))
	want := router.UnknownEngine()
	want.Running, want.Waiting, want.KVUsage, want.BlockSize, want.PromptTokens = 5, 2, .25, 64, 7
	if got, err := parseForeign([]byte(text.String()), sglangSeries(t), 1); err != nil || got != want {
		t.Errorf("%+v, %v\nwant %+v", got, err, want)
	}
}

func FuzzForeignPage(f *testing.F) {
	f.Add([]byte(sglangLine("num_running_reqs", "", "3.0") + sglangLine("num_queue_reqs", `,priority="`, "NaN")))
	f.Add([]byte("sglang:num_running_reqs{a=\"\\"))
	series := sglangSeries(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := parseForeign(text, series, len(text)%3-1)
		if err == nil && (e.Running < 0 || e.Waiting < 0 || e.KVUsage < 0) {
			t.Errorf("no fault in %+v", e)
		}
		if e.KVTokens() < -1 || !(e.KVUsage == -1 || e.KVUsage >= 0 && e.KVUsage <= 1) {
			t.Errorf("%+v", e)
		}
	})
}
