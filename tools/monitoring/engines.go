package monitoring

import "fmt"

// perEngine is a percentile of a histogram of vLLM, by engine.
func perEngine(q, name string) []Query {
	return one(fmt.Sprintf("histogram_quantile(%s, sum by (instance, le) (rate(%s_bucket{$e}[$w])))", q, name), "{{instance}}")
}

func engines() Dashboard {
	return Dashboard{
		File: "engines.json", UID: "xpyd-engines", Title: "xpyd / Engines",
		About: "vLLM's own metrics of each engine, beside what xpyd sees of them.",
		Variables: append(ofXpyd(),
			Variable{"engine_job", "Engines' job", "label_values(vllm:num_requests_running, job)"},
			Variable{"model", "Model", `label_values(vllm:num_requests_running{job=~"$engine_job"}, model_name)`}),
		Rows: []Row{loadRow(), cacheRow(), transferRow(), timesRow(), readingsRow()},
	}
}

func loadRow() Row {
	return Row{"Load", []Panel{
		{Kind: graph, Title: "Requests that run", Unit: "short", Queries: one(`sum by (instance) (vllm:num_requests_running{$e})`, "{{instance}}")},
		{Kind: graph, Title: "Requests that wait, by reason", About: "deferred: they wait for KV blocks from a prefill engine.", Unit: "short", Queries: one(`sum by (instance, reason) (vllm:num_requests_waiting_by_reason{$e})`, "{{instance}} {{reason}}")},
		{Kind: graph, Title: "KV blocks in use", Unit: "percentunit", Queries: one(`max by (instance) (vllm:kv_cache_usage_perc{$e})`, "{{instance}}")},
		{Kind: graph, Title: "Prompt tokens", Unit: "short", Queries: one(`sum by (instance) (rate(vllm:prompt_tokens_total{$e}[$w]))`, "{{instance}}")},
		{Kind: graph, Title: "Generated tokens", Unit: "short", Queries: one(`sum by (instance) (rate(vllm:generation_tokens_total{$e}[$w]))`, "{{instance}}")},
		{Kind: graph, Title: "Ended requests and preemptions", Unit: "reqps", Queries: []Query{
			{`sum by (instance, finished_reason) (rate(vllm:request_success_total{$e}[$w])) > 0`, "{{instance}} {{finished_reason}}"}, {`sum by (instance) (rate(vllm:num_preemptions_total{$e}[$w]))`, "{{instance}} preempted"}}},
	}}
}

func cacheRow() Row {
	return Row{"Prefix cache", []Panel{
		{Kind: graph, Title: "Found in the prefix cache", Unit: "percentunit",
			Queries: one(`sum by (instance) (rate(vllm:prefix_cache_hits_total{$e}[$w])) / sum by (instance) (rate(vllm:prefix_cache_queries_total{$e}[$w]))`, "{{instance}}")},
		{Kind: graph, Title: "Where prompt tokens came from", About: "Decode engines should compute few of them.", Unit: "short", Stack: true,
			Queries: one(`sum by (instance, source) (rate(vllm:prompt_tokens_by_source_total{$e}[$w])) > 0`, "{{instance}} {{source}}")},
		{Kind: graph, Title: "xpyd's estimate of hits, and the engines' own", About: "How well xpyd's memory of prefixes fits the engines' caches.", Unit: "percentunit", Queries: []Query{
			{`sum by (backend) (rate(xpyd_prefix_cache_estimated_hits_total{$x}[$w])) / sum by (backend) (rate(xpyd_prefix_cache_estimated_queries_total{$x}[$w]))`, "{{backend}} estimated"},
			{`sum by (backend) (rate(xpyd_engine_prefix_cache_hits_total{$x}[$w])) / sum by (backend) (rate(xpyd_engine_prefix_cache_queries_total{$x}[$w]))`, "{{backend}} own"}}},
	}}
}

