package kvparams

import (
	"bytes"
	"errors"
	"io"
	"mime/multipart"
	"unicode"
	"unicode/utf8"
)

// xargs is the field of vLLM's audio forms whose JSON becomes extra_args.
const xargs = "vllm_xargs"

// maxParts is how many parts of a form are looked at. Engines take a thousand files and a thousand fields.
// A part may have as few as ten bytes, and a body of nothing else would keep a core busy for seconds.
const maxParts = 2000

// maxXargs bounds that field, in bytes.
const maxXargs = 64 << 10

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

// FormModel returns the value of the field model in a form, or nil if there is none. A file may come
// before it.
func FormModel(body []byte, boundary string) []byte {
	parts := multipart.NewReader(bytes.NewReader(body), boundary)
	for range maxParts {
		part, err := parts.NextRawPart()
		if err != nil {
			return nil // an engine refuses what is no form
		}
		if part.FormName() != "model" || part.FileName() != "" {
			continue
		}
		model, err := io.ReadAll(io.LimitReader(part, maxModel))
		if err != nil && !errors.Is(err, io.EOF) {
			return nil
		}
		return model
	}
	return nil
}

// OneModel reports whether a form names its model at most once, however the name is quoted. Of two
// fields, the engine might take the one that xpyd did not.
func OneModel(body []byte) bool {
	places := 0
	for rest := body; ; {
		i := bytes.Index(rest, []byte("model"))
		if i < 0 {
			return places <= 1
		}
		before := bytes.TrimRight(rest[:i], "\" \t")
		if before, ok := bytes.CutSuffix(before, []byte("=")); ok {
			before = bytes.TrimRight(before, " \t")
			if n := len("name"); len(before) >= n && bytes.EqualFold(before[len(before)-n:], []byte("name")) {
				places++
			}
		}
		rest = rest[i+len("model"):]
	}
}

// CheckForm refuses a form with KV parameters in vllm_xargs, because even an empty string as a handle
// kills a decode engine. The engine does not read forms as Go does. So each occurrence of the name in
// the body must be a field that Go finds too, and its value must be JSON: two readers that agree on a
// name and on the complete JSON after it agree on the field.
func CheckForm(body []byte, boundary string) error {
	if starred(body) {
		return wrongType("name", "a plain parameter of Content-Disposition")
	}
	places := bytes.Count(body, []byte(xargs))
	parts := multipart.NewReader(bytes.NewReader(body), boundary)
	for n := 0; places > 0; n++ {
		part, err := parts.NextRawPart()
		if err != nil || n == maxParts {
			return wrongType(xargs, "a JSON object in a field of its own")
		}
		if part.FormName() != xargs {
			continue
		}
		value, err := io.ReadAll(io.LimitReader(part, maxXargs))
		if err != nil {
			return wrongType(xargs, "a JSON object in a field of its own")
		}
		if err := checkXargs(value); err != nil {
			return err
		}
		places--
	}
	return nil
}

// starred reports whether a field may have its name in an extended form, name*=. Go lets that take the
// place of the plain name. Of the engine's readers the newer ones pass over it, and the older ones do not.
func starred(body []byte) bool {
	for rest := body; ; {
		i := bytes.IndexByte(rest, '*')
		if i < 0 {
			return false
		}
		if n := i - len("name"); n > 0 && bytes.EqualFold(rest[n:i], []byte("name")) {
			if before := bytes.TrimRightFunc(rest[:n], blank); len(before) > 0 && before[len(before)-1] == ';' {
				return true
			}
		}
		rest = rest[i+1:]
	}
}

// blank reports whether some reader of header fields takes r for space. RuneError stands for a single byte
// above 0x7f.
func blank(r rune) bool { return r <= ' ' || r == utf8.RuneError || unicode.IsSpace(r) }

func checkXargs(value []byte) error {
	var s scanner
	s.reset(value)
	i := s.space(0)
	if s.byteAt(i) != '{' {
		return wrongType(xargs, "a JSON object")
	}
	w := s.enter(i, 0)
	for w.next(&s) {
		if name := w.name(value); kvAlias(name) {
			return unsupported(xargs + "." + string(name))
		}
		w.done(s.value(w.at, w.depth))
	}
	if s.failed() || s.space(w.pos) != len(value) {
		return wrongType(xargs, "a JSON object")
	}
	return nil
}
