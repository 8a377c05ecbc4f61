package sim

import (
	"encoding/json"
	"strings"
)

// responsesAPI is POST /v1/responses. Its engine keeps no response, as vLLM does not unless it is told to.
type responsesAPI struct{ openAI }

func (responsesAPI) prefix() string                     { return "resp_" }
func (responsesAPI) internalID(id string, _ int) string { return id + "_0" }
func (responsesAPI) lead() string                       { return "" }

func (responsesAPI) read(r *request, f *fields) {
	r.maxTokens, r.limited = f.integer("max_output_tokens", true, 0)
	r.n, r.logprobs = 1, -1
	r.stream = f.boolean("stream", true)
	r.includeUsage = true
	r.ignoreEOS = f.boolean("ignore_eos", false)
	r.stop = f.stops()
	r.temperature, r.topP = f.number("temperature"), f.number("top_p")
	r.previous = f.text("previous_response_id", true)
	var messages []Message
	if text := f.text("instructions", true); text != "" {
		messages = append(messages, Message{Role: "system", Content: text})
	}
	var text string
	switch raw := f.members["input"]; {
	case raw == nil:
		f.missing("input")
	case json.Unmarshal(raw, &text) == nil:
		messages = append(messages, Message{Role: "user", Content: text})
	default:
		messages = append(messages, readInput(f)...)
	}
	r.prompts = []prompt{textPrompt(ChatPrompt(messages...))}
	r.readResponseTools(f)
}

// readInput reads items of a conversation. One that is no message counts as its type.
func readInput(f *fields) (messages []Message) {
	for _, raw := range f.list("input") {
		var item struct {
			Type, Role string
			Content    json.RawMessage
		}
		if json.Unmarshal(raw, &item) != nil {
			f.fail("dict_type", "input", "Input should be a valid dictionary")
			return nil
		}
		if item.Role == "" {
			messages = append(messages, Message{Role: item.Type, Content: string(raw)})
			continue
		}
		messages = append(messages, Message{Role: item.Role, Content: contentText(item.Content)})
	}
	return messages
}

// closeEvent appends what ends each event: its number and its name.
func (g *generation) closeEvent(b []byte, kind string) []byte {
	b = appendInt(append(b, `"sequence_number":`...), g.events.sequence)
	g.events.sequence++
	return append(append(append(b, `,"type":"`...), kind...), `"}`...)
}

func openEvent(b []byte, kind string) []byte {
	return append(append(append(b, "event: "...), kind...), "\ndata: {"...)
}

func (g *generation) messageID() string { return "msg_" + strings.TrimPrefix(g.id, "resp_") }

func (responsesAPI) appendRole(b []byte, g *generation, _ *unit) []byte {
	for i, kind := range []string{"response.created", "response.in_progress"} {
		if i > 0 {
			b = append(b, "\n\n"...)
		}
		b = append(openEvent(b, kind), `"response":`...)
		b = g.closeEvent(append(g.appendResponse(b, "in_progress"), ','), kind)
	}
	return b
}

// appendItem appends the message, whose text it has at its end.
func (g *generation) appendItem(b []byte, done bool) []byte {
	b = appendString(append(b, `{"id":`...), g.messageID())
	if !done {
		return append(b, `,"content":[],"role":"assistant","status":"in_progress","type":"message","phase":null}`...)
	}
	b = g.appendPart(append(b, `,"content":[`...), done)
	return append(b, `],"role":"assistant","status":"completed","type":"message","phase":null}`...)
}

func (g *generation) appendPart(b []byte, done bool) []byte {
	if !done {
		return append(b, `{"annotations":[],"text":"","type":"output_text","logprobs":[]}`...)
	}
	b = appendStrings(append(b, `{"annotations":[],"text":`...), g.units[0].tokens)
	return append(b, `,"type":"output_text","logprobs":null}`...)
}

// appendPlace appends where an event's text belongs. delta may come between its members.
func (g *generation) appendPlace(b []byte, delta ...string) []byte {
	b = append(b, `"content_index":0,`...)
	for _, text := range delta {
		b = append(appendString(append(b, `"delta":`...), text), ',')
	}
	return appendString(append(b, `"item_id":`...), g.messageID())
}

func (responsesAPI) appendToken(b []byte, g *generation, u *unit, step int) []byte {
	if u.call != nil {
		return g.appendCallStep(b, u.call, step)
	}
	if step == 0 {
		const added, part = "response.output_item.added", "response.content_part.added"
		b = append(g.appendItem(append(openEvent(b, added), `"item":`...), false), `,"output_index":0,`...)
		b = append(g.closeEvent(b, added), "\n\n"...)
		b = append(g.appendPlace(openEvent(b, part)), `,"output_index":0,"part":`...)
		b = append(g.closeEvent(append(g.appendPart(b, false), ','), part), "\n\n"...)
	} else if u.tokens[step] == "" {
		return nil
	}
	const delta = "response.output_text.delta"
	b = g.appendPlace(openEvent(b, delta), u.tokens[step])
	return g.closeEvent(append(b, `,"logprobs":[],"output_index":0,`...), delta)
}

