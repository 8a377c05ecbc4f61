package sim

// family is one metric with vLLM's name. Every sample carries the label model_name, and, unless it is the server's, engine.
// label adds one more, with a sample for each of its values.
type family struct {
	name, kind, help string
	label            string
	values           []string
	edges            []float64 // of a histogram
	since            int       // 0.since is the first version that has it
	ofServer         bool
}

var (
	finishReasons = []string{"stop", "length", "abort", "error", "repetition"}
	tokenSources  = []string{"local_compute", "local_cache_hit", "external_kv_transfer"}
	cacheSources  = []string{"device", "host", "p2p", "disk", "external_unspecified"}
	waitReasons   = []string{"capacity", "deferred"}
	fetchStages   = []string{"waiting_to_start", "in_progress", "completed_waiting"}
	sleepStates   = []string{"awake", "weights_offloaded", "discard_all"}
	queueLimits   = []string{"max_num_queued_reqs", "max_num_queued_tokens"}

	tokenEdges   = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000}
	stepEdges    = []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}
	choiceEdges  = []float64{1, 2, 5, 10, 20}
	preemptEdges = []float64{1, 2, 3, 4, 5, 10, 20}
	latencyEdges = []float64{0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	gapEdges     = []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	firstEdges   = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	xferEdges    = []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 5}
	postEdges    = []float64{0.001, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 5}
	byteEdges    = []float64{2048, 8192, 32768, 131072, 524288, 2097152, 8388608, 33554432, 134217728, 536870912, 2147483648, 8589934592}
	blockEdges   = []float64{10, 20, 30, 50, 75, 100, 200, 400, 1000, 2000, 4000, 10000, 20000, 50000}
)

