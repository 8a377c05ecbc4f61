package sim

import "strings"

// chatAPI is POST /v1/chat/completions.
type chatAPI struct{ openAI }

func (chatAPI) prefix() string                     { return "chatcmpl-" }
func (chatAPI) internalID(id string, _ int) string { return id }

// streamError has no spaces from 0.33 on, on this path alone.
func (a chatAPI) streamError(o Options) string {
	if !o.since(33) {
		return a.openAI.streamError(o)
	}
	return "data: " + string(internalError().appendJSON(nil))
}

func (chatAPI) appendRole(b []byte, g *generation, u *unit) []byte {
	b = g.appendEnvelope(b, "chat.completion.chunk")
	b = appendInt(append(b, `{"index":`...), u.index)
	b = append(b, `,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]`...)
	if g.r.continuousUsage {
		b = append(g.appendCounts(append(b, ','), 0), `,"completion_tokens_details":null}`...)
	}
	b = g.appendPromptIDs(append(b, ','), u)
	return append(b, `,"prompt_text":null}`...)
}

func (chatAPI) appendToken(b []byte, g *generation, u *unit, step int) []byte {
	last := step == len(u.tokens)-1
	b = g.appendEnvelope(b, "chat.completion.chunk")
	b = appendInt(append(b, `{"index":`...), u.index)
	b, telling := u.appendDelta(append(b, `,"delta":`...), step)
	if !telling && !last && g.r.logprobs < 0 && !g.r.tokenIDs {
		return nil
	}
	b = append(b, `,"logprobs":`...)
	b = append(g.appendChatLogprobs(b, u.tokens[step:step+1]), ',')
	b = g.appendReason(b, u, last)
	if last {
		b = appendStopReason(append(b, ','), u, last)
	}
	b = g.appendTokenIDs(append(b, ','), u.ids[step:step+1])
	if last {
		b = append(g.appendWeightVersions(b), ']')
	} else {
		b = append(b, "}]"...)
	}
	if g.r.continuousUsage {
		b = append(g.appendCounts(append(b, ','), step+1), `,"completion_tokens_details":null}`...)
	}
	if g.lastOfAll(u, step) {
		b = g.appendFingerprint(append(b, ','))
	}
	return g.appendStreamTransfer(b, last)
}

func (chatAPI) appendUsageEvent(b []byte, g *generation) []byte {
	b = append(g.appendEnvelope(b, "chat.completion.chunk"), "],"...)
	b = g.appendCounts(b, g.outputTokens())
	b = appendInt(append(b, `,"prompt_tokens_details":{"cached_tokens":`...), g.cached)
	b = appendInt(append(b, `,"created_cache_tokens":`...), g.createdCacheTokens())
	return append(g.appendFingerprint(append(b, "}},"...)), '}')
}

func (chatAPI) appendAnswer(b []byte, g *generation) []byte {
	b = g.appendEnvelope(b, "chat.completion")
	for i, u := range g.units {
		b = appendInt(append(appendComma(b, i), `{"index":`...), u.index)
		b = u.appendMessage(append(b, `,"message":{"role":"assistant",`...), g.r)
		b = append(b, `,"logprobs":`...)
		b = append(g.appendChatLogprobs(b, u.tokens), ',')
		b = g.appendReason(b, u, true)
		b = appendStopReason(append(b, ','), u, true)
		b = g.appendTokenIDs(append(b, ','), u.ids)
		b = g.appendWeightVersions(append(b, `,"routed_experts":null`...))
	}
	b = g.appendAnswerUsage(b, string(appendInt(nil, g.createdCacheTokens())))
	b = g.appendPromptIDs(append(b, `"prompt_logprobs":null,`...), g.units[0])
	b = append(b, `,"prompt_text":null,`...)
	return g.appendTransfer(b)
}

// appendDelta appends the delta of one token, and reports whether there is anything in it. The
// parser of tool calls keeps back what is no part of a name or of arguments.
func (u *unit) appendDelta(b []byte, step int) ([]byte, bool) {
	if u.call != nil {
		return u.call.appendDelta(b, step)
	}
	return append(appendString(append(b, `{"content":`...), u.tokens[step]), '}'), true
}

// appendMessage appends the members of a whole answer's message after its role.
func (u *unit) appendMessage(b []byte, r *request) []byte {
	if u.call != nil {
		return u.call.appendMessage(b, r, strings.Join(u.tokens, ""))
	}
	b = appendStrings(append(b, `"content":`...), u.tokens)
	return append(b, `,"refusal":null,"annotations":null,"audio":null,"function_call":null,"reasoning":null}`...)
}

// createdCacheTokens returns what the prompts put into the prefix cache: the tokens of the full
// blocks that were computed here.
func (g *generation) createdCacheTokens() int {
	if g.pulls() || g.c.o.NoPrefixCaching {
		return 0
	}
	created := 0
	for _, u := range g.units {
		if u.choice == 0 {
			created += u.prompt.tokens/g.c.o.BlockSize*g.c.o.BlockSize - u.cached
		}
	}
	return created
}
