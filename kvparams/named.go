package kvparams

// Model returns the model that a JSON body of any route names, or nil if it names none or is not an
// object. Of several, the last one counts, as in the engine's own reader. It is valid as long as body
// is. urgent reports that the body has a priority. Model refuses KV parameters, and a body that is not strict JSON:
// engines also read a byte order mark, UTF-16 and NaN, and would find fields in it that xpyd has not
// seen.
func Model(body []byte) (model []byte, urgent bool, err error) {
	var s scanner
	s.reset(body)
	i := s.space(0)
	if s.byteAt(i) != '{' {
		return nil, false, s.end(s.value(i, 0))
	}
	w := s.enter(i, 0)
	for w.next(&s) {
		end := s.value(w.at, w.depth)
		if end >= 0 {
			switch name := text(body, w.key); {
			case string(name) == "model" && s.byteAt(w.at) == '"':
				model = text(body, span{w.at + 1, end - 1})
			case string(name) == "model":
				model = nil
			case string(name) == "priority":
				urgent = true
			case kvDoor(name) && !s.void(w.at):
				return nil, false, unsupported(string(name))
			}
		}
		w.done(end)
	}
	return model, urgent, s.end(w.pos)
}

// Blank reports whether a body has only the white space that JSON allows, and therefore no fields.
func Blank(body []byte) bool {
	s := scanner{b: body}
	return s.space(0) == len(body)
}

// end returns what is wrong with a request's body whose value ends at i, or nil. i is -1 after a fault.
func (s *scanner) end(i int) error {
	if i >= 0 && s.space(i) != len(s.b) {
		s.fail(s.space(i), "bytes behind the value")
	}
	if s.failed() {
		return s.requestError()
	}
	return nil
}

// ErrPriority refuses a priority from a client that may not set one.
func ErrPriority() error { return unsupported("priority") }
