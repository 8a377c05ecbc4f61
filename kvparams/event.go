package kvparams

import "bytes"

// EventKind is what one server-sent event of a completion means to a relay.
type EventKind uint8

const (
	EventComment EventKind = iota // no data: a keep-alive
	EventRole                     // only opens the answer: delta.role with empty content and nothing else, or message_start
	EventContent                  // must reach the client exactly once: text, reasoning, tool calls, an end
	EventUsage                    // choices is empty
	EventError                    // one called error, or with a top-level error that is not null
	EventDone                     // data: [DONE], message_stop or response.completed
)

// Event is one classified event.
type Event struct {
	Kind EventKind
	// Finished counts the choices of this event that have a finish_reason, or is 1 for the end of an
	// answer. Broken counts those whose finish_reason is "error" or "abort".
	Finished, Broken int
	// Which has a bit for the index of each finished choice below 64. A choice counts once in Finished, and a
	// second end of it in a later event has its bit again.
	Which uint64
	// Malformed says that the data is not a strict JSON object, or names kv_transfer_params or
	// ec_transfer_params twice.
	// Such an event is EventContent or EventError.
	Malformed bool
	// Usage is the usage of an EventUsage. Other events have a usage if they report the prompt's
	// tokens, as with stream_options.continuous_usage_stats. If they do not, none of its figures is
	// above 0. The usage of message_start has no Completion, because the answer follows.
	Usage Usage

	own  transfers // of the data
	text int       // bytes of text in the choices
	ids  int       // of tokens that the choices name
	in   places
}

// places are where things are in an event's data.
type places struct {
	at                 int  // of the data in the event; -1 if it has several lines
	asked, said, shown span // ids of the prompt and of tokens, and the text of a choice; empty if they are absent
	role, other        bool // a delta names a role, or has what is neither a role nor content
}

// textOfToken is more bytes of text than a token has, however long its word is, except in a rare text. Runs of spaces in
// code come near it.
const textOfToken = 8

// Tokens is how many tokens of an answer the event holds at least. Clients may ask for many in each event
// (stream_interval).
func (e Event) Tokens() int {
	if e.Kind != EventContent {
		return 0
	}
	return max(1, e.ids, e.text/textOfToken)
}

// Handle reports whether the event has kv_transfer_params that are not null, which means that D keeps
// its own blocks.
func (e Event) Handle() bool { return e.own[transferKV].end > 0 }

// Transfers reports whether the event has kv_transfer_params or ec_transfer_params that are not null.
// They contain addresses and ids, which HideTransfers removes.
func (e Event) Transfers() bool { return e.own.any() }

// Commits reports whether xpyd must not hold back or lose the event, so that it cannot retry the request
// afterwards. Empty text with a token commits as well, and so does the end of an answer without text.
func (e Event) Commits() bool { return e.Kind == EventContent || e.Kind == EventDone && e.Finished > 0 }

// Classify is API.Classify for the APIs whose events have choices.
func Classify(ev []byte) Event {
	if twoWays(ev) {
		return Event{Kind: EventContent, Malformed: true}
	}
	data, at, failed := dataOf(ev)
	switch {
	case failed:
	case len(data) == 0:
		return Event{Kind: EventComment}
	case isDone(data):
		return Event{Kind: EventDone}
	}
	var c chunk
	if !c.parse(data) || c.twice {
		return Event{Kind: unreadable(failed), Malformed: true}
	}
	e := Event{Kind: EventContent, Finished: c.finished, Broken: c.broken, Which: c.which, own: c.own, text: c.text, ids: c.ids, in: c.in}
	e.in.at = at
	if c.usage.prompt >= 0 {
		e.Usage = c.usage.figures()
	}
	switch {
	case c.err, failed:
		e.Kind = EventError
	case c.list && c.choices == 0:
		e.Kind, e.Usage = EventUsage, c.usage.figures()
	case c.list && c.openings == c.choices:
		e.Kind = EventRole
	}
	return e
}

// unreadable is the kind of an event whose data cannot be read.
func unreadable(failed bool) EventKind {
	if failed {
		return EventError
	}
	return EventContent
}

func usageOf(data []byte) usage {
	var c chunk
	if !c.parse(data) {
		return noUsage
	}
	return c.usage
}

// chunk is what one pass over the JSON of an event finds.
type chunk struct {
	s        scanner
	err      bool
	list     bool // choices is a list
	choices  int
	openings int // choices that only open
	finished int
	which    uint64 // see Event
	broken   int
	text     int // see Event
	ids      int
	usage    usage
	own      transfers
	twice    bool // the data has one of them twice
	in       places
}

