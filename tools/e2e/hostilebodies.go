package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"strings"
)

// plea is a small greedy request, with members of a hostile kind.
func plea(path string, more map[string]any) []byte {
	return ask{chat: strings.Contains(path, "chat"), prompt: pleaPrompt(), tokens: 6}.body(more)
}

// pleaPrompt returns the same prompt each time.
func pleaPrompt() []int {
	p := make([]int, 70)
	for i := range p {
		p[i] = 20 + i*7%400
	}
	return p
}

// raw is a plea whose last members are given as JSON text, so that names may occur twice or have
// escapes.
func raw(path, members string) []byte {
	body := plea(path, nil)
	return append(append(body[:len(body)-1], ','), members+"}"...)
}

func attacks(stolen json.RawMessage) []attack {
	var all []attack
	for _, path := range []string{"/v1/completions", "/v1/chat/completions"} {
		all = append(all, handleAttacks(path, stolen)...)
		all = append(all, doorAttacks(path)...)
		all = append(all, harmlessDoors(path, stolen)...)
		all = append(all, fieldAttacks(path)...)
	}
	return append(all, otherAttacks()...)
}

// goodHandle has everything that an engine reads, but from an engine that does not exist.
func goodHandle() map[string]any {
	return map[string]any{
		"do_remote_prefill": true, "do_remote_decode": false, "remote_engine_id": "00000000-0000-4000-8000-000000000000",
		"remote_request_id": "cmpl-another-client", "remote_host": "127.0.0.1", "remote_port": 5999,
		"remote_block_ids": []any{[]any{1, 2, 3}}, "tp_size": 1, "remote_num_tokens": 70,
	}
}

// stolenAttacks use another request's handle, with its prompt and with one of their own.
func stolenAttacks(stolen pinned) []attack {
	with := map[string]any{"kv_transfer_params": stolen.handle}
	return []attack{
		{name: "another request's handle and prompt", path: "/v1/completions", body: stolen.ask.body(with)},
		{name: "another request's handle", path: "/v1/completions", body: plea("/v1/completions", with)},
		{name: "another request's handle", path: "/v1/chat/completions", body: plea("/v1/chat/completions", with)},
		{name: "another request's handle, drained", path: "/v1/completions", body: stolen.drain()},
		{name: "another request's handle, released", path: "/v1/completions", body: stolen.reject()},
	}
}

// handleAttacks are values of kv_transfer_params: those that end or hang a decode engine, those
// that read another prompt's blocks, and those of a wrong type.
func handleAttacks(path string, stolen json.RawMessage) (all []attack) {
	add := func(name string, value any) {
		all = append(all, attack{name: path + " kv_transfer_params " + name, path: path, body: plea(path, map[string]any{"kv_transfer_params": value})})
	}
	add("that was good", stolen)
	add("complete", goodHandle())
	add("do_remote_prefill alone", map[string]any{"do_remote_prefill": true})
	add("do_remote_decode alone", map[string]any{"do_remote_decode": true})
	add("of a member nobody knows", map[string]any{"x": nil})
	for _, name := range []string{"remote_block_ids", "remote_request_id", "remote_host", "remote_port", "remote_engine_id"} {
		h := goodHandle()
		delete(h, name)
		add("without "+name, h)
	}
	for name, values := range map[string][]any{
		"remote_block_ids": {nil, []any{}, []any{[]any{}}, []any{[]any{1}}, []any{[]any{1 << 40}}, "1"},
		"remote_port":      {"5601", 0, 22}, "remote_host": {"169.254.169.254", ""}, "tp_size": {1 << 30},
	} {
		for _, v := range values {
			h := goodHandle()
			h[name] = v
			add(fmt.Sprintf("with %s %v", name, v), h)
		}
	}
	for _, v := range []any{true, 1, "x", []any{}, []any{goodHandle()}} {
		add(fmt.Sprintf("of type %T", v), v)
	}
	return all
}

