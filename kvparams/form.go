package kvparams

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// xargs is the field of vLLM's audio forms whose JSON becomes extra_args.
const xargs = "vllm_xargs"

const (
	// maxParts is how many parts a form may have. Engines take a thousand files and a thousand fields
	// (https://github.com/Kludex/starlette, MultiPartParser).
	maxParts = 2000
	// maxPartHead bounds the head of a part, in bytes. A name of a file has 255 of them, and three characters for
	// each where it is encoded.
	maxPartHead = 4 << 10
	// maxXargs bounds vllm_xargs, in bytes.
	maxXargs = 64 << 10
)

// Form returns the model that a form names, or nil if it names none. It is valid as long as body is. urgent reports
// that the form has a priority. Form refuses KV parameters, because even an empty string as a handle kills a decode
// engine, and whatever two readers could take for different fields: readers differ in how they decode names, in what
// they trim, and in which of two names they take.
func Form(body []byte, boundary string) (model []byte, urgent bool, err error) {
	f := parts{rest: body, delimiter: []byte("\r\n--" + boundary)}
	if f.rest, err = f.open(); err != nil {
		return nil, false, err
	}
	for p := (part{}); ; {
		if more, err := f.next(&p); err != nil || !more {
			return model, urgent, err
		}
		switch name := string(p.name); {
		case name == "model" && model != nil:
			return nil, false, duplicate(name)
		case name == "model":
			if model = p.value; p.file || len(model) > maxModel || !utf8.Valid(model) {
				return nil, false, wrongType(name, fmt.Sprintf("a text of at most %d bytes", maxModel))
			}
		case name == "priority":
			urgent = true
		case name == xargs:
			if err := checkXargs(&p); err != nil {
				return nil, false, err
			}
		case kvDoor(p.name):
			return nil, false, unsupported(name)
		}
	}
}

// parts reads the parts of a form (RFC 7578), one after the other. Its grammar is narrower than the RFC's: what it
// takes, each reader takes for the same parts.
type parts struct {
	rest      []byte // behind the last delimiter
	delimiter []byte // a line end, two hyphens and the boundary
	n         int    // how many were read
}

// part is one field of a form. It aliases the body.
type part struct {
	name  []byte
	file  bool
	value []byte
}

// open cuts the first delimiter, which no line end precedes.
func (f *parts) open() (rest []byte, err error) {
	rest, ok := bytes.CutPrefix(f.rest, f.delimiter[2:])
	if !ok {
		return nil, badForm("it must begin with two hyphens and the boundary of Content-Type")
	}
	return rest, nil
}

// next reads one part. more is false behind the last one.
func (f *parts) next(p *part) (more bool, err error) {
	if tail, ok := bytes.CutPrefix(f.rest, []byte("--")); ok {
		if len(tail) > 0 && string(tail) != "\r\n" {
			return false, badForm("nothing but a line end may follow its last boundary")
		}
		return false, nil
	}
	rest, ok := bytes.CutPrefix(f.rest, []byte("\r\n"))
	if !ok {
		return false, badForm("a line end (CR LF), or two hyphens at its end, must follow a boundary")
	}
	if f.n++; f.n > maxParts {
		return false, badForm(fmt.Sprintf("it has more than %d parts", maxParts))
	}
	head := rest[:min(len(rest), maxPartHead)]
	end := bytes.Index(head, []byte("\r\n\r\n"))
	if end < 0 {
		return false, f.badPart(fmt.Sprintf("its head must end with an empty line (CR LF) within %d bytes", maxPartHead))
	}
	head, rest = head[:end], rest[end+4:]
	end = bytes.Index(rest, f.delimiter)
	if end < 0 || bytes.HasPrefix(rest, f.delimiter[2:]) { // some readers take that for the end of an empty part
		return false, f.badPart("a line end and the boundary must end it, and no boundary may begin it")
	}
	p.value, f.rest = rest[:end], rest[end+len(f.delimiter):]
	if why := p.readHead(head); why != "" {
		return false, f.badPart(why)
	}
	return true, nil
}