func transferRow() Row {
	return Row{"KV transfers (NIXL)", []Panel{
		{Kind: graph, Title: "Time of a transfer, p90", Unit: "s", Queries: perEngine("0.9", "vllm:nixl_xfer_time_seconds")},
		{Kind: graph, Title: "Bytes", Unit: "Bps", Queries: one(`sum by (instance) (rate(vllm:nixl_bytes_transferred_sum{$e}[$w]))`, "{{instance}}")},
		{Kind: graph, Title: "Bytes a second of transfer", About: "What the link gives while blocks move.", Unit: "Bps",
			Queries: one(`sum by (instance) (rate(vllm:nixl_bytes_transferred_sum{$e}[$w])) / sum by (instance) (rate(vllm:nixl_xfer_time_seconds_sum{$e}[$w]))`, "{{instance}}")},
		{Kind: graph, Title: "Failures", About: "In five minutes: transfers, notifications, and prefills whose lease ended unread.", Unit: "short", Queries: []Query{
			{`sum by (instance) (increase(vllm:nixl_num_failed_transfers_total{$e}[5m]))`, "{{instance}} transfers"},
			{`sum by (instance) (increase(vllm:nixl_num_failed_notifications_total{$e}[5m]))`, "{{instance}} notifications"},
			{`sum by (instance) (increase(vllm:nixl_num_kv_expired_reqs_total{$e}[5m]))`, "{{instance}} leases ended"}}},
		{Kind: graph, Title: "Blocks of a transfer, p90", Unit: "short", Queries: perEngine("0.9", "vllm:nixl_num_descriptors")},
		{Kind: graph, Title: "Prompt tokens that the connector brought", Unit: "percentunit",
			Queries: one(`sum by (instance) (rate(vllm:external_prefix_cache_hits_total{$e}[$w])) / sum by (instance) (rate(vllm:external_prefix_cache_queries_total{$e}[$w]))`, "{{instance}}")},
	}}
}

func timesRow() Row {
	return Row{"Times", []Panel{
		{Kind: graph, Title: "First token, p90", About: "The engines' own, and xpyd's over both legs.", Unit: "s",
			Queries: append(perEngine("0.9", "vllm:time_to_first_token_seconds"), Query{`histogram_quantile(0.9, sum by (le) (rate(xpyd_ttft_seconds_bucket{$x}[$w])))`, "xpyd"})},
		{Kind: graph, Title: "Between tokens, p90", Unit: "s",
			Queries: append(perEngine("0.9", "vllm:inter_token_latency_seconds"), Query{`histogram_quantile(0.9, sum by (le) (rate(xpyd_time_per_output_token_seconds_bucket{$x}[$w])))`, "xpyd"})},
		{Kind: graph, Title: "Whole request, p90", Unit: "s", Queries: perEngine("0.9", "vllm:e2e_request_latency_seconds")},
		// A mean would not do: vLLM counts a large negative time for a request that is aborted in the queue.
		{Kind: graph, Title: "In the engine's queue, p90", Unit: "s", Queries: perEngine("0.9", "vllm:request_queue_time_seconds")},
		{Kind: graph, Title: "Prefill, p90", Unit: "s", Queries: perEngine("0.9", "vllm:request_prefill_time_seconds")},
		{Kind: graph, Title: "Decode, p90", Unit: "s", Queries: perEngine("0.9", "vllm:request_decode_time_seconds")},
	}}
}

func readingsRow() Row {
	return Row{"What xpyd reads of them", []Panel{
		{Kind: graph, Title: "Running and waiting, of all clients", Unit: "short", Queries: []Query{
			{`max by (backend) (xpyd_engine_requests_running{$x})`, "{{backend}} running"}, {`max by (backend) (xpyd_engine_requests_waiting{$x})`, "{{backend}} waiting"}}},
		{Kind: graph, Title: "Requests that this xpyd has not sent", About: "An estimate.", Unit: "short", Queries: one(`sum by (backend) (xpyd_engine_requests_elsewhere{$x})`, "{{backend}}")},
		{Kind: graph, Title: "KV blocks in use", Unit: "percentunit", Queries: one(`max by (backend) (xpyd_engine_kv_usage_ratio{$x})`, "{{backend}}")},
		{Kind: graph, Title: "Age of the reading", Unit: "s", Queries: one(`max by (backend) (xpyd_engine_state_age_seconds{$x})`, "{{backend}}")},
		{Kind: graph, Title: "Readings", Unit: "reqps", Queries: one(`sum by (result) (rate(xpyd_engine_polls_total{$x}[$w]))`, "{{result}}")},
	}}
}
