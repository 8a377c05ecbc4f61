package kvparams

import "strconv"

// Mold is an event with text, by which others of its stream are made. It has the stream's id, model, time, index and all
// other members as they are.
type Mold struct {
	ev   []byte
	at   int  // of the data in ev
	list span // choices
	// The values in the one choice: its text, why it ends, and the stop string. stop is empty if it is absent.
	text, reason, stop span
}

// NewMold reads an event with one choice, one data line and text. It keeps ev.
func NewMold(ev []byte) (m Mold, ok bool) {
	data, at, _ := dataOf(ev)
	if at < 0 || len(data) == 0 || data[0] != '{' {
		return m, false
	}
	m = Mold{ev: ev, at: at}
	var s scanner
	s.reset(data)
	for w := s.enter(0, 0); w.next(&s); {
		if string(w.name(data)) == "choices" && s.byteAt(w.at) == '[' {
			list := s.enter(w.at, w.depth)
			for list.next(&s) {
				list.done(m.read(&s, list.at, list.depth))
			}
			m.list = span{w.at, list.pos}
			ok = list.n == 1
			w.done(list.pos)
			continue
		}
		w.done(s.value(w.at, w.depth))
	}
	return m, ok && !s.failed() && m.text.end > 0 && m.reason.end > 0
}

func (m *Mold) read(s *scanner, at, depth int) (end int) {
	if s.byteAt(at) != '{' {
		return s.value(at, depth)
	}
	w := s.enter(at, depth)
	for w.next(s) {
		name := w.name(s.b)
		if string(name) == "delta" && s.byteAt(w.at) == '{' {
			w.done(m.read(s, w.at, w.depth))
			continue
		}
		end := s.value(w.at, w.depth)
		switch at := (span{w.at, end}); string(name) {
		case "text", "content":
			if s.byteAt(w.at) == '"' {
				m.text = at
			}
		case "finish_reason":
			m.reason = at
		case "stop_reason":
			m.stop = at
		}
		w.done(end)
	}
	return w.pos
}

// Values are the text, the finish_reason and the stop_reason of the event: the first without its quotes, the others as they are,
// or nil if they are absent.
func (m *Mold) Values() (text, reason, stop []byte) {
	data := m.ev[m.at:]
	if m.stop.end > 0 {
		stop = m.stop.of(data)
	}
	return inner(m.text).of(data), m.reason.of(data), stop
}

// Append appends the event with other values. text is the content of a JSON string. reason and stop may be nil, for null.
func (m *Mold) Append(dst, text, reason, stop []byte) []byte {
	if reason == nil {
		reason = nullValue
	}
	if stop == nil {
		stop = nullValue
	}
	data, at := m.ev[m.at:], 0
	dst = append(dst, m.ev[:m.at]...)
	put := func(v span, value ...[]byte) {
		dst = append(dst, data[at:v.at]...)
		for _, piece := range value {
			dst = append(dst, piece...)
		}
		at = v.end
	}
	quote := []byte{'"'}
	for _, v := range inOrder(m.text, m.reason, m.stop) {
		switch {
		case v.end == 0:
		case v == m.text:
			put(v, quote, text, quote)
		case v == m.stop:
			put(v, stop)
		case m.stop.end > 0 || string(reason) == "null":
			put(v, reason)
		default: // chats have a stop_reason only where they end
			put(v, reason, []byte(`,"stop_reason":`), stop)
		}
	}
	return append(dst, data[at:]...)
}

func inOrder(all ...span) []span {
	for i := range all {
		for j := i; j > 0 && all[j].at < all[j-1].at; j-- {
			all[j], all[j-1] = all[j-1], all[j]
		}
	}
	return all
}

// AppendUsage appends an event without choices that has these counts. cached is below 0 if it is not known.
func (m *Mold) AppendUsage(dst []byte, prompt, completion, cached int) []byte {
	dst = append(append(append(dst, m.ev[:m.at]...), m.ev[m.at:m.at+m.list.at]...), `[],"usage":{"prompt_tokens":`...)
	dst = append(strconv.AppendInt(dst, int64(prompt), 10), `,"total_tokens":`...)
	dst = append(strconv.AppendInt(dst, int64(prompt+completion), 10), `,"completion_tokens":`...)
	dst = append(strconv.AppendInt(dst, int64(completion), 10), `,"prompt_tokens_details":`...)
	if cached < 0 {
		dst = append(dst, `null}}`...)
	} else {
		dst = append(strconv.AppendInt(append(dst, `{"cached_tokens":`...), int64(cached), 10), `}}}`...)
	}
	return append(dst, m.end()...)
}

// AppendDone appends the last event of a stream.
func (m *Mold) AppendDone(dst []byte) []byte {
	return append(append(dst, "data: [DONE]"...), m.end()...)
}

// end is what ends an event of the stream.
func (m *Mold) end() []byte {
	n := len(m.ev)
	for n > 0 && (m.ev[n-1] == '\n' || m.ev[n-1] == '\r') {
		n--
	}
	return m.ev[n:]
}
