package sim

import (
	"strings"
	"unicode/utf8"
)

// toolCall is the function call of one choice. The model says it as text in the form of Hermes
// models, and the engine parses that as vLLM's parser of that name does.
type toolCall struct {
	id   string // of the call, random
	name string
	text string

	// Where in text the name is complete, and the arguments begin and end. The parser
	// shows the name in one piece, then the arguments as they come, nothing else.
	nameEnd, argumentsBegin, argumentsEnd int

	ends []int // of the tokens, in text
}

func newToolCall(t *tool, s script) *toolCall {
	c := &toolCall{id: "chatcmpl-tool-" + randomHex(8), name: t.Name}
	b := appendString([]byte("<tool_call>\n{\"name\": "), t.Name)
	c.nameEnd = len(b)
	b = append(b, `, "arguments": `...)
	c.argumentsBegin = len(b)
	arguments := &sample{script: s}
	b = arguments.appendValue(b, t.Parameters)
	c.argumentsEnd = len(b)
	c.text = string(b) + "}\n</tool_call>"
	return c
}

// tokens returns the call as the model says it, with the end-of-sequence token, which has no text.
func (c *toolCall) tokens() []string {
	var all []string
	for rest := c.text; rest != ""; {
		end := min(bytesPerToken, len(rest))
		for end < len(rest) && !utf8.RuneStart(rest[end]) {
			end++
		}
		all, rest = append(all, rest[:end]), rest[end:]
	}
	return append(all, "")
}

// step is what one token shows: that the name is complete, or a piece of the arguments. Blanks at the
// end of the arguments wait for what follows them.
func (c *toolCall) step(step int) (named bool, piece string) {
	begin, end := 0, c.ends[step]
	if step > 0 {
		begin = c.ends[step-1]
	}
	if begin < c.nameEnd && end >= c.nameEnd {
		return true, ""
	}
	return false, c.shown(end)[len(c.shown(begin)):]
}

// appendDelta appends the delta of one token, and reports whether there is anything in it.
func (c *toolCall) appendDelta(b []byte, step int) ([]byte, bool) {
	named, piece := c.step(step)
	if named {
		b = appendString(append(b, `{"content":null,"tool_calls":[{"id":`...), c.id)
		b = appendString(append(b, `,"type":"function","index":0,"function":{"name":`...), c.name)
		return append(b, "}}]}"...), true
	}
	if piece != "" {
		b = append(b, `{"content":null,"tool_calls":[{"index":0,"function":{"arguments":`...)
		return append(appendString(b, piece), "}}]}"...), true
	}
	return append(b, "{}"...), false
}

// shown returns the arguments that are shown after end bytes of the text have come.
func (c *toolCall) shown(end int) string {
	end = max(c.argumentsBegin, min(end, c.argumentsEnd))
	return strings.TrimRight(c.text[c.argumentsBegin:end], " ")
}

// appendMessage appends the members of a whole answer's message from the content on. A call that
// the token limit cut short is text, as the model said it. With a choice that forces a call, no
// text is "" and not null.
func (c *toolCall) appendMessage(b []byte, r *request, said string) []byte {
	const rest = `,"refusal":null,"annotations":null,"audio":null,"function_call":null`
	if !c.complete(said) {
		b = append(appendString(append(b, `"content":`...), said), rest...)
		return append(b, `,"reasoning":null}`...)
	}
	content := `""`
	if r.toolChoice == toolAuto {
		content = "null"
	}
	b = append(append(append(b, `"content":`...), content...), rest...)
	b = appendString(append(b, `,"tool_calls":[{"id":`...), c.id)
	b = appendString(append(b, `,"type":"function","function":{"name":`...), c.name)
	b = appendString(append(b, `,"arguments":`...), c.text[c.argumentsBegin:c.argumentsEnd])
	return append(b, `}}],"reasoning":null}`...)
}

// complete reports whether a call can be read from said, the first part of c.text. Its JSON must
// have ended, and the tag after it must be whole or not begun.
func (c *toolCall) complete(said string) bool {
	object := c.argumentsEnd + len("}")
	return len(said) == len(c.text) || len(said) >= object && strings.TrimSpace(said[object:]) == ""
}

// callTool makes the answer of u a call of t. The call ends by itself, or like any answer at the
// request's limit or stop string.
func (u *unit) callTool(t *tool, r *request) {
	u.call = newToolCall(t, u.script)
	u.tokens, u.reason = u.call.tokens(), "stop"
	if r.limited && r.maxTokens < len(u.tokens) {
		u.tokens, u.reason = u.tokens[:r.maxTokens], "length"
	}
	u.cutAtStop(r.stop)
	end := 0
	for _, token := range u.tokens {
		end += len(token)
		u.call.ends = append(u.call.ends, end)
	}
}

// finishReason returns what the API says about u's end. A forced call of a named function ends with
// "stop", any other call with "tool_calls".
func (u *unit) finishReason(r *request) string {
	if u.call != nil && u.reason == "stop" && r.toolChoice != toolNamed {
		return "tool_calls"
	}
	return u.reason
}