// readHead reads the lines of a part's head, and returns what is wrong with them. Some clients write fields besides
// Content-Disposition. Those that change nothing may stand there.
func (p *part) readHead(head []byte) string {
	p.name = nil
	for more := true; more; {
		var line []byte
		line, head, more = bytes.Cut(head, []byte("\r\n"))
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			name = nil
		}
		value = bytes.TrimLeft(value, " ")
		switch {
		case foldsTo(name, "content-disposition"):
			if p.name != nil || !p.readDisposition(value) {
				return `it must have one Content-Disposition: form-data; name="NAME", perhaps with a filename="FILE" behind it, ` +
					"a name of ASCII characters without spaces, and no backslash before a quotation mark"
			}
		case foldsTo(name, "content-type"):
			if !printable(value, '~') {
				return "its Content-Type must be of printable ASCII characters"
			}
		case foldsTo(name, "content-length"):
			if string(value) != strconv.Itoa(len(p.value)) {
				return "its Content-Length must be its length"
			}
		case foldsTo(name, "content-transfer-encoding"):
			if !foldsTo(value, "binary") && !foldsTo(value, "8bit") && !foldsTo(value, "7bit") {
				return "its Content-Transfer-Encoding must be binary, or be left out"
			}
		default:
			return "its head may have Content-Disposition, Content-Type, Content-Length and Content-Transfer-Encoding, " +
				"on one line each, which ends with CR LF"
		}
	}
	if p.name == nil {
		return "it must have a Content-Disposition"
	}
	return ""
}

// readDisposition reads `form-data; name=…`, with the name of a file in one form, in the other or in both.
func (p *part) readDisposition(value []byte) bool {
	const kind = "form-data"
	if len(value) < len(kind) || !foldsTo(value[:len(kind)], kind) || !printable(value, 0xff) {
		return false
	}
	name, rest, ok := cutParam(value[len(kind):], "name")
	if !ok || len(name) == 0 || !printable(name, '~') || bytes.IndexByte(name, ' ') >= 0 || bytes.IndexByte(name, '\\') >= 0 {
		return false
	}
	p.name = name
	_, rest, plain := cutParam(rest, "filename")
	_, rest, coded := cutParam(rest, "filename*")
	p.file = plain || coded
	return len(rest) == 0
}

// cutParam cuts `; key=value` off b, or returns all of b. A value in quotation marks ends at the next one. A backslash
// before it makes it part of the value for some readers and not for others, so it may not stand there.
func cutParam(b []byte, key string) (value, rest []byte, ok bool) {
	if rest, ok = bytes.CutPrefix(b, []byte(";")); !ok {
		return nil, b, false
	}
	if rest, ok = bytes.CutPrefix(bytes.TrimLeft(rest, " "), []byte(key+"=")); !ok {
		return nil, b, false
	}
	if rest, ok = bytes.CutPrefix(rest, []byte(`"`)); ok {
		if value, rest, ok = bytes.Cut(rest, []byte(`"`)); !ok || bytes.HasSuffix(value, []byte(`\`)) {
			return nil, b, false
		}
		return value, rest, true
	}
	n := 0
	for n < len(rest) && tokenByte(rest[n]) {
		n++
	}
	return rest[:n], rest[n:], n > 0
}

// tokenByte reports whether c may stand in a token (RFC 9110).
func tokenByte(c byte) bool {
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || bytes.IndexByte([]byte("!#$%&'*+-.^_`|~"), c) >= 0
}

// printable reports that b has no control characters, and no byte above last.
func printable(b []byte, last byte) bool {
	for _, c := range b {
		if c < ' ' || c == 0x7f || c > last {
			return false
		}
	}
	return true
}

// foldsTo compares b with lower, which must be in lower case, and ignores the case of ASCII letters only.
func foldsTo(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

func badForm(why string) error {
	return &Error{Code: CodeInvalidForm, Message: "request body is not a form that xpyd passes on: " + why}
}

func (f *parts) badPart(why string) error { return badForm(fmt.Sprintf("part %d: %s", f.n, why)) }

func checkXargs(p *part) error {
	var s scanner
	s.reset(p.value)
	i := s.space(0)
	if p.file || len(p.value) > maxXargs || s.byteAt(i) != '{' {
		return wrongType(xargs, fmt.Sprintf("a JSON object of at most %d bytes", maxXargs))
	}
	w := s.enter(i, 0)
	for w.next(&s) {
		if name := w.name(p.value); kvAlias(name) {
			return unsupported(xargs + "." + string(name))
		}
		w.done(s.value(w.at, w.depth))
	}
	if s.failed() || s.space(w.pos) != len(p.value) {
		return wrongType(xargs, "a JSON object")
	}
	return nil
}
