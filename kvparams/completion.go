package kvparams

import (
	"fmt"
	"strconv"
)

// Completion is a complete answer of D that was not streamed. The zero value is ready for Parse. A
// caller may parse into a Completion again.
type Completion struct {
	s       scanner
	api     API
	own     transfers
	usage   usage
	choices int    // -1 before the choices are met
	ended   bool   // a stop_reason or a status was met, for the APIs that have those
	flaw    string // why the answer is not whole; it never holds bytes of it
	digits  [2][20]byte
}

var nullValue = []byte("null")

// Parse is ParseAs for the APIs whose answers have choices.
func (c *Completion) Parse(body []byte) error { return c.ParseAs(Completions, body, 1) }

// ParseAs validates body and keeps it until the next call. It fails with an *AnswerError unless the
// answer is strict JSON and complete. A complete answer has at least the expected choices, and every choice
// finished for a reason other than "error" and "abort". With Anthropic's API, it has a stop_reason.
// With the responses API, its status is completed or incomplete. It has no top-level error except null.
// Members that this package reads may occur only once.
func (c *Completion) ParseAs(api API, body []byte, choices int) error {
	s := &c.s
	s.reset(body)
	c.api, c.own, c.usage, c.choices, c.ended, c.flaw = api, transfers{}, noUsage, -1, false, ""
	i := s.space(0)
	if s.byteAt(i) != '{' {
		s.fail(i, "expected an object")
		return s.answerError()
	}
	w := s.enter(i, 0)
	for w.next(s) {
		c.member(&w)
	}
	if err := s.finish(w.pos); err != nil {
		return err
	}
	switch {
	case api.typed() && !c.ended:
		c.fault("it does not say how it ended")
	case !api.typed() && c.choices < 1:
		c.fault("it has no choices")
	case !api.typed() && c.choices < choices:
		c.fault(fmt.Sprintf("it has %d of %d choices", c.choices, choices))
	}
	if c.flaw != "" {
		return &AnswerError{Code: CodeIncomplete, Message: "backend answer is no whole completion: " + c.flaw}
	}
	return nil
}

// Handle reports whether the answer has kv_transfer_params that are not null, which means that D keeps
// its own blocks.
func (c *Completion) Handle() bool { return c.own[transferKV].end > 0 }

// Reset drops the reference to the body.
func (c *Completion) Reset() { c.s.reset(nil) }

func (c *Completion) fault(why string) {
	if c.flaw == "" {
		c.flaw = why
	}
}

func (c *Completion) member(w *walk) {
	s := &c.s
	switch name := w.name(s.b); string(name) {
	case c.api.endMember():
		end := s.value(w.at, w.depth)
		if end > 0 && c.api.typed() {
			c.end(span{w.at, end})
		}
		w.done(end)
	case "choices":
		if c.choices >= 0 {
			c.fault(`"choices" stands twice`)
		}
		c.choices = 0
		w.done(c.readChoices(w))
	case "error":
		if s.byteAt(w.at) != 'n' {
			c.fault("it holds an error")
		}
		w.done(s.value(w.at, w.depth))
	case "usage":
		if c.usage != noUsage {
			c.fault(`"usage" stands twice`)
		}
		w.done(c.usage.read(s, w.at, w.depth))
	default:
		end := s.value(w.at, w.depth)
		if which := transferOf(name); which >= 0 && s.byteAt(w.at) != 'n' && c.own.met(which, span{w.at, end}) {
			c.fault(transferNames[which] + " stands twice")
		}
		w.done(end)
	}
}

// end notes the stop_reason or the status of an answer.
func (c *Completion) end(at span) {
	if c.ended {
		c.fault("it says twice how it ended")
	}
	c.ended = true
	if !endWord(at.of(c.s.b)) || c.api == Responses && !wholeStatus(c.s.b, at) {
		c.fault("it broke off")
	}
}

func (c *Completion) readChoices(w *walk) (end int) {
	s := &c.s
	if s.byteAt(w.at) != '[' {
		return s.value(w.at, w.depth)
	}
	list := s.enter(w.at, w.depth)
	for list.next(s) {
		list.done(c.readChoice(list.at, list.depth))
	}
	c.choices = list.n
	return list.pos
}

func (c *Completion) readChoice(at, depth int) (end int) {
	s := &c.s
	if s.byteAt(at) != '{' {
		c.fault("a choice is no object")
		return s.value(at, depth)
	}
	reasons := 0
	w := s.enter(at, depth)
	for w.next(s) {
		end := s.value(w.at, w.depth)
		if end >= 0 && string(w.name(s.b)) == "finish_reason" {
			reasons++
			c.finish(span{w.at, end})
		}
		w.done(end)
	}
	if reasons != 1 {
		c.fault("a choice has no finish_reason, or two")
	}
	return w.pos
}

func (c *Completion) finish(reason span) {
	if !endWord(reason.of(c.s.b)) {
		c.fault("a choice is not finished")
		return
	}
	if broken(text(c.s.b, inner(reason))) {
		c.fault("a choice broke off")
	}
}

// endWord reports whether a JSON value is a word for how a text has ended. Some engines write "" while it goes on.
func endWord(v []byte) bool { return v[0] == '"' && len(v) > len(`""`) }

// broken reports whether a finish_reason names a failure of the engine rather than an end of the
// text.
func broken(reason []byte) bool {
	switch string(reason) {
	case "error", "abort":
		return true
	}
	return false
}

// Usage is the answer's usage.
func (c *Completion) Usage() Usage { return c.usage.figures() }

// AppendClient appends the answer as the client gets it. D's own kv_transfer_params and ec_transfer_params
// become null, because they contain addresses. cachedTokens replaces the cached_tokens that D reports, unless
// it is below 0, because D does not count the KV blocks that it has pulled. All other bytes stay as D wrote
// them. The segments are valid until the next Parse or AppendClient.
func (c *Completion) AppendClient(dst Segments, cachedTokens int) Segments {
	b, at := c.s.b, 0
	put := func(from, to int, v []byte) {
		dst = dst.add(b[at:from]).add(v)
		at = to
	}
	hidden, own := 0, c.own.inOrder()
	hide := func(before int) {
		for ; hidden < len(own) && own[hidden].at < before; hidden++ {
			if v := own[hidden]; v.end > 0 {
				put(v.at, v.end, nullValue)
			}
		}
	}
	figures, n := c.usage.shownWith(cachedTokens)
	for i := n - 1; i >= 0; i-- {
		f := figures[i]
		hide(f.At)
		put(f.At, f.End, strconv.AppendInt(c.digits[i][:0], int64(f.Value), 10))
	}
	hide(len(b))
	return dst.add(b[at:])
}
