package sim_test

// accepted has the differences between real engines and the sim that are left, each with its
// reason. A difference that no recording shows any more fails the test.
var accepted = []difference{{
	exchanges: whole("[dp]-get-metrics|plain-get-metrics"),
	lines:     whole(`-(# TYPE )?(http|process|python)_.*`),
	why:       "of the HTTP server and of Python, not of the engine",
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
