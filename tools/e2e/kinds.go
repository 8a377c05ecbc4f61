package main

import "net/http"

// kind is a kind of request. There are count of them, and body makes each from the i-th length.
type kind struct {
	name  string
	api   string // path
	count int
	body  func(p *prompts, i int) map[string]any // without model, temperature and stream
	// reason is what X-Xpyd-Reason must say. It is "none" if the request must be disaggregated.
	reason string
	status int  // 200 if 0
	whole  bool // never streamed, because the engine takes no stream there
}

const (
	completionsPath = "/v1/completions"
	chatPath        = "/v1/chat/completions"
	split           = "none" // the reason of a request that takes both legs
)

// kinds returns all kinds, together more than 300 requests.
func kinds() []kind {
	var all []kind
	for _, some := range [][]kind{completionKinds(), loneCompletionKinds(), chatKinds(), toolKinds(), refusedKinds()} {
		all = append(all, some...)
	}
	return all
}

func length(i int) int { return lengths[i%len(lengths)] }

// text is a completion of words, with further members.
func text(more func(i int) map[string]any) func(*prompts, int) map[string]any {
	return func(p *prompts, i int) map[string]any {
		body := more(i)
		if body["prompt"] == nil {
			body["prompt"] = p.words(length(7 * i))
		}
		return body
	}
}

// completionKinds are completions that take both legs.
func completionKinds() []kind {
	return []kind{
		{name: "plain", count: 30, body: text(func(i int) map[string]any {
			return map[string]any{"max_tokens": 2 + i}
		})},
		{name: "token ids", count: 30, body: func(p *prompts, i int) map[string]any {
			return map[string]any{"prompt": p.ids(length(i)), "max_tokens": 3 + i%9}
		}},
		{name: "list of one", count: 6, body: func(p *prompts, i int) map[string]any {
			if i%2 == 0 {
				return map[string]any{"prompt": []string{p.words(40)}, "max_tokens": 6}
			}
			return map[string]any{"prompt": [][]int{p.ids(70)}, "max_tokens": 6}
		}},
		{name: "no limit", count: 4, body: text(func(int) map[string]any { return map[string]any{} })},
		{name: "one token", count: 6, body: text(func(int) map[string]any { return map[string]any{"max_tokens": 1} })},
		{name: "stop", count: 12, body: text(func(i int) map[string]any {
			stops := []any{"e", []string{"a", "o"}, []string{"er", "\n", "the"}, []string{" "}}
			return map[string]any{"max_tokens": 60, "stop": stops[i%4], "include_stop_str_in_output": i%3 == 0}
		})},
		{name: "logprobs", count: 12, body: text(func(i int) map[string]any { return map[string]any{"max_tokens": 9, "logprobs": i % 6} })},
		{name: "seed", count: 12, body: text(func(i int) map[string]any {
			return map[string]any{"max_tokens": 20, "seed": i, "temperature": 0.9, "top_p": 0.8, "top_k": 40 - i}
		})},
		{name: "logit bias", count: 8, body: text(func(int) map[string]any {
			return map[string]any{"max_tokens": 12, "logit_bias": map[string]int{"300": 6, "301": 5, "40": -100}}
		})},
		{name: "penalties", count: 8, body: text(func(int) map[string]any {
			return map[string]any{"max_tokens": 24, "repetition_penalty": 1.4, "presence_penalty": 0.6, "frequency_penalty": 0.5}
		})},
		{name: "limits", count: 8, body: text(func(i int) map[string]any {
			return map[string]any{"max_tokens": 20, "min_tokens": 20 - i, "ignore_eos": i%2 == 0, "stop_token_ids": []int{40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50}}
		})},
		{name: "allowed tokens", count: 4, body: text(func(int) map[string]any {
			return map[string]any{"max_tokens": 12, "allowed_token_ids": []int{300, 301, 302, 303, 310, 320}, "bad_words": []string{" router"}}
		})},
		{name: "special tokens", count: 6, body: text(func(i int) map[string]any {
			return map[string]any{"max_tokens": 12, "skip_special_tokens": false, "add_special_tokens": i%2 == 0, "truncate_prompt_tokens": 20 + i}
		})},
		{name: "echo", count: 10, body: text(func(int) map[string]any { return map[string]any{"max_tokens": 5, "echo": true} })},
		{name: "UTF-8", count: 12, body: func(p *prompts, i int) map[string]any {
			return map[string]any{"prompt": p.scripts(1 + 3*i), "max_tokens": 16, "user": "Zoë 😀"}
		}},
	}
}

