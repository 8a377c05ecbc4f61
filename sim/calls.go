package sim

import (
	"bytes"
	"encoding/json"
	"strings"
)

// The functions of the messages and the responses API, and how an answer of theirs calls one. Both name
// them in their own way. A call that the token limit cuts short is text in a whole answer, as in a chat.

// readMessageTools reads the tools of the messages API, which vLLM hands on to a chat completion.
func (r *request) readMessageTools(f *fields) {
	for _, raw := range f.list("tools") {
		var offered struct {
			Name   string
			Schema json.RawMessage `json:"input_schema"`
		}
		if json.Unmarshal(raw, &offered) != nil {
			f.fail("dict_type", "tools", "Input should be a valid dictionary")
			return
		}
		r.tools = append(r.tools, tool{offered.Name, offered.Schema})
	}
	if len(r.tools) == 0 {
		return
	}
	choice := &fields{members: f.object("tool_choice")}
	switch kind := choice.text("type", false); kind {
	case "any":
		r.toolChoice = toolRequired
	case "tool":
		r.nameTool(f, choice.text("name", false), noSuchChatTool)
	case "none":
	default:
		r.toolChoice = toolAuto
	}
}

// readResponseTools reads the functions of the responses API, and none of its other tools.
func (r *request) readResponseTools(f *fields) {
	for _, raw := range f.list("tools") {
		var offered struct {
			Type, Name string
			Parameters json.RawMessage
		}
		if json.Unmarshal(raw, &offered) == nil && offered.Type == "function" {
			r.tools = append(r.tools, tool{offered.Name, offered.Parameters})
		}
	}
	if len(r.tools) == 0 {
		return
	}
	r.offered, r.chosen = f.members["tools"], f.members["tool_choice"]
	r.toolChoice = toolAuto
	var named struct{ Type, Name string }
	switch {
	case r.chosen == nil:
		r.chosen = json.RawMessage(`"auto"`)
	case string(r.chosen) == `"required"`:
		r.toolChoice = toolRequired
	case string(r.chosen) == `"none"`:
		r.toolChoice = ""
	case json.Unmarshal(r.chosen, &named) == nil && named.Type == "function":
		r.nameTool(f, named.Name, "Tool choice 'function' not found in 'tools' parameter. (parameter=tool_choice)")
	}
}

// nameTool makes name the function that is called, or fails with message.
func (r *request) nameTool(f *fields, name, message string) {
	r.toolChoice, r.toolName = toolNamed, name
	for _, t := range r.tools {
		if t.Name == name {
			return
		}
	}
	if f.err == nil {
		f.err = badRequest("tool_choice", "%s", message)
	}
}

// said is what u has said in all.
func (u *unit) said() string { return strings.Join(u.tokens, "") }

// calls reports whether the whole answer is a call.
func (u *unit) calls() bool { return u.call != nil && u.call.complete(u.said()) }

// began reports whether the call's name has come, so that a stream shows a call.
func (u *unit) began() bool { return u.call != nil && len(u.said()) >= u.call.nameEnd }

// streamed is the part of the arguments that a stream has shown at its end.
func (u *unit) streamed() string { return u.call.shown(len(u.said())) }

func (c *toolCall) arguments() string { return c.text[c.argumentsBegin:c.argumentsEnd] }

// appendToolUse appends the block of a call, with its input or, in a stream, none.
func (c *toolCall) appendToolUse(b []byte, input string) []byte {
	b = appendString(append(b, `{"type":"tool_use","id":`...), c.id)
	b = appendString(append(b, `,"name":`...), c.name)
	compact := bytes.NewBuffer(append(b, `,"input":`...))
	if err := json.Compact(compact, []byte(input)); err != nil {
		panic("BUG: arguments that are no JSON: " + err.Error())
	}
	return append(compact.Bytes(), '}')
}

// appendUseStep appends the event of one token of a call in a stream of messages, or returns nil.
func (c *toolCall) appendUseStep(b []byte, step int) []byte {
	switch named, piece := c.step(step); {
	case named:
		b = append(b, "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"content_block\":"...)
		return append(c.appendToolUse(b, "{}"), `,"index":0}`...)
	case piece != "":
		b = append(b, "event: content_block_delta\ndata: "...)
		b = append(b, `{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":`...)
		return append(appendString(b, piece), `},"index":0}`...)
	}
	return nil
}

func (g *generation) callItemID() string { return "fc_" + strings.TrimPrefix(g.id, "resp_") }

// appendCallItem appends the item of a call, in the order of the official SDK's model, which vLLM dumps.
func (g *generation) appendCallItem(b []byte, c *toolCall, arguments, status string) []byte {
	b = appendString(append(b, `{"arguments":`...), arguments)
	b = appendString(append(b, `,"call_id":`...), c.id)
	b = appendString(append(b, `,"name":`...), c.name)
	b = appendString(append(b, `,"type":"function_call","id":`...), g.callItemID())
	b = append(b, `,"async":null,"caller":null,"namespace":null,"status":"`...)
	return append(append(b, status...), `"}`...)
}

// appendCallStep appends the event of one token of a call in a stream of a response, or returns nil.
func (g *generation) appendCallStep(b []byte, c *toolCall, step int) []byte {
	const added, delta = "response.output_item.added", "response.function_call_arguments.delta"
	switch named, piece := c.step(step); {
	case named:
		b = g.appendCallItem(append(openEvent(b, added), `"item":`...), c, "", "in_progress")
		return g.closeEvent(append(b, `,"output_index":0,`...), added)
	case piece != "":
		b = appendString(append(openEvent(b, delta), `"delta":`...), piece)
		b = appendString(append(b, `,"item_id":`...), g.callItemID())
		return g.closeEvent(append(b, `,"output_index":0,`...), delta)
	}
	return nil
}

// appendCallEnd appends the events that end a call's item in a stream.
func (g *generation) appendCallEnd(b []byte, u *unit) []byte {
	const done, item = "response.function_call_arguments.done", "response.output_item.done"
	b = appendString(append(openEvent(b, done), `"arguments":`...), u.streamed())
	b = appendString(append(b, `,"item_id":`...), g.callItemID())
	b = appendInt(append(b, `,"output_index":0,"sequence_number":`...), g.events.sequence)
	g.events.sequence++
	b = appendString(append(b, `,"type":"response.function_call_arguments.done","name":`...), u.call.name)
	b = append(b, "}\n\n"...)
	b = g.appendCallItem(append(openEvent(b, item), `"item":`...), u.call, u.streamed(), "completed")
	return g.closeEvent(append(b, `,"output_index":0,`...), item)
}