func (c *chunk) parse(data []byte) (ok bool) {
	s := &c.s
	s.reset(data)
	c.usage = noUsage
	i := s.space(0)
	if s.byteAt(i) != '{' {
		return false
	}
	w := s.enter(i, 0)
	for w.next(s) {
		switch name := w.name(data); {
		case string(name) == "choices" && s.byteAt(w.at) == '[':
			w.done(c.readChoices(w.at, w.depth))
		case string(name) == "error":
			c.err = c.err || s.byteAt(w.at) != 'n'
			w.done(s.value(w.at, w.depth))
		case string(name) == "object":
			end := s.value(w.at, w.depth)
			c.err = c.err || end > 0 && string(data[w.at:end]) == `"error"` // as older vLLM writes it
			w.done(end)
		case string(name) == "usage":
			w.done(c.usage.read(s, w.at, w.depth))
		default:
			end := s.value(w.at, w.depth)
			if string(name) == "prompt_token_ids" && s.byteAt(w.at) == '[' {
				c.in.asked = span{w.at, end}
			}
			if which := transferOf(name); which >= 0 && s.byteAt(w.at) != 'n' {
				c.twice = c.own.met(which, span{w.at, end}) || c.twice
			}
			w.done(end)
		}
	}
	return w.pos >= 0 && s.space(w.pos) == len(data)
}

func (c *chunk) readChoices(at, depth int) (end int) {
	w := c.s.enter(at, depth)
	c.list, c.choices, c.openings, c.finished, c.which, c.broken, c.text, c.ids = true, 0, 0, 0, 0, 0, 0, 0
	for w.next(&c.s) {
		w.done(c.readChoice(w.at, w.depth))
	}
	c.choices = w.n
	return w.pos
}

func (c *chunk) readChoice(at, depth int) (end int) {
	s := &c.s
	if s.byteAt(at) != '{' {
		return s.value(at, depth)
	}
	var role, more, token bool
	var reason, index span
	w := s.enter(at, depth)
	for w.next(s) {
		name := w.name(s.b)
		if string(name) == "delta" && s.byteAt(w.at) == '{' {
			role, more, end = c.readDelta(w.at, w.depth)
			w.done(end)
			continue
		}
		end = s.value(w.at, w.depth)
		set := end > 0 && s.b[w.at] != 'n'
		switch string(name) {
		case "finish_reason":
			reason = span{}
			if end > 0 && endWord(s.b[w.at:end]) {
				reason = span{w.at, end}
			}
		case "index":
			index = span{w.at, end}
		case "text", "logprobs", "token_ids":
			if token = token || set; set {
				c.measure(name, span{w.at, end})
			}
		case "prompt_token_ids":
			if set && s.b[w.at] == '[' {
				c.in.asked = span{w.at, end}
			}
		}
		w.done(end)
	}
	c.count(reason, index, role && !more && !token)
	return w.pos
}

// measure counts what a member of a choice or a delta holds of the text.
func (c *chunk) measure(name []byte, at span) {
	value := at.of(c.s.b)
	switch {
	case string(name) == "token_ids" && value[0] == '[':
		if c.in.said = at; !emptyValue(value) {
			c.ids += bytes.Count(value, []byte{','}) + 1
		}
	case value[0] == '"':
		c.text += len(value) - 2
		if string(name) == "text" || string(name) == "content" {
			c.in.shown = at
		}
	case string(name) == "tool_calls":
		c.text += max(0, len(value)-callFrame)
	}
}

// callFrame is about what a tool call has around its arguments, in bytes.
const callFrame = 200

func (c *chunk) count(reason, index span, opening bool) {
	if reason.end == 0 {
		if opening {
			c.openings++
		}
		return
	}
	if !c.again(index) {
		c.finished++
	}
	if broken(text(c.s.b, inner(reason))) {
		c.broken++
	}
}

// again reports whether the choice with an index has already finished in this event, and notes that it has.
func (c *chunk) again(index span) bool {
	n, ok := 0, index.end > index.at
	if ok {
		n, ok = integer(index.of(c.s.b))
	}
	if !ok || n < 0 || n > 63 {
		return false
	}
	before := c.which
	c.which |= 1 << n
	return c.which == before
}

// readDelta reports whether the delta names a role, and whether it holds anything besides the
// role and empty values.
func (c *chunk) readDelta(at, depth int) (role, more bool, end int) {
	s := &c.s
	w := s.enter(at, depth)
	for w.next(s) {
		end := s.value(w.at, w.depth)
		if end >= 0 {
			v := s.b[w.at:end]
			if string(w.name(s.b)) == "role" {
				role = role || v[0] == '"'
			} else {
				filled := !emptyValue(v)
				more = more || filled
				c.in.other = c.in.other || filled && string(w.name(s.b)) != "content"
				c.measure(w.name(s.b), span{w.at, end})
			}
		}
		w.done(end)
	}
	c.in.role = c.in.role || role
	return role, more, w.pos
}

// emptyValue reports whether v is null, "", [] or {}.
func emptyValue(v []byte) bool {
	switch v[0] {
	case 'n':
		return true
	case '"':
		return len(v) == 2
	case '[', '{':
		for _, c := range v[1 : len(v)-1] {
			if c > ' ' {
				return false
			}
		}
		return true
	}
	return false
}