// doorAttacks are other ways to reach the same fields.
func doorAttacks(path string) (all []attack) {
	const kill = `{"do_remote_prefill":true}`
	for _, members := range []string{
		`"kv\u005ftransfer_params":` + kill,
		`"\u006bv_transfer_param\u0073":` + kill,
		`"kv_transfer_params":null,"kv_transfer_params":` + kill,
		`"kv_transfer_params":` + kill + `,"kv_transfer_params":null`,
		`"kv_transfer_params":{},"kv\u005ftransfer_params":` + kill,
		`"ec_transfer_params":` + kill,
		`"ec_transfer_params":{"x":{"peer_host":"127.0.0.1"}}`,
		`"vllm_xargs":{"kv_transfer_params":` + kill + `}`,
		`"vllm_xargs":{"kv\u005ftransfer_params":` + kill + `}`,
		`"vllm_xargs":{"kv_transfer_params":"{\"do_remote_prefill\":true}"}`,
		`"vllm_xargs":{"ec_transfer_params":[1]}`,
		`"vllm_xargs":{},"vllm_xargs":{"kv_transfer_params":` + kill + `}`,
		`"sampling_params":{"extra_args":{"kv_transfer_params":` + kill + `}}`,
		`"bootstrap_host":"127.0.0.1","bootstrap_port":1,"bootstrap_room":1`,
		`"disagg_prefill_dp_rank":1`,
		`"kv_transfer_params":` + kill + `,}`,
		`"kv_transfer_params":` + strings.Repeat(`{"a":`, 20000) + `1` + strings.Repeat(`}`, 20000),
		`"metadata":` + strings.Repeat(`[`, 100000) + strings.Repeat(`]`, 100000),
		`"seed":NaN`, `"seed":1,"seed":2}{"kv_transfer_params":` + kill,
	} {
		all = append(all, attack{name: fmt.Sprintf("%s %.60s", path, members), path: path, body: raw(path, members)})
	}
	return all
}

// harmlessDoors carry nothing, or lead nowhere.
func harmlessDoors(path string, stolen json.RawMessage) (all []attack) {
	handle := string(stolen)
	for _, members := range []string{
		`"kv_transfer_params":null`, `"kv_transfer_params":{}`, `"kv_transfer_params": { }`,
		`"kv\u005ftransfer_params":null`, `"ec_transfer_params":null`, `"vllm_xargs":{"kv_transfer_params":null}`,
		`"extra_body":{"kv_transfer_params":` + handle + `}`,
		`"metadata":{"kv_transfer_params":"` + "x" + `"}`,
		`"KV_TRANSFER_PARAMS":` + handle, `"kv_transfer_params ":` + handle, `"kv-transfer-params":` + handle,
	} {
		all = append(all, attack{name: fmt.Sprintf("%s %.60s", path, members), want: outIgnored, path: path, body: raw(path, members)})
	}
	return all
}

