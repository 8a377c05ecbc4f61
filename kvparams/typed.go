package kvparams

// typed reports whether each event of a stream, and each answer, says what it is in a member "type" or
// "status", and not by its choices.
func (a API) typed() bool { return a == Messages || a == Responses }

// endMember is the member of a whole answer that says how it ended, or "" if its choices do.
func (a API) endMember() string {
	switch a {
	case Messages:
		return "stop_reason"
	case Responses:
		return "status"
	}
	return ""
}

// Classify reads one complete event, as NextEvent delimits it, in one pass over its bytes.
func (a API) Classify(ev []byte) Event {
	if !a.typed() {
		return Classify(ev)
	}
	if twoWays(ev) {
		return Event{Kind: EventContent, Malformed: true}
	}
	data, _, failed := dataOf(ev)
	if len(data) == 0 && !failed {
		return Event{Kind: EventComment}
	}
	var t typed
	if !t.parse(data) || t.twice {
		return Event{Kind: unreadable(failed), Malformed: true}
	}
	e := Event{Kind: EventError, own: t.own}
	if t.usage.prompt >= 0 {
		e.Usage = t.usage.figures()
	}
	switch {
	case t.err, failed:
	case a == Messages:
		e.Kind = t.message(&e)
	default:
		e.Kind = t.response(&e)
	}
	return e
}

// typed is what one pass over the JSON of an event finds.
type typed struct {
	s      scanner
	kind   []byte // type
	err    bool
	end    span // the stop_reason or the status; empty if there is none
	usage  usage
	own    transfers
	twice  bool // the event has one of them twice
	inside bool // of the object that the event is about
}

func (t *typed) parse(data []byte) (ok bool) {
	s := &t.s
	s.reset(data)
	t.usage = noUsage
	i := s.space(0)
	if s.byteAt(i) != '{' {
		return false
	}
	end := t.object(i, 0)
	return end >= 0 && s.space(end) == len(data)
}

// object reads the event itself, or one of the objects in it that it is about.
func (t *typed) object(i, depth int) (end int) {
	s := &t.s
	w := s.enter(i, depth)
	for w.next(s) {
		name := w.name(s.b)
		if c := s.byteAt(w.at); c == '{' {
			w.done(t.member(name, &w))
			continue
		}
		end := s.value(w.at, w.depth)
		if end > 0 && s.b[w.at] != 'n' {
			t.scalar(name, span{w.at, end})
		} else if end > 0 && string(name) == "stop_reason" {
			t.end = span{w.at, end}
		}
		w.done(end)
	}
	return w.pos
}

// member reads a member that is an object.
func (t *typed) member(name []byte, w *walk) (end int) {
	switch string(name) {
	case "usage":
		return t.usage.read(&t.s, w.at, w.depth)
	case "message", "response", "delta":
		if !t.inside {
			t.inside = true
			end = t.object(w.at, w.depth)
			t.inside = false
			return end
		}
	}
	end = t.s.value(w.at, w.depth)
	if end > 0 {
		t.scalar(name, span{w.at, end})
	}
	return end
}

// scalar notes a member that is not null. A list counts as one too.
func (t *typed) scalar(name []byte, at span) {
	switch string(name) {
	case "type":
		if !t.inside && t.s.b[at.at] == '"' {
			t.kind = text(t.s.b, inner(at))
		}
	case "error":
		t.err = true
	case "stop_reason", "status":
		t.end = at
	default:
		if which := transferOf(name); which >= 0 {
			t.twice = t.own.met(which, at) || t.twice
		}
	}
}

// message classifies an event of Anthropic's API. Only a stop_reason ends the text. It is null if the
// engine aborted.
func (t *typed) message(e *Event) EventKind {
	switch string(t.kind) {
	case "message_start":
		e.Usage.Completion = -1 // what it says is from before the answer
		return EventRole
	case "ping":
		return EventComment
	case "message_stop":
		return EventDone
	case "error":
		return EventError
	case "message_delta":
		switch {
		case t.end.end == 0:
		case endWord(t.end.of(t.s.b)):
			e.Finished = 1
		default:
			e.Broken = 1
		}
	}
	return EventContent
}

// response classifies an event of the responses API. The last one has the whole answer, with its status.
func (t *typed) response(e *Event) EventKind {
	switch string(t.kind) {
	case "response.created", "response.in_progress", "response.queued":
		return EventRole
	case "response.completed", "response.incomplete":
		if t.end.end > 0 && wholeStatus(t.s.b, t.end) {
			e.Finished = 1
		} else {
			e.Broken = 1
		}
		return EventDone
	case "response.failed", "response.cancelled", "error":
		return EventError
	}
	return EventContent
}

// wholeStatus reports whether a response of this status has all of its text.
func wholeStatus(b []byte, status span) bool {
	if b[status.at] != '"' {
		return false
	}
	switch string(text(b, inner(status))) {
	case "completed", "incomplete": // at a limit of the request
		return true
	}
	return false
}