// loneCompletionKinds are completions that a handle cannot serve.
func loneCompletionKinds() []kind {
	return []kind{
		{name: "prompt list", count: 8, reason: "prompt_list", body: func(p *prompts, i int) map[string]any {
			if i < 4 {
				return map[string]any{"prompt": []string{p.words(20), p.words(300), p.words(5)}, "max_tokens": 6}
			}
			return map[string]any{"prompt": [][]int{p.ids(33), p.ids(64)}, "max_tokens": 6}
		}},
		{name: "n=2", count: 6, reason: "n", body: text(func(i int) map[string]any {
			return map[string]any{"max_tokens": 10, "n": 2, "temperature": 0.8, "seed": 100 + i}
		})},
		{name: "echo with logprobs", count: 4, reason: "echo_logprobs", body: text(func(int) map[string]any {
			return map[string]any{"max_tokens": 4, "echo": true, "logprobs": 2}
		})},
		{name: "prompt logprobs", count: 4, reason: "prompt_logprobs", whole: true, body: text(func(int) map[string]any {
			return map[string]any{"max_tokens": 4, "prompt_logprobs": 2}
		})},
	}
}

// talk is a chat of one message of words, with further members.
func talk(more func(i int) map[string]any) func(*prompts, int) map[string]any {
	return func(p *prompts, i int) map[string]any {
		body := more(i)
		if body["messages"] == nil {
			body["messages"] = []any{message("user", p.words(length(7*i)))}
		}
		return body
	}
}

func message(role string, content any) map[string]any {
	return map[string]any{"role": role, "content": content}
}

// chatKinds are chats without tools.
func chatKinds() []kind {
	return []kind{
		{name: "plain", api: chatPath, count: 30, body: talk(func(i int) map[string]any { return map[string]any{"max_tokens": 2 + i} })},
		{name: "turns", api: chatPath, count: 10, body: func(p *prompts, i int) map[string]any {
			return map[string]any{"max_completion_tokens": 4 + i, "messages": []any{
				message("system", p.words(30)), message("user", p.words(20+9*i)), message("assistant", p.words(12)), message("user", p.words(9)),
			}}
		}},
		{name: "parts", api: chatPath, count: 6, body: func(p *prompts, i int) map[string]any {
			parts := []any{map[string]any{"type": "text", "text": p.words(12)}, map[string]any{"type": "text", "text": p.scripts(5 + i)}}
			return map[string]any{"max_tokens": 8, "messages": []any{message("user", parts)}}
		}},
		{name: "stop", api: chatPath, count: 10, body: talk(func(i int) map[string]any {
			stops := []any{"e", []string{"a", "o"}, []string{"er", "\n", "the"}}
			return map[string]any{"max_tokens": 60, "stop": stops[i%3]}
		})},
		{name: "logprobs", api: chatPath, count: 10, body: talk(func(i int) map[string]any {
			return map[string]any{"max_tokens": 8, "logprobs": true, "top_logprobs": i % 5}
		})},
		{name: "seed", api: chatPath, count: 10, body: talk(func(i int) map[string]any {
			return map[string]any{"max_tokens": 16, "seed": 1000 + i, "temperature": 1.1, "min_p": 0.02}
		})},
		{name: "logit bias", api: chatPath, count: 6, body: talk(func(int) map[string]any {
			return map[string]any{"max_tokens": 12, "logit_bias": map[string]int{"300": 6, "301": 5, "40": -100}}
		})},
		{name: "UTF-8", api: chatPath, count: 10, body: func(p *prompts, i int) map[string]any {
			return map[string]any{"max_tokens": 16, "messages": []any{message("system", "Ответ: 是"), message("user", p.scripts(2+4*i))}}
		}},
		{name: "JSON", api: chatPath, count: 6, body: talk(func(int) map[string]any {
			return map[string]any{"max_tokens": 24, "response_format": map[string]any{"type": "json_schema", "json_schema": map[string]any{
				"name": "n", "schema": map[string]any{"type": "object", "properties": map[string]any{"n": map[string]any{"type": "integer", "maximum": 99}}, "required": []string{"n"}},
			}}}
		})},
		{name: "continued", api: chatPath, count: 4, body: func(p *prompts, _ int) map[string]any {
			return map[string]any{"max_tokens": 8, "add_generation_prompt": false, "continue_final_message": true, "messages": []any{
				message("user", p.words(25)), message("assistant", p.words(12)),
			}}
		}},
		{name: "n=2", api: chatPath, count: 6, reason: "n", body: talk(func(i int) map[string]any {
			return map[string]any{"max_tokens": 10, "n": 2, "temperature": 0.8, "seed": 200 + i}
		})},
		{name: "echo", api: chatPath, count: 4, reason: "echo_logprobs", body: func(p *prompts, _ int) map[string]any {
			return map[string]any{"max_tokens": 8, "echo": true, "messages": []any{message("user", p.words(25)), message("assistant", p.words(12))}}
		}},
	}
}

