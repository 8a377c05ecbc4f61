package carry

import (
	"bytes"
	"slices"

	"xpyd/kvparams"
)

// comment tells a reader of the stream where it was joined. Clients skip it.
const comment = ": carried on by another decode engine\n\n"

// Cached notes what the first prefill found in its cache, as the usage tells it.
func (s *Stream) Cached(tokens int) {
	if s.times == 0 {
		s.cached = tokens
	}
}

// Next says whether the stream can be carried on now. left is how many tokens the answer may still have. longest is the
// length of the model, or 0 if it is not known.
func (s *Stream) Next(longest int) (left int, why Reason) {
	switch {
	case s.why != None:
		return 0, s.why
	case s.times >= s.room.Max:
		return 0, Spent
	case s.asked == 0 || len(s.mold) == 0:
		return 0, Shape
	}
	var ok bool
	if s.form, ok = kvparams.NewMold(bytes.Clone(s.mold)); !ok {
		return 0, Shape
	}
	s.turnBack()
	limit := s.req.Most
	if limit < 0 {
		if limit = longest - s.asked; longest <= 0 {
			return 0, Length
		}
	}
	return limit - s.whole.tokens, None
}

// turnBack finds the point from which the answer is made again. With stop strings, the text up to a mark ends Held characters
// behind what the client had then. What it had beyond the text up to that point is due.
func (s *Stream) turnBack() {
	if s.req.Held == 0 {
		return
	}
	at, chars, kept := point{}, 0, 0
	for i, m := range s.marks {
		if m.chars+s.req.Held > s.chars {
			break
		}
		at, chars, kept = m.point, m.chars+s.req.Held, i+1
	}
	end := 0
	for range chars {
		end += width(s.text[end:])
	}
	s.due = slices.Concat(s.text[end:], s.due)
	s.whole, s.marks, s.text, s.chars = at, s.marks[:kept], s.text[:end], chars
}

// width is the length of the first character of text.
func width(text []byte) int {
	n := 1
	for n < len(text) && text[n]&0xc0 == 0x80 {
		n++
	}
	return n
}

// AtSeam reports whether the client has no text beyond the point from which the answer would be made again, except what is due.
func (s *Stream) AtSeam() bool { return !s.loose }

// Body appends the body of the continuation. What the client has no text for is made again.
func (s *Stream) Body(dst []byte, left int) []byte {
	s.answer = s.answer[:s.whole.ids]
	s.all, s.before = s.whole, s.whole.tokens
	return s.req.AppendOnward(dst, s.prompt, s.answer, s.whole.tokens, left)
}

// Join begins the continuation: another engine tells what comes next.
func (s *Stream) Join() {
	s.times++
	s.joined = true
}

// Tokens is how many tokens of the answer the client has.
func (s *Stream) Tokens() int { return s.all.tokens - s.before }

// Usage is what an engine has counted of a continuation, as that of the whole stream.
func (s *Stream) Usage(u kvparams.Usage) kvparams.Usage {
	u.Prompt, u.Cached = s.asked, s.cached
	if u.Completion >= 0 {
		u.Completion += s.before
	}
	return u
}

// Turn returns an event of the continuation as one of the stream, or nothing if there is nothing in it for the client. It is
// valid until the next call. failed says that the continuation tells another text than the client has.
func (s *Stream) Turn(raw []byte, ev kvparams.Event) (turned []byte, failed bool) {
	dst := s.turned[:0]
	if s.fresh {
		s.fresh = false
		dst = append(dst, comment...)
	}
	if dst, failed = s.turn(dst, raw, ev); failed {
		s.Stop(Diverged)
	}
	s.turned = dst
	return dst, failed
}

func (s *Stream) turn(dst, raw []byte, ev kvparams.Event) (_ []byte, failed bool) {
	switch ev.Kind {
	case kvparams.EventUsage:
		return s.form.AppendUsage(dst, s.asked, s.before+max(0, ev.Usage.Completion), s.cached), false
	case kvparams.EventContent:
	default:
		return append(dst, raw...), false
	}
	piece, ok := kvparams.NewMold(raw)
	if !ok {
		return dst, true
	}
	if s.why == None && s.on {
		s.note(raw, ev)
	}
	text, reason, stop := piece.Values()
	text, due, ok := kvparams.CutText(text, s.due)
	if !ok {
		return dst, true
	}
	s.due = due
	switch ended := string(reason) != "null"; {
	case ended && len(s.due) > 0:
		return dst, true
	case !ended && len(text) == 0:
		return dst, false
	}
	return s.form.Append(dst, text, reason, stop), false
}

// End appends what a stream lacks of which the client has all tokens: the end of its choice, if that is not there, its usage,
// if the client wants one and has none, and the last event.
func (s *Stream) End(dst []byte, finished, counted bool) []byte {
	if !finished {
		dst = s.form.Append(dst, nil, []byte(`"length"`), nil)
	}
	if s.req.Usage && !counted {
		dst = s.form.AppendUsage(dst, s.asked, s.all.tokens, s.cached)
	}
	return s.form.AppendDone(dst)
}
