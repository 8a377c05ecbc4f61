package sim

import "encoding/json"

// messagesAPI is POST /v1/messages, Anthropic's API. vLLM makes a chat completion of it, and the answer
// has the id of that.
type messagesAPI struct{}

func (messagesAPI) prefix() string                     { return "chatcmpl-" }
func (messagesAPI) internalID(id string, _ int) string { return id }
func (messagesAPI) lead() string                       { return "" }

func (messagesAPI) read(r *request, f *fields) {
	r.maxTokens, r.limited = f.integer("max_tokens", false, 0)
	if _, ok := f.members["max_tokens"]; !ok {
		f.missing("max_tokens")
	}
	if r.limited && r.maxTokens < 1 {
		f.fail("value_error", "max_tokens", "Value error, max_tokens must be positive")
	}
	checkThinking(r, f)
	r.n, r.logprobs = 1, -1
	r.stream = f.boolean("stream", true)
	r.includeUsage = true
	if f.has("stop_sequences", true, "", "") {
		for _, raw := range f.list("stop_sequences") {
			text, _ := unquote(raw)
			r.stop = append(r.stop, text)
		}
	}
	messages := readMessages(f, "messages")
	if raw := f.members["system"]; raw != nil && string(raw) != "null" {
		messages = append([]Message{{Role: "system", Content: contentText(raw)}}, messages...)
	}
	if f.members["messages"] == nil {
		f.missing("messages")
	}
	r.prompts = []prompt{textPrompt(ChatPrompt(messages...))}
	r.readMessageTools(f)
}

// checkThinking refuses a budget for thinking that leaves no token for the answer. A prefill leg never
// answers, so it may have one. The rule is vLLM's, whose requests have no room.
func checkThinking(r *request, f *fields) {
	thinking := &fields{members: f.object("thinking")}
	budget, ok := thinking.integer("budget_tokens", true, 0)
	if ok && budget >= r.maxTokens && r.room == 0 && string(r.kv["do_remote_decode"]) != "true" {
		f.fail("value_error", "thinking", "Value error, thinking.budget_tokens must be less than max_tokens")
	}
}

func (messagesAPI) appendRole(b []byte, g *generation, _ *unit) []byte {
	b = append(b, "event: message_start\ndata: "...)
	b = appendString(append(b, `{"type":"message_start","message":{"id":`...), g.id)
	b = append(b, `,"type":"message","role":"assistant","content":[],"model":`...)
	b = append(appendString(b, g.c.o.Model), `,"stop_reason":null,"stop_sequence":null,`...)
	return append(g.appendMessageUsage(b, 0, false), "}}"...)
}

func (messagesAPI) appendToken(b []byte, g *generation, u *unit, step int) []byte {
	if u.call != nil {
		return u.call.appendUseStep(b, step)
	}
	if step == 0 {
		b = append(b, "event: content_block_start\ndata: "...)
		b = append(b, `{"type":"content_block_start","content_block":{"type":"text","text":""},"index":0}`...)
		b = append(b, "\n\n"...)
	} else if u.tokens[step] == "" {
		return nil
	}
	b = append(b, "event: content_block_delta\ndata: "...)
	b = appendString(append(b, `{"type":"content_block_delta","delta":{"type":"text_delta","text":`...), u.tokens[step])
	return append(b, `},"index":0}`...)
}