var families = []family{
	{name: "nixl_xfer_time_seconds", kind: "histogram", help: "Time of one KV pull, in seconds.", edges: xferEdges},
	{name: "nixl_post_time_seconds", kind: "histogram", help: "Time to post one KV pull, in seconds.", edges: postEdges},
	{name: "nixl_bytes_transferred", kind: "histogram", help: "Bytes of one KV pull.", edges: byteEdges},
	{name: "nixl_num_descriptors", kind: "histogram", help: "Blocks of one KV pull.", edges: blockEdges},
	{name: "nixl_num_failed_transfers_total", kind: "counter", help: "KV pulls that failed, handshakes included."},
	{name: "nixl_num_failed_notifications_total", kind: "counter", help: "Notifications that could not be sent."},
	{name: "nixl_num_kv_expired_reqs_total", kind: "counter", help: "Finished prefills whose lease ended unread."},
	{name: "nixl_num_notifications_after_expiry_total", kind: "counter", help: "Notifications about blocks that are no longer pinned.", since: 32},
	{name: "estimated_flops_per_gpu_total", kind: "counter", help: "Operations; none are counted without vLLM's --enable-mfu-metrics."},
	{name: "estimated_read_bytes_per_gpu_total", kind: "counter", help: "Bytes read; likewise."},
	{name: "estimated_write_bytes_per_gpu_total", kind: "counter", help: "Bytes written; likewise."},
	{name: "num_requests_running", kind: "gauge", help: "Sequences that run."},
	{name: "num_requests_waiting", kind: "gauge", help: "Requests that queue."},
	{name: "num_requests_waiting_by_reason", kind: "gauge", help: "Requests that queue, by reason.", label: "reason", values: waitReasons},
	{name: "num_requests_kv_fetch_by_stage", kind: "gauge", help: "Requests whose KV another engine has, by stage of its load.", label: "stage", values: fetchStages, since: 32},
	{name: "engine_sleep_state", kind: "gauge", help: "1 for the state of the engine, which never sleeps.", label: "sleep_state", values: sleepStates},
	{name: "kv_cache_usage_perc", kind: "gauge", help: "Share of the KV blocks in use or pinned, 0 to 1."},
	{name: "prefix_cache_queries_total", kind: "counter", help: "Prompt tokens looked up in the prefix cache."},
	{name: "prefix_cache_hits_total", kind: "counter", help: "Prompt tokens found in the prefix cache."},
	{name: "external_prefix_cache_queries_total", kind: "counter", help: "Prompt tokens asked of the KV connector: those not in the prefix cache."},
	{name: "external_prefix_cache_hits_total", kind: "counter", help: "Prompt tokens that the KV connector brought."},
	{name: "mm_cache_queries_total", kind: "counter", help: "Images and audio looked up in their cache; there is none here."},
	{name: "mm_cache_hits_total", kind: "counter", help: "Images and audio found in their cache."},
	{name: "num_preemptions_total", kind: "counter", help: "Preemptions; there are none here."},
	{name: "prompt_tokens_total", kind: "counter", help: "Prompt tokens."},
	{name: "prompt_tokens_by_source_total", kind: "counter", help: "Prompt tokens by where their KV came from.", label: "source", values: tokenSources},
	{name: "prompt_tokens_cached_total", kind: "counter", help: "Prompt tokens that were not computed."},
	{name: "prompt_tokens_cached_by_source_total", kind: "counter", help: "Prompt tokens found, by where.", label: "source", values: cacheSources, since: 32},
	{name: "generation_tokens_total", kind: "counter", help: "Tokens generated."},
	{name: "request_success_total", kind: "counter", help: "Requests that ended, by how; each choice is one.", label: "finished_reason", values: finishReasons},
	{name: "admission_rejections_total", kind: "counter", help: "Requests refused for a full queue; there are none here.", label: "reason", values: queueLimits, since: 32, ofServer: true},
	{name: "request_prompt_tokens", kind: "histogram", help: "Prompt tokens of a request; each of its choices is one.", edges: tokenEdges},
	{name: "request_generation_tokens", kind: "histogram", help: "Tokens generated for a request.", edges: tokenEdges},
	{name: "iteration_tokens_total", kind: "histogram", help: "Tokens of a step. Here each request has its own.", edges: stepEdges},
	{name: "request_max_num_generation_tokens", kind: "histogram", help: "Tokens of the longest choice.", edges: tokenEdges},
	{name: "request_params_n", kind: "histogram", help: "n of the requests.", edges: choiceEdges},
	{name: "request_params_max_tokens", kind: "histogram", help: "max_tokens of the requests.", edges: tokenEdges},
	{name: "time_to_first_token_seconds", kind: "histogram", help: "From arrival to the first token.", edges: firstEdges},
	{name: "inter_token_latency_seconds", kind: "histogram", help: "Between two tokens, the mean of each request.", edges: gapEdges},
	{name: "request_time_per_output_token_seconds", kind: "histogram", help: "Mean time between two tokens of a request.", edges: gapEdges},
	{name: "e2e_request_latency_seconds", kind: "histogram", help: "From arrival to the end.", edges: latencyEdges},
	{name: "request_queue_time_seconds", kind: "histogram", help: "From arrival to the request's turn.", edges: latencyEdges},
	{name: "request_inference_time_seconds", kind: "histogram", help: "From the request's turn to the end.", edges: latencyEdges},
	{name: "request_prefill_time_seconds", kind: "histogram", help: "From the request's turn to the first token.", edges: latencyEdges},
	{name: "request_decode_time_seconds", kind: "histogram", help: "From the first token to the last one.", edges: latencyEdges},
	{name: "request_num_preemptions", kind: "histogram", help: "Preemptions of a request; there are none here.", edges: preemptEdges, since: 32},
	{name: "request_prefill_kv_computed_tokens", kind: "histogram", help: "Prompt tokens of a request that the engine says it has computed.", edges: tokenEdges},
}

// samples lists the values of the label: one empty value without a label.
func (f family) samples() []string {
	if f.label == "" {
		return []string{""}
	}
	return f.values
}

// key is where the metrics count a sample.
func (f family) key(value string) string {
	if value == "" {
		return f.name
	}
	return f.name + "/" + value
}
