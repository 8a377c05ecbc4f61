package kvparams

import "math"

// Stream reports whether stream is literally true.
func (r *Request) Stream() bool { return string(r.raw(fieldStream)) == "true" }

// IncludeUsage reports whether stream_options.include_usage is literally true.
func (r *Request) IncludeUsage() bool { return r.usage }

// Model is the decoded model name, nil if absent or null. Valid until Parse or Reset.
func (r *Request) Model() []byte { return r.model }

// ForcedTool reports whether tool_choice demands a call: "required" or a named function. A one-token answer cannot hold
// one, so P may fail where D would not.
func (r *Request) ForcedTool() bool {
	raw := r.raw(fieldToolChoice)
	if r.api != Chat || raw == nil {
		return false
	}
	return raw[0] == '{' || raw[0] == '"' && string(text(r.s.b, inner(r.vals[fieldToolChoice]))) == "required"
}

// Choices is how many choices a complete answer has: n (if a plain positive integer, else 1) for each prompt.
func (r *Request) Choices() int {
	n, ok := integer(r.raw(fieldN))
	if !ok || n < 1 {
		n = 1
	}
	prompts := max(1, r.promptCount()) // an empty list is the engine's to refuse
	if n > math.MaxInt32/prompts {
		return math.MaxInt32
	}
	return n * prompts
}

func (r *Request) promptSpan() span {
	f := fieldMessages
	if r.api == Completions {
		f = fieldPrompt
	}
	if r.seen&(1<<f) == 0 {
		return span{}
	}
	return r.vals[f]
}

// PromptBytes is the size of the messages or prompt value as it stands in the body, and of the tools, which are rendered
// into the prompt; 0 if absent.
func (r *Request) PromptBytes() int {
	p := r.promptSpan()
	n := p.end - p.at
	for _, m := range r.rendered {
		if m.tools {
			n += m.val.end - m.val.at
		}
	}
	return n
}

// PromptTokens is the prompt's length in tokens: exact for lists of token ids, else estimated from PromptBytes and the
// bytes of a token.
func (r *Request) PromptTokens(tokenBytes float64) (n int, exact bool) {
	if r.tokens >= 0 {
		return r.tokens, true
	}
	return int(float64(r.PromptBytes()) / tokenBytes), false
}