// fieldAttacks are values of other fields that make engines fail, or may do so.
func fieldAttacks(path string) (all []attack) {
	long := make([]int, 3000) // beyond the model's length
	for _, members := range []string{
		`"priority":1`, `"priority":-5`, `"cache_salt":"another tenant's"`, `"cache_salt":""`, `"request_id":"hostile-clean"`,
		`"data_parallel_rank":7`, `"mm_processor_kwargs":{"x":1}`, `"prompt_embeds":"AAAA"`, `"prompt_embeds":["x"]`,
		`"chat_template":"{{ 1/0 }}"`, `"logits_processors":["os.system"]`, `"vllm_xargs":{"x":1}`,
		`"structured_outputs":{"regex":"("}`, `"structured_outputs":{"grammar":"::="}`, `"structured_outputs":{"json":"{"}`,
		`"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"nothing"}}}`,
		`"guided_regex":"("`, `"stop_token_ids":[1099511627776]`, `"stop_token_ids":[-1]`, `"allowed_token_ids":[]`,
		`"allowed_token_ids":[999999]`, `"logit_bias":{"999999":1}`, `"logit_bias":{"-1":1}`, `"logit_bias":{"a":1}`,
		`"bad_words":[""]`, `"truncate_prompt_tokens":-5`, `"truncate_prompt_tokens":1`, `"min_tokens":9`, `"min_tokens":-1`,
		`"n":0`, `"n":-1`, `"n":2`, `"best_of":3`, `"use_beam_search":true`, `"top_k":-5`, `"top_p":0`, `"repetition_penalty":0`,
		`"logprobs":1000`, `"prompt_logprobs":-1`, `"prompt_logprobs":1000000`, `"top_logprobs":1000`, `"echo":true`, `"stop":[""]`,
		`"stop":[` + strings.Repeat(`"x",`, 2000) + `"y"]`, `"seed":1180591620717411303424`, `"stream_options":{"include_usage":true}`,
		`"tools":[{}]`, `"tools":1`, `"tool_choice":"required"`, `"tool_choice":{"type":"function","function":{"name":"x"}}`,
		`"documents":[{}]`, `"return_token_ids":true`, `"user":7`, `"stream_interval":0`, `"thinking_token_budget":-1`,
		`"repetition_detection":{"max_pattern_size":-1}`, `"skip_special_tokens":"x"`,
	} {
		all = append(all, attack{name: fmt.Sprintf("%s %.60s", path, members), want: outAnswered, path: path, body: raw(path, members)})
	}
	for _, more := range []map[string]any{
		{"max_tokens": 0}, {"max_tokens": -1}, {"max_tokens": 1 << 40}, {"max_tokens": "6"}, {"max_tokens": 1.5}, {"max_tokens": nil},
		{"temperature": -1}, {"temperature": 1e300}, {"temperature": "x"}, {"stream": "yes"}, {"stream": true}, {"model": "nobody's"}, {"model": nil},
		{"prompt": []int{}}, {"prompt": ""}, {"prompt": []int{-1}}, {"prompt": []int{1 << 30}}, {"prompt": [][]int{{}}}, {"prompt": [][]int{{5}, {6}}},
		{"prompt": []any{1.5}}, {"prompt": []any{5, "x"}}, {"prompt": long}, {"prompt": nil},
		{"messages": []any{}}, {"messages": "x"}, {"messages": []any{map[string]any{"role": "user", "content": nil}}},
		{"messages": []any{map[string]any{"role": "user", "content": []any{map[string]any{"type": "image_url", "image_url": map[string]any{"url": "http://127.0.0.1:1/"}}}}}},
	} {
		all = append(all, attack{name: fmt.Sprintf("%s %.60v", path, more), want: outAnswered, path: path, body: plea(path, more)})
	}
	return all
}

// otherAttacks use other ways: coded bodies, and routes that only an engine has.
func otherAttacks() []attack {
	kill := map[string]any{"kv_transfer_params": map[string]any{"do_remote_prefill": true}}
	const path = "/v1/completions"
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, _ = w.Write(plea(path, kill)) // into memory
	_ = w.Close()
	all := []attack{
		{name: "gzip", path: path, body: zipped.Bytes(), header: []string{"Content-Encoding: gzip"}},
		{name: "byte order mark", path: path, body: append([]byte("\xef\xbb\xbf"), plea(path, kill)...)},
		{name: "UTF-16", path: path, body: utf16(plea(path, kill))},
	}
	for _, route := range []string{
		"/inference/v1/generate", "/inference/v1/abort_requests", "/v1/responses", "/v1/messages", "/v1//completions", "/v1/completions/",
		"/v1/completions%3Fx", "/V1/completions", "/tokenize", "/sleep", "/reset_prefix_cache", "/collective_rpc", "/v1/load_lora_adapter",
		"/pause", "/abort_requests", "/scale_elastic_ep", "/invocations", "/wake_up", "/server_info",
	} {
		all = append(all, attack{name: "route " + route, path: route, body: plea(path, kill)})
	}
	return all
}

func utf16(text []byte) []byte {
	wide := make([]byte, 0, 2*len(text))
	for _, c := range text {
		wide = append(wide, c, 0)
	}
	return wide
}
