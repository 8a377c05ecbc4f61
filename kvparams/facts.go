package kvparams

import "math"

// Stream reports whether stream is literally true.
func (r *Request) Stream() bool { return string(r.raw(fieldStream)) == "true" }

// IncludeUsage reports whether stream_options.include_usage is literally true.
func (r *Request) IncludeUsage() bool { return r.usage }

// Model is the decoded name of the model, or nil if it is absent or null. It is valid until Parse
// or Reset.
func (r *Request) Model() []byte { return r.model }

// Priority is the body's priority, or 0 if it is no integer. Lower is sooner.
func (r *Request) Priority() int {
	n, _ := integer(r.raw(fieldPriority))
	return n
}

// ForcedTool reports whether tool_choice demands a call: "required" or a named function. An
// answer of one token cannot hold a call, so P may fail where D would not.
func (r *Request) ForcedTool() bool {
	raw := r.raw(fieldToolChoice)
	if r.api != Chat || raw == nil {
		return false
	}
	return raw[0] == '{' || raw[0] == '"' && string(text(r.s.b, inner(r.vals[fieldToolChoice]))) == "required"
}

// Choices is how many choices a complete answer has: n for each prompt, or 1 for each if n is not
// a plain positive integer.
func (r *Request) Choices() int {
	n, ok := integer(r.raw(fieldN))
	if !ok || n < 1 {
		n = 1
	}
	prompts := max(1, r.promptCount()) // the engine refuses an empty list
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

// PromptBytes is the size of the messages or the prompt in the body, and of the tools, which are
// rendered into the prompt. It is 0 if they are absent.
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

// PromptTokens is the length of the prompt in tokens. It is exact for lists of token ids.
// Otherwise it is estimated from PromptBytes and the bytes of a token.
func (r *Request) PromptTokens(tokenBytes float64) (n int, exact bool) {
	if r.tokens >= 0 {
		return r.tokens, true
	}
	return int(float64(r.PromptBytes()) / tokenBytes), false
}
