package kvparams

// EventKind is what one server-sent event of a completion means to a relay.
type EventKind uint8

const (
	EventComment EventKind = iota // no data: a keep-alive
	EventRole                     // it only opens the answer: delta.role with empty content, nothing else; message_start
	EventContent                  // what must reach the client exactly once: text, reasoning, tool calls, an end
	EventUsage                    // choices is empty
	EventError                    // a top-level error that is not null
	EventDone                     // data: [DONE], message_stop or response.completed
)

// Event is one classified event.
type Event struct {
	Kind EventKind
	// Finished counts the choices of this event that have a finish_reason, or is 1 for the end of an
	// answer. Broken counts those whose finish_reason is "error" or "abort".
	Finished, Broken int
	// Malformed says that the data is not a strict JSON object, or names kv_transfer_params twice.
	// Such an event is EventContent.
	Malformed bool
	// Usage is what EventUsage says. Other events have one if they tell the prompt's tokens, as with
	// stream_options.continuous_usage_stats, and otherwise none of its figures is above 0. That of
	// message_start has no Completion, because the answer follows.
	Usage Usage

	handle span // top-level kv_transfer_params of the data unless null; empty if absent
}

// Handle reports whether the event holds kv_transfer_params that are not null: addresses and
// block ids, for HideHandle.
func (e Event) Handle() bool { return e.handle.end > 0 }

// Commits reports whether the event must not be held back or lost, so that the request cannot be
// tried again after it. Empty text with a token commits as well, and so does the end of an answer without
// text.
func (e Event) Commits() bool { return e.Kind == EventContent || e.Kind == EventDone && e.Finished > 0 }

// Classify is API.Classify for the APIs whose events have choices.
func Classify(ev []byte) Event {
	data, _ := dataOf(ev)
	switch {
	case len(data) == 0:
		return Event{Kind: EventComment}
	case string(data) == "[DONE]":
		return Event{Kind: EventDone}
	}
	var c chunk
	if !c.parse(data) || c.twice {
		return Event{Kind: EventContent, Malformed: true}
	}
	e := Event{Kind: EventContent, Finished: c.finished, Broken: c.broken, handle: c.kv}
	if c.usage.prompt >= 0 {
		e.Usage = c.usage.figures()
	}
	switch {
	case c.err:
		e.Kind = EventError
	case c.list && c.choices == 0:
		e.Kind, e.Usage = EventUsage, c.usage.figures()
	case c.list && c.openings == c.choices:
		e.Kind = EventRole
	}
	return e
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
	broken   int
	usage    usage
	kv       span // kv_transfer_params unless null
	twice    bool // the data has them twice
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
			c.err = s.byteAt(w.at) != 'n'
			w.done(s.value(w.at, w.depth))
		case string(name) == "usage":
			w.done(c.usage.read(s, w.at, w.depth))
		case string(name) == "kv_transfer_params":
			end := s.value(w.at, w.depth)
			if s.byteAt(w.at) != 'n' {
				c.twice = c.kv.end > 0
				c.kv = span{w.at, end}
			}
			w.done(end)
		default:
			w.done(s.value(w.at, w.depth))
		}
	}
	return w.pos >= 0 && s.space(w.pos) == len(data)
}

func (c *chunk) readChoices(at, depth int) (end int) {
	w := c.s.enter(at, depth)
	c.list, c.choices, c.openings, c.finished, c.broken = true, 0, 0, 0, 0
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
	var reason span
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
			if set {
				reason = span{w.at, end}
			}
		case "text", "logprobs", "token_ids":
			token = token || set
		}
		w.done(end)
	}
	c.count(reason, role && !more && !token)
	return w.pos
}

func (c *chunk) count(reason span, opening bool) {
	if reason.end == 0 {
		if opening {
			c.openings++
		}
		return
	}
	c.finished++
	if c.s.b[reason.at] == '"' && broken(text(c.s.b, inner(reason))) {
		c.broken++
	}
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
				more = more || !emptyValue(v)
			}
		}
		w.done(end)
	}
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
