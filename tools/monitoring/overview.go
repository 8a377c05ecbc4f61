package monitoring

// ofXpyd are the choices of the dashboards of xpyd's own series.
func ofXpyd() []Variable {
	return []Variable{
		{"job", "Job", "label_values(xpyd_build_info, job)"},
		{"instance", "xpyd", `label_values(xpyd_build_info{job=~"$job"}, instance)`},
	}
}

// Dashboards are all dashboards.
func Dashboards() []Dashboard { return []Dashboard{overview(), disaggregation(), engines()} }

func overview() Dashboard {
	return Dashboard{
		File: "overview.json", UID: "xpyd-overview", Title: "xpyd / Overview",
		About:     "Is xpyd serving, how fast, for which models, and what does it cost?",
		Variables: ofXpyd(),
		Rows:      []Row{nowRow(), requestsRow(), latencyRow(), tokensRow(), keysRow(), processRow()},
	}
}

func nowRow() Row {
	return Row{"Now", []Panel{
		{Kind: stat, Title: "Ready", About: "1 while each xpyd answers 200 on /readyz.", Good: 1, Queries: one(`min(xpyd_ready{$x})`, "")},
		{Kind: stat, Title: "Completions", About: "Completions that ended, each second.", Unit: "reqps", Queries: one(`sum(rate(xpyd_requests_total{$x}[$w]))`, "")},
		{Kind: stat, Title: "Failed", About: "The part of the completions that got a 5xx or a broken stream.", Unit: "percentunit", Bad: 0.01,
			Queries: one(`sum(rate(xpyd_requests_total{$x,outcome=~"error|broken"}[$w])) / sum(rate(xpyd_requests_total{$x}[$w]))`, "")},
		{Kind: stat, Title: "First token, p90", About: "Nine streams in ten had their first token within this time.", Unit: "s",
			Queries: one(`histogram_quantile(0.9, sum by (le) (rate(xpyd_ttft_seconds_bucket{$x}[$w])))`, "")},
		{Kind: stat, Title: "Answer tokens", About: "Tokens of answers, each second.", Unit: "short", Queries: one(`sum(rate(xpyd_completion_tokens_total{$x}[$w]))`, "")},
		{Kind: stat, Title: "Waiting", About: "Completions that wait for an engine with room.", Unit: "short", Bad: 1, Queries: one(`sum(xpyd_queued{$x})`, "")},
		{Kind: stat, Title: "Prefill engines up", Unit: "percentunit", Good: 1, Queries: one(`avg(xpyd_backend_up{$x,role="prefill"})`, "")},
		{Kind: stat, Title: "Decode engines up", Unit: "percentunit", Good: 1, Queries: one(`avg(xpyd_backend_up{$x,role="decode"})`, "")},
		{Kind: stat, Title: "Disaggregated", About: "The part of the completions that both legs served.", Unit: "percentunit",
			Queries: one(`sum(rate(xpyd_decisions_total{$x,path="disaggregated"}[$w])) / sum(rate(xpyd_decisions_total{$x}[$w]))`, "")},
		{Kind: stat, Title: "In flight", About: "Legs that run on decode engines.", Unit: "short", Queries: one(`sum(xpyd_in_flight{$x,role="decode"})`, "")},
		{Kind: stat, Title: "KV blocks stranded", About: "Blocks of lost handles that wait for the end of their lease. It should be 0.", Unit: "short", Bad: 1, Queries: one(`sum(xpyd_kv_blocks_stranded{$x})`, "")},
		{Kind: stat, Title: "Certificate ends in", About: "Of the certificate that ends first. Empty without TLS.", Unit: "s", Good: 1209600, Bad: 172800,
			Queries: one(`min(xpyd_certificate_expiry_timestamp_seconds{$x}) - time()`, "")},
	}}
}

func requestsRow() Row {
	return Row{"Requests", []Panel{
		{Kind: graph, Title: "Completions by outcome", Unit: "reqps", Stack: true, Queries: one(`sum by (outcome) (rate(xpyd_requests_total{$x}[$w]))`, "{{outcome}}")},
		{Kind: graph, Title: "Completions by model", Unit: "reqps", Stack: true, Queries: one(`sum by (model) (rate(xpyd_model_requests_total{$x}[$w]))`, "{{model}}")},
		{Kind: graph, Title: "Errors by code", About: "docs/errors.md explains each code.", Unit: "reqps", Stack: true, Queries: one(`sum by (code) (rate(xpyd_request_errors_total{$x}[$w]))`, "{{code}}")},
		{Kind: graph, Title: "Why to decode alone", About: "docs/metrics.md explains each reason.", Unit: "reqps", Stack: true,
			Queries: one(`sum by (reason) (rate(xpyd_decisions_total{$x,path="decode_only"}[$w])) > 0 or sum by (path) (rate(xpyd_decisions_total{$x,path="disaggregated"}[$w]))`, "{{reason}}{{path}}")},
		{Kind: graph, Title: "Clients that left, by phase", Unit: "reqps", Stack: true, Queries: one(`sum by (phase) (rate(xpyd_client_gone_total{$x}[$w]))`, "{{phase}}")},
		{Kind: graph, Title: "Other routes", About: "Requests that one engine answers alone: embeddings, scores and others.", Unit: "reqps", Stack: true,
			Queries: one(`sum by (route) (rate(xpyd_relayed_requests_total{$x}[$w]))`, "{{route}}")},
	}}
}

