package kvparams

import (
	"bytes"
	"math"
	"strconv"
)

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

// ForcedTool reports whether tool_choice demands a call: "required" or a named function, or Anthropic's
// equivalents. An answer of one token cannot contain a call, so P may fail where D would not.
func (r *Request) ForcedTool() bool {
	raw := r.raw(fieldToolChoice)
	if r.api == Completions || raw == nil {
		return false
	}
	if r.api == Messages {
		kind := string(r.memberText(r.vals[fieldToolChoice].at, "type"))
		return kind == "any" || kind == "tool"
	}
	return raw[0] == '{' || raw[0] == '"' && string(text(r.s.b, inner(r.vals[fieldToolChoice]))) == "required"
}

// memberText is the string that the object at i, which was validated before, has under name, or nil.
func (r *Request) memberText(i int, name string) (value []byte) {
	s := &r.s
	if s.byteAt(i) != '{' {
		return nil
	}
	for w := s.enter(i, 1); w.next(s); {
		end := s.value(w.at, w.depth)
		if string(w.name(s.b)) == name && s.byteAt(w.at) == '"' {
			value = text(s.b, inner(span{w.at, end}))
		}
		w.done(end)
	}
	return value
}

// readTools looks for tools that vLLM itself calls. It then goes on with the same parameters, and so with a handle that is
// spent. All others are the client's to call: https://github.com/vllm-project/vllm/tree/main/vllm/entrypoints/openai/responses
func (r *Request) readTools(w *walk) (end int, err error) {
	in := r.s.enter(w.at, w.depth)
	for in.next(&r.s) {
		in.done(r.readTool(in.at, in.depth))
	}
	r.noteRendered(w, in.pos, renderedTools)
	return in.pos, nil
}

func (r *Request) readTool(at, depth int) (end int) {
	s := &r.s
	if s.byteAt(at) != '{' {
		return s.value(at, depth)
	}
	in := s.enter(at, depth)
	for in.next(s) {
		end := s.value(in.at, in.depth)
		if end > 0 && string(r.decode(&in)) == "type" && s.b[in.at] == '"' {
			switch string(text(s.b, inner(span{in.at, end}))) {
			case "web_search_preview", "code_interpreter", "container", "mcp":
				r.served = true
			}
		}
		in.done(end)
	}
	return in.pos
}

// Choices is how many choices a complete answer has: n for each prompt, or 1 for each if n is not
// a positive whole number. Engines also take "2" and 2.0 for 2.
func (r *Request) Choices() int {
	n, ok := integer(r.raw(fieldN))
	if !ok {
		n = wholeNumber(r.raw(fieldN))
	}
	n = max(n, 1)
	prompts := max(1, r.promptCount()) // the engine refuses an empty list
	if n > math.MaxInt32/prompts {
		return math.MaxInt32
	}
	return n * prompts
}

// wholeNumber is the value of a number in another form than integer takes, or in quotes. It is 0 if that is
// no whole number above 0, or too large.
func wholeNumber(raw []byte) int {
	f, err := strconv.ParseFloat(string(bytes.Trim(raw, `" `)), 64)
	if err != nil || f < 1 || f > math.MaxInt32 || f != math.Trunc(f) {
		return 0
	}
	return int(f)
}

func (r *Request) promptSpan() span {
	f := r.form().prompt
	if !r.seen.has(f) {
		return span{}
	}
	return r.vals[f]
}

// PromptBytes is the size of the messages or the prompt in the body, plus that of the tools and
// instructions, which engines render into the prompt. It is 0 if all are absent.
func (r *Request) PromptBytes() int {
	p := r.promptSpan()
	n := p.end - p.at
	for _, m := range r.rendered {
		if m.as != renderedShape {
			n += m.val.end - m.val.at
		}
	}
	return n
}

// PromptText is what PromptBytes is without its images, sounds and videos, and how many of these there are, 256 at
// most. The bytes of an image say nothing of its tokens, and by its URL it has hardly any.
func (r *Request) PromptText() (size, media int) {
	size = r.PromptBytes()
	for _, p := range r.parts {
		size -= p.end - p.at
	}
	return size, len(r.parts)
}

// PromptTokens is the length of the prompt in tokens. It is exact for lists of token ids. Otherwise, it
// is an estimate from PromptText, the bytes per token, and the tokens of an image, sound or video.
func (r *Request) PromptTokens(tokenBytes, mediaTokens float64) (n int, exact bool) {
	if r.tokens >= 0 {
		return r.tokens, true
	}
	size, media := r.PromptText()
	return int(float64(size)/tokenBytes + float64(media)*mediaTokens), false
}