func (messagesAPI) appendUsageEvent(b []byte, g *generation) []byte {
	if u := g.units[0]; u.call == nil || u.began() {
		b = append(b, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n"...)
	}
	b = append(b, "event: message_delta\ndata: "...)
	b = append(b, `{"type":"message_delta","delta":{`...)
	b = append(g.appendStop(b, true), "},"...)
	return append(g.appendMessageUsage(b, g.outputTokens(), true), '}')
}

func (messagesAPI) appendDone(b []byte, _ *generation) []byte {
	return append(b, "event: message_stop\ndata: {\"type\":\"message_stop\"}"...)
}

func (messagesAPI) appendAnswer(b []byte, g *generation) []byte {
	b = appendString(append(b, `{"id":`...), g.id)
	b = append(b, `,"type":"message","role":"assistant","content":[`...)
	if u := g.units[0]; u.calls() {
		b = u.call.appendToolUse(b, u.call.arguments())
	} else {
		b = append(appendStrings(append(b, `{"type":"text","text":`...), u.tokens), '}')
	}
	b = append(b, `],"model":`...)
	b = append(appendString(b, g.c.o.Model), ',')
	if stop := g.appendStop(nil, false); len(stop) > 0 {
		b = append(append(b, stop...), ',')
	}
	b = g.appendMessageUsage(b, g.outputTokens(), true)
	if g.handle != nil {
		b = append(append(b, `,"kv_transfer_params":`...), g.handle...)
	}
	if g.ec != nil {
		b = append(append(b, `,"ec_transfer_params":`...), g.ec...)
	}
	return append(b, '}')
}

// appendStop appends stop_reason, and stop_sequence if one was met. An answer of which an engine does not
// know how it ended has null in a stream, and nothing otherwise, as all that is null.
func (g *generation) appendStop(b []byte, nulls bool) []byte {
	u := g.units[0]
	switch {
	case g.faults.has(FaultNoFinish) && nulls:
		return append(b, `"stop_reason":null,"stop_sequence":null`...)
	case g.faults.has(FaultNoFinish):
		return b
	case u.stopReason != "" && !u.calls():
		return appendString(append(b, `"stop_reason":"stop_sequence","stop_sequence":`...), u.stopReason)
	}
	reason := "end_turn"
	if u.reason == "length" {
		reason = "max_tokens"
	} else if u.calls() {
		reason = "tool_use"
	}
	b = append(append(append(b, `"stop_reason":"`...), reason...), '"')
	if nulls {
		b = append(b, `,"stop_sequence":null`...)
	}
	return b
}

// appendMessageUsage appends the usage, in which cached tokens are not among the input tokens. details
// says whether they are known.
func (g *generation) appendMessageUsage(b []byte, output int, details bool) []byte {
	input := g.promptTokens()
	if details {
		input -= min(input, g.cached)
	}
	b = appendInt(append(b, `"usage":{"input_tokens":`...), input)
	b = appendInt(append(b, `,"output_tokens":`...), output)
	if details {
		b = appendInt(append(b, `,"cache_creation_input_tokens":`...), 0)
		b = appendInt(append(b, `,"cache_read_input_tokens":`...), g.cached)
	}
	return append(b, '}')
}

func (messagesAPI) streamError(Options) string {
	return "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"internal_error\",\"message\":\"Internal server error\"}}"
}

// appendError is how vLLM words an error of its handler on this path. Its request model's own errors have
// OpenAI's form here too.
func (messagesAPI) appendError(b []byte, e *apiError) []byte {
	if e.kind == "Bad Request" {
		return e.appendJSON(b)
	}
	b = appendString(append(b, `{"type":"error","error":{"type":`...), e.kind)
	return append(appendString(append(b, `,"message":`...), e.message), "}}"...)
}

// countTokens is POST /v1/messages/count_tokens.
func (c *core) countTokens(x *exchange) {
	f := parseFields(x.body)
	if f.err == nil {
		f.members["max_tokens"] = json.RawMessage("1")
		r := &request{model: f.text("model", false)}
		messagesAPI{}.read(r, f)
		if f.err == nil && r.model != c.o.Model {
			f.err = unknownModel(r.model, c.o.Model)
		}
		if f.err == nil {
			n := r.prompts[0].tokens
			b := appendInt([]byte(`{"input_tokens":`), n)
			b = appendInt(append(b, `,"context_management":{"original_input_tokens":`...), n)
			x.json(append(b, "}}"...))
			return
		}
	}
	_ = x.answer(f.err.status, "application/json", messagesAPI{}.appendError(nil, f.err))
}