// toolKinds are chats with tools. A choice that forces a call makes the engine write JSON, of which
// the prefill leg gets one token. vLLM 0.32.0 accepts that and gives a handle.
func toolKinds() []kind {
	tools := func(choice any) func(int) map[string]any {
		return func(int) map[string]any {
			return map[string]any{"max_tokens": 60, "tool_choice": choice, "tools": []any{map[string]any{"type": "function", "function": map[string]any{
				"name": "look_up", "description": "looks a page up", "parameters": map[string]any{
					"type": "object", "properties": map[string]any{"page": map[string]any{"type": "integer", "minimum": 1, "maximum": 9}}, "required": []string{"page"}, "additionalProperties": false,
				},
			}}}}
		}
	}
	named := map[string]any{"type": "function", "function": map[string]any{"name": "look_up"}}
	return []kind{
		{name: "tools, none", api: chatPath, count: 8, body: talk(tools("none"))},
		{name: "tools, auto", api: chatPath, count: 8, body: talk(tools("auto"))},
		{name: "tools, required", api: chatPath, count: 6, body: talk(tools("required"))},
		{name: "tools, named", api: chatPath, count: 4, body: talk(tools(named))},
	}
}

// refusedKinds are requests that an engine refuses. The words are the engine's.
func refusedKinds() []kind {
	return []kind{
		// xpyd counts token ids itself, and no prefill engine has to.
		{name: "too long", count: 2, status: http.StatusBadRequest, reason: "invalid_fields", body: func(p *prompts, _ int) map[string]any {
			return map[string]any{"prompt": p.ids(3000), "max_tokens": 5}
		}},
		{name: "too long", api: chatPath, count: 2, status: http.StatusBadRequest, body: func(p *prompts, _ int) map[string]any {
			return map[string]any{"messages": []any{message("user", p.words(3000))}, "max_tokens": 5}
		}},
		{name: "unknown model", api: chatPath, count: 2, status: http.StatusNotFound, body: talk(func(int) map[string]any {
			return map[string]any{"model": "nope"}
		})},
		{name: "min above max", count: 2, status: http.StatusBadRequest, reason: "invalid_fields", body: text(func(int) map[string]any {
			return map[string]any{"max_tokens": 5, "min_tokens": 6}
		})},
		{name: "top_p of 7", count: 2, status: http.StatusBadRequest, body: text(func(int) map[string]any {
			return map[string]any{"max_tokens": 5, "top_p": 7}
		})},
	}
}
