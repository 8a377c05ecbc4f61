package sim_test

import "strings"

// accepted has the differences between real engines and the sim that are left, each with its
// reason. A difference that no recording shows any more fails the test.
var accepted = []difference{{
	exchanges: whole("[dp]-get-metrics|plain-get-metrics"),
	lines:     whole(`-(# TYPE )?(http|process|python)_.*`),
	why:       "of the HTTP server and of Python, not of the engine",
}, {
	exchanges: whole("[dp]-get-metrics|plain-get-metrics"),
	lines:     whole(`-.*_created(\{.*| gauge)`),
	why:       "the time of the first sample, which nobody reads",
}, {
	exchanges: whole("[dp]-get-metrics|plain-get-metrics"),
	lines:     whole(`-(# TYPE )?vllm:(` + strings.Join(uncounted, "|") + `)(_bucket|_count|_sum)?[ {].*`),
	why:       "the sim counts what xpyd's tests and benches read",
}, {
	exchanges: whole("[dp]-get-metrics|plain-get-metrics"),
	lines:     whole(`[-+]vllm:cache_config_info\{.*`),
	why:       "its labels are the engine's settings, of which the sim has few",
}, {
	exchanges: whole("plain-embeddings"),
	why:       "a server that generates text has no routes of pooling, and the sim has all routes at once",
}, {
	exchanges: whole("plain-chat-json-schema"),
	lines:     whole(`[-+]choices\[\]\.finish_reason "(stop|length)"`),
	why:       "structured output is not simulated: the answer goes on after its JSON would have ended",
}, {
	exchanges: whole("openapi"),
	lines: whole(`-(POST|GET) /(kv_event_sources|generative_scoring|invocations|is_scaling_elastic_ep|scale_elastic_ep|v1/(decisions|systemone)` +
		`|v1/chat/completions/batch|v1/responses/\{response_id\}(/cancel)?)`),
	why: "the sim has the routes that xpyd serves or asks",
}, {
	versions:  whole(`0\.28\..*`),
	exchanges: whole("p-(chat|completions)"),
	lines:     whole(`\+kv_transfer_params\.(dcp_size|pp_size|remote_prefill_cached_tokens) integer`),
	why:       "0.29 added the first two, 0.32 the last; xpyd hands on what there is",
}, {
	versions:  whole(`0\.28\..*`),
	exchanges: whole("plain-(messages|responses)(-stream)?"),
	lines: whole(`\+delta\.stop_sequence <nil>|\+(response\.)?usage\.input_tokens_details\.cache_write_tokens integer` +
		`|-item\.(id string|summary list)|\+item\.id "msg_\*"`),
	why: "0.32 has the figures and ids that 0.28 lacked",
}, {
	versions:  whole(`0\.28\..*`),
	exchanges: whole("error-.*"),
	lines:     whole(`[-+]error\.message .*`),
	why:       "0.28 words some errors otherwise; nobody reads them but people",
}, {
	versions:  whole(`0\.28\..*`),
	exchanges: whole("openapi"),
	lines:     whole(`-POST /(inference/v1/generate|v1/(chat/)?completions/(de)?render)`),
	why:       "routes of 0.28 that 0.32 has no more by default",
}}

// uncounted are vLLM's metrics that the sim does not have.
var uncounted = []string{
	"admission_rejections_total", "engine_sleep_state", "estimated_flops_per_gpu_total", "estimated_read_bytes_per_gpu_total",
	"estimated_write_bytes_per_gpu_total", "iteration_tokens_total", "mm_cache_hits_total", "mm_cache_queries_total",
	"nixl_num_notifications_after_expiry_total", "nixl_post_time_seconds", "num_preemptions_total", "num_requests_kv_fetch_by_stage",
	"prompt_tokens_cached_by_source_total",
	"request_decode_time_seconds", "request_inference_time_seconds", "request_max_num_generation_tokens", "request_num_preemptions",
	"request_params_max_tokens", "request_params_n", "request_prefill_kv_computed_tokens", "request_prefill_time_seconds",
	"request_queue_time_seconds", "request_time_per_output_token_seconds",
}