func (responsesAPI) appendUsageEvent(b []byte, g *generation) []byte {
	if u := g.units[0]; u.began() {
		return g.appendCallEnd(b, u)
	} else if u.call != nil {
		return nil
	}
	const text, part, item = "response.output_text.done", "response.content_part.done", "response.output_item.done"
	b = append(g.appendPlace(openEvent(b, text)), `,"logprobs":[],"output_index":0,`...)
	b = appendInt(append(b, `"sequence_number":`...), g.events.sequence)
	g.events.sequence++
	b = appendStrings(append(b, `,"text":`...), g.units[0].tokens)
	b = append(append(append(b, `,"type":"`...), text...), "\"}\n\n"...)
	b = append(g.appendPlace(openEvent(b, part)), `,"output_index":0,"part":`...)
	b = append(g.closeEvent(append(g.appendPart(b, true), ','), part), "\n\n"...)
	b = append(g.appendItem(append(openEvent(b, item), `"item":`...), true), `,"output_index":0,`...)
	return g.closeEvent(b, item)
}

func (responsesAPI) appendDone(b []byte, g *generation) []byte {
	kind, status := "response.completed", g.responseStatus()
	if status == "incomplete" && g.c.o.since(33) {
		kind = "response.incomplete"
	}
	b = g.appendResponse(append(openEvent(b, kind), `"response":`...), status)
	return g.closeEvent(append(b, ','), kind)
}

func (responsesAPI) appendAnswer(b []byte, g *generation) []byte {
	return g.appendResponse(b, g.responseStatus())
}

// responseStatus is how the response ended.
func (g *generation) responseStatus() string {
	switch {
	case g.faults.has(FaultNoFinish):
		return "cancelled"
	case g.units[0].reason == "length":
		return "incomplete"
	}
	return "completed"
}

// appendResponse appends the response itself, which has no text before its end.
func (g *generation) appendResponse(b []byte, status string) []byte {
	b = appendInt(append(appendString(append(b, `{"id":`...), g.id), `,"created_at":`...), int(g.created))
	if status == "incomplete" {
		b = append(b, `,"incomplete_details":{"reason":"max_output_tokens"}`...)
	} else {
		b = append(b, `,"incomplete_details":null`...)
	}
	b = appendString(append(b, `,"instructions":null,"metadata":null,"model":`...), g.c.o.Model)
	b = append(b, `,"object":"response","output":[`...)
	if u := g.units[0]; status != "in_progress" && u.calls() {
		b = g.appendCallItem(b, u.call, u.call.arguments(), "completed")
	} else if status != "in_progress" {
		b = g.appendItem(b, true)
	}
	b = append(b, `],"parallel_tool_calls":true,"temperature":`...)
	b = appendFloat(b, g.r.orOne(g.r.temperature))
	if g.r.offered == nil {
		b = append(b, `,"tool_choice":"none","tools":[],"top_p":`...)
	} else {
		b = append(append(b, `,"tool_choice":`...), g.r.chosen...)
		b = append(append(append(b, `,"tools":`...), g.r.offered...), `,"top_p":`...)
	}
	b = appendInt(append(appendFloat(b, g.r.orOne(g.r.topP)), `,"background":false,"max_output_tokens":`...), g.limit())
	b = append(b, `,"max_tool_calls":null,"previous_response_id":null,"prompt":null`...)
	if g.c.o.since(33) {
		b = append(b, `,"prompt_cache_options":null,"prompt_cache_key":null,"prompt_cache_retention":null,"reasoning":null,"safety_identifier":null`...)
	} else {
		b = append(b, `,"reasoning":null`...)
	}
	b = append(b, `,"service_tier":"auto","status":"`...)
	b = append(append(b, status...), `","text":null,"top_logprobs":null,"truncation":"disabled","usage":`...)
	if status == "in_progress" {
		b = append(b, "null"...)
	} else {
		b = g.appendResponseUsage(b)
	}
	b = append(b, `,"user":null,"presence_penalty":0.0,"frequency_penalty":0.0,"kv_transfer_params":`...)
	if g.handle == nil || status == "in_progress" {
		b = append(b, "null"...)
	} else {
		b = append(b, g.handle...)
	}
	return append(b, `,"ec_transfer_params":null,"input_messages":null,"output_messages":null}`...)
}

// orOne returns a sampling parameter, or what an engine takes for it.
func (*request) orOne(p *float64) float64 {
	if p == nil {
		return 1
	}
	return *p
}

// limit is how many tokens the answer may have.
func (g *generation) limit() int {
	if g.r.limited {
		return g.r.maxTokens
	}
	return g.c.o.MaxModelLen - g.promptTokens()
}

func (g *generation) appendResponseUsage(b []byte) []byte {
	in, out := g.promptTokens(), g.outputTokens()
	b = appendInt(append(b, `{"input_tokens":`...), in)
	b = appendInt(append(b, `,"input_tokens_details":{"cached_tokens":`...), g.cached)
	b = appendInt(append(b, `,"cache_write_tokens":`...), g.createdCacheTokens())
	b = appendInt(append(b, `,"input_tokens_per_turn":[],"cached_tokens_per_turn":[]},"output_tokens":`...), out)
	b = append(b, `,"output_tokens_details":{"reasoning_tokens":0,"tool_output_tokens":0,"output_tokens_per_turn":[],"tool_output_tokens_per_turn":[]}`...)
	return append(appendInt(append(b, `,"total_tokens":`...), in+out), '}')
}

func (responsesAPI) streamError(Options) string {
	return "event: error\ndata: " + streamError
}
