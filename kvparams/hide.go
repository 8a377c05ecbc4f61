package kvparams

import "bytes"

// HideHandle is the event that e was read from with kv_transfer_params null, in fresh memory. Data
// on several lines becomes one line, because a line end in JSON is only space.
func (e Event) HideHandle(ev []byte) []byte {
	data, at := dataOf(ev)
	out := make([]byte, 0, len(ev)+len(nullValue))
	if at >= 0 {
		out = append(append(out, ev[:at+e.handle.at]...), nullValue...)
		return append(out, ev[at+e.handle.end:]...)
	}
	out = append(append(append(appendName(out, ev), dataField...), ' '), data[:e.handle.at]...)
	out = append(append(out, nullValue...), data[e.handle.end:]...)
	name := bytes.IndexByte(out, '\n') + 1
	if !bytes.HasPrefix(out, eventField) {
		name = 0
	}
	flat := bytes.ReplaceAll(out[name:], []byte{'\n'}, []byte{' '})
	return append(append(out[:name], flat...), "\n\n"...)
}

var eventField = []byte("event:")

// appendName appends the first line of ev if that is its name.
func appendName(dst, ev []byte) []byte {
	if !bytes.HasPrefix(ev, eventField) {
		return dst
	}
	return append(dst, ev[:bytes.IndexByte(ev, '\n')+1]...)
}

// handleName is the longest form of "kv_transfer_params": each character as an escape of six
// bytes.
const handleName = len("kv_transfer_params") * 6

// HandleHider makes the top-level kv_transfer_params null in an answer that passes in pieces,
// wherever these are cut. The length of the answer does not change, because spaces replace what is
// longer than null. A value shorter than null holds no address and stays, and so do bytes that are
// not JSON. The zero value is ready for one answer.
type HandleHider struct {
	name    [handleName]byte
	length  int // of the name so far; a name longer than handleName is not the one
	depth   int // open containers
	masked  int // bytes of the value that were overwritten; 0 while no value is being hidden
	string  bool
	escaped bool // the last byte was a backslash
	member  bool // a name may begin here: after a brace or comma of the outermost object
	ours    bool // the next value is that of kv_transfer_params
	found   bool
}

// Found reports whether there was a handle to hide.
func (h *HandleHider) Found() bool { return h.found }

// Hide overwrites in b what the client must not have, and returns how much of b may be sent. The
// rest is at most three bytes and comes again at the start of the next piece. Nothing of the last
// piece needs to be held back.
func (h *HandleHider) Hide(b []byte) (ready int) {
	for i := 0; i < len(b); i++ {
		if h.string && !h.escaped && h.length > handleName && h.masked == 0 {
			if i += plain(b[i:]); i == len(b) {
				break
			}
		}
		c := b[i]
		if h.ours && !h.string && h.masked == 0 && (c == '{' || c == '[' || c == '"') {
			if len(b)-i < len(nullValue) {
				return i
			}
			if h.ours = false; !closes(b[i : i+len(nullValue)-1]) {
				h.masked, h.found = 1, true
			}
		}
		end := h.step(c)
		if h.masked > 0 {
			b[i] = ' '
			if h.masked <= len(nullValue) {
				b[i] = nullValue[h.masked-1]
			}
			if h.masked++; end && h.depth == 1 {
				h.masked = 0
			}
		}
	}
	return len(b)
}

// plain is how many bytes at the start of b neither end a string nor escape anything.
func plain(b []byte) int {
	for i, c := range b {
		if c == '"' || c == '\\' {
			return i
		}
	}
	return len(b)
}

// closes reports whether a value ends within b, its first bytes.
func closes(b []byte) bool {
	var h HandleHider
	for _, c := range b {
		if h.step(c) && h.depth == 0 {
			return true
		}
	}
	return false
}

// step follows the structure by one byte. end says that this byte ends a string or a container.
func (h *HandleHider) step(c byte) (end bool) {
	if h.string {
		return h.stepString(c)
	}
	switch c {
	case '"':
		h.string, h.length = true, 0
		if !h.member {
			h.length = handleName + 1
		}
	case '{', '[':
		h.depth++
		h.member, h.ours = h.depth == 1 && c == '{', false
	case '}', ']':
		h.depth--
		h.member, h.ours = false, false
		return true
	case ',':
		h.member, h.ours = h.depth == 1, false
	case ':':
		h.member = false
	}
	return false
}

func (h *HandleHider) stepString(c byte) (end bool) {
	switch {
	case h.escaped:
		h.escaped = false
	case c == '\\':
		h.escaped = true
	case c == '"':
		h.string = false
		h.ours = h.member && h.length <= handleName && isHandle(h.name[:h.length])
		return true
	}
	if h.length < handleName {
		h.name[h.length] = c
	}
	h.length++
	return false
}

// isHandle reports whether the content of a string is kv_transfer_params, with escapes or
// without.
func isHandle(raw []byte) bool {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw) == "kv_transfer_params"
	}
	var s scanner
	s.reset(append(append([]byte{'"'}, raw...), '"'))
	return s.str(0) > 0 && string(unescape(nil, raw)) == "kv_transfer_params"
}