func latencyRow() Row {
	return Row{"Latency", []Panel{
		{Kind: graph, Title: "Time to first token", About: "Of streams, from the request's head to the first byte of a token.", Unit: "s", Queries: quantiles(`xpyd_ttft_seconds_bucket{$x}`)},
		{Kind: graph, Title: "Time between tokens", About: "The mean gap of each stream.", Unit: "s", Queries: quantiles(`xpyd_time_per_output_token_seconds_bucket{$x}`)},
		{Kind: graph, Title: "Whole completion", Unit: "s", Queries: quantiles(`xpyd_request_duration_seconds_bucket{$x}`)},
		{Kind: graph, Title: "First token by path, p90", About: "decode_only computes its prompts on decode engines.", Unit: "s",
			Queries: one(`histogram_quantile(0.9, sum by (le, path) (rate(xpyd_ttft_seconds_bucket{$x}[$w])))`, "{{path}}")},
		{Kind: graph, Title: "Time in the queue, p90", About: "Of the completions that had to wait because all engines were at their cap.", Unit: "s",
			Queries: one(`histogram_quantile(0.9, sum by (le, role) (rate(xpyd_queue_seconds_bucket{$x}[$w])))`, "{{role}}")},
		{Kind: graph, Title: "Completions in the queue", Unit: "short", Stack: true, Queries: one(`sum by (role) (xpyd_queued{$x})`, "{{role}}")},
	}}
}

func tokensRow() Row {
	return Row{"Tokens", []Panel{
		{Kind: graph, Title: "Prompt tokens by model", Unit: "short", Stack: true, Queries: one(`sum by (model) (rate(xpyd_prompt_tokens_total{$x}[$w]))`, "{{model}}")},
		{Kind: graph, Title: "Answer tokens by model", Unit: "short", Stack: true, Queries: one(`sum by (model) (rate(xpyd_completion_tokens_total{$x}[$w]))`, "{{model}}")},
		{Kind: graph, Title: "Prompt tokens found in caches", About: "The part that the engine which computed the prompt had in its prefix cache.", Unit: "percentunit",
			Queries: one(`sum by (model) (rate(xpyd_prompt_tokens_cached_total{$x}[$w])) / sum by (model) (rate(xpyd_prompt_tokens_total{$x}[$w]))`, "{{model}}")},
		{Kind: graph, Title: "Completions without usage", About: "Their tokens are counted by events. Streams have usage if clients send stream_options.include_usage.", Unit: "percentunit",
			Queries: one(`sum(rate(xpyd_completions_without_usage_total{$x}[$w])) / sum(rate(xpyd_model_requests_total{$x}[$w]))`, "without usage")},
		{Kind: graph, Title: "Events relayed", About: "Server-sent events.", Unit: "short", Queries: one(`sum by (instance) (rate(xpyd_stream_events_total{$x}[$w]))`, "{{instance}}")},
	}}
}

func keysRow() Row {
	return Row{"Keys", []Panel{
		{Kind: graph, Title: "Requests by key", About: "By the names of clients' keys. Empty where no key is set.", Unit: "reqps", Stack: true, Queries: one(`sum by (key) (rate(xpyd_key_requests_total{$x}[$w]))`, "{{key}}")},
		{Kind: graph, Title: "Tokens by key", Unit: "short", Stack: true, Queries: one(`sum by (key, kind) (rate(xpyd_key_tokens_total{$x}[$w]))`, "{{key}} {{kind}}")},
		{Kind: graph, Title: "Refused, by key and limit", About: "docs/keys.md explains the limits.", Unit: "reqps", Stack: true, Queries: one(`sum by (key, limit) (rate(xpyd_key_refused_total{$x}[$w]))`, "{{key}} {{limit}}")},
	}}
}

func processRow() Row {
	return Row{"Process", []Panel{
		{Kind: graph, Title: "CPU", About: "Cores in use.", Unit: "short", Queries: one(`rate(process_cpu_seconds_total{$x}[$w])`, "{{instance}}")},
		{Kind: graph, Title: "Memory", Unit: "bytes", Queries: []Query{
			{`process_resident_memory_bytes{$x}`, "{{instance}}"}, {`sum(xpyd_request_bytes_buffered{$x})`, "request bodies"}, {`sum(xpyd_answer_bytes_buffered{$x})`, "answers"}}},
		{Kind: graph, Title: "Goroutines and descriptors", Unit: "short", Queries: []Query{{`sum(go_goroutines{$x})`, "goroutines"}, {`sum(process_open_fds{$x})`, "descriptors"}}},
		{Kind: graph, Title: "What should not happen", About: "Panics, dropped log lines, connections turned away, retries denied, in five minutes.", Unit: "short", Queries: []Query{
			{`sum(increase(xpyd_panics_total{$x}[5m]))`, "panics"}, {`sum(increase(xpyd_log_lines_dropped_total{$x}[5m]))`, "log lines dropped"},
			{`sum by (reason) (increase(xpyd_connections_turned_away_total{$x}[5m]))`, "turned away: {{reason}}"}, {`sum(increase(xpyd_retries_denied_total{$x}[5m]))`, "retries denied"}}},
		{Kind: graph, Title: "Configuration", About: "1 while the last reload succeeded, and its age.", Unit: "s", Queries: []Query{{`time() - xpyd_config_last_reload_success_timestamp_seconds{$x}`, "age of {{instance}}"}}},
		{Kind: table, Title: "Versions and settings", Wide: 24, Queries: one(`xpyd_build_info{$x} * on (job, instance) group_left (connector, pd_mode, prefill_policy, decode_policy) xpyd_config_info{$x}`, "")},
	}}
}
