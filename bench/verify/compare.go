package verify

import (
	"context"
	"fmt"
	"net/http"
)

// comparison is a row that sends requests through the proxy and to decode alone. Both must answer
// the same.
type comparison struct {
	name     string
	requests []shape
	// optional: engines may run without the feature that this needs. If both ways refuse alike, the
	// row is ok.
	optional bool
}

// shape is one request, but for its prompt.
type shape struct {
	path   string
	stream bool
	words  int
	tokens int
	extra  map[string]any
}

func comparisons() []comparison {
	three := func(path string, stream bool) []shape {
		return []shape{{path, stream, shortPrompt, 24, nil}, {path, stream, longPrompt / 3, 24, nil}, {path, stream, longPrompt, 24, nil}}
	}
	both := func(s shape) []shape {
		whole, events := s, s
		whole.stream, events.stream = false, true
		return []shape{whole, events}
	}
	// top_k leaves only the best token to draw from, so both choices are the same on any engine.
	two := map[string]any{"n": 2, "temperature": 1, "top_k": 1}
	return []comparison{
		{name: "completions", requests: three(completions, false)},
		{name: "completions streamed", requests: three(completions, true)},
		{name: "chat", requests: three(chat, false)},
		{name: "chat streamed", requests: three(chat, true)},
		{name: "one token", requests: append(both(shape{completions, false, longPrompt, 1, nil}), both(shape{chat, false, longPrompt, 1, nil})...)},
		{name: "n=2", requests: both(shape{completions, false, longPrompt, 8, two}), optional: true},
		{name: "logprobs", requests: []shape{
			{completions, false, longPrompt, 8, map[string]any{"logprobs": 3}},
			{chat, true, longPrompt, 8, map[string]any{"logprobs": true, "top_logprobs": 3}},
		}, optional: true},
		{name: "tools", requests: []shape{
			{chat, true, longPrompt, 64, tools("auto")},
			{chat, false, longPrompt, 64, tools("required")},
		}, optional: true},
	}
}

func tools(choice string) map[string]any {
	return map[string]any{"tool_choice": choice, "tools": []any{map[string]any{"type": "function", "function": map[string]any{
		"name": "find", "description": "find an engine", "parameters": map[string]any{
			"type": "object", "properties": map[string]any{"up": map[string]any{"type": "boolean"}}, "required": []string{"up"},
		},
	}}}}
}

// body returns a request of the shape with a fresh prompt.
func (r *run) body(s shape) map[string]any {
	body := r.greedy(s.path, r.prompt(s.words), s.tokens)
	for name, value := range s.extra {
		body[name] = value
	}
	if s.stream {
		return streamed(body)
	}
	return body
}

func (r *run) compare(ctx context.Context, c comparison) Row {
	tokens, refused := 0, 0
	for _, s := range c.requests {
		want, row := r.same(ctx, s.path, r.body(s))
		switch {
		case row != nil:
			return *row
		case want.status != http.StatusOK && !c.optional:
			return open("decode alone answers %d as well: %s", want.status, want.reason())
		case want.status != http.StatusOK:
			refused = want.status
		}
		tokens += want.usage.Completion
	}
	if refused > 0 {
		return good("the engines refuse it (%d), with and without a prefill", refused)
	}
	return good("%d requests, %d tokens, as decode alone", len(c.requests), tokens)
}

// reason is what an engine says about a refusal.
func (a *answer) reason() string {
	if a.refusal == nil {
		return "no reason"
	}
	return fmt.Sprintf("%.120s", a.refusal.Message)
}

// same sends a request both ways. The row is nil if the answers are the same.
func (r *run) same(ctx context.Context, path string, body map[string]any) (want *answer, row *Row) {
	want, err := r.alone(ctx, path, body)
	if err != nil {
		verdict := failed(err)
		return nil, &verdict
	}
	got, err := r.through(ctx, path, body)
	if err != nil {
		verdict := failed(err)
		return nil, &verdict
	}
	if d := difference(want, got); d != "" {
		verdict := r.excuse(ctx, path, body, d)
		return nil, &verdict
	}
	return want, nil
}

// excuse finds out whether answers differ only because two tokens were as good as equal.
func (r *run) excuse(ctx context.Context, path string, body map[string]any, found string) Row {
	told := with(body, "logprobs", 5)
	if path == chat {
		told = with(with(body, "logprobs", true), "top_logprobs", 5)
	}
	want, err := r.alone(ctx, path, told)
	if err != nil {
		return bad("%s", found)
	}
	got, err := r.through(ctx, path, told)
	if err != nil {
		return bad("%s", found)
	}
	if at, gap, ok := rounding(want, got); ok {
		return open("%s; but decode's two best tokens for place %d are %.3f apart, and rounding can swap them", found, at, gap)
	}
	return bad("%s", found)
}

// endsAtOnce makes the first token end the answer, as an end-of-text token does. A prefill leg that
// ends this way leaves no blocks, or blocks that nobody can use.
func (r *run) endsAtOnce(ctx context.Context) Row {
	for _, stream := range []bool{false, true} {
		body := r.greedy(completions, r.prompt(longPrompt), 8)
		first, err := r.alone(ctx, completions, with(body, "return_token_ids", true))
		if err != nil {
			return failed(err)
		}
		if len(first.choices) != 1 || len(first.choices[0].ids) == 0 {
			return open("decode alone answers %d without token ids, which this row needs", first.status)
		}
		body = with(body, "stop_token_ids", first.choices[0].ids[:1])
		if stream {
			body = streamed(body)
		}
		want, row := r.same(ctx, completions, body)
		switch {
		case row != nil:
			return *row
		case want.choices[0].finish != "stop" || want.usage.Completion > 1:
			return open("decode alone does not stop at its first token, although stop_token_ids has it")
		}
	}
	return good("the first token ends the answer, whole and streamed, as decode alone")
}
