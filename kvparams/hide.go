package kvparams

import "bytes"

// transfers are what an answer says of transfers between engines: the values of kv_transfer_params and
// ec_transfer_params unless null, each empty if it is absent. They hold addresses, so no client gets them.
type transfers [len(transferNames)]span

// The places of both in transfers.
const (
	transferKV = iota
	transferEC
)

var transferNames = [...]string{transferKV: "kv_transfer_params", transferEC: "ec_transfer_params"}

// transferOf returns the place of a member in transfers, or −1.
func transferOf(name []byte) int {
	switch string(name) {
	case "kv_transfer_params":
		return transferKV
	case "ec_transfer_params":
		return transferEC
	}
	return -1
}

// met notes a value, and reports whether there was one already.
func (t *transfers) met(which int, at span) (twice bool) {
	twice = t[which].end > 0
	t[which] = at
	return twice
}

func (t *transfers) any() bool { return t[transferKV].end > 0 || t[transferEC].end > 0 }

func (t transfers) inOrder() transfers {
	if t[0].at > t[1].at {
		t[0], t[1] = t[1], t[0]
	}
	return t
}

// appendHidden appends b with null in place of the values, which are spans of b[from:].
func (t transfers) appendHidden(dst, b []byte, from int) []byte {
	at := 0
	for _, v := range t.inOrder() {
		if v.end > 0 {
			dst = append(append(dst, b[at:from+v.at]...), nullValue...)
			at = from + v.end
		}
	}
	return append(dst, b[at:]...)
}

// HideTransfers returns the event from which e was read, with kv_transfer_params and ec_transfer_params
// null, in fresh memory. It joins data lines into one, because a line end in JSON is only white space.
func (e Event) HideTransfers(ev []byte) []byte {
	data, at, _ := dataOf(ev)
	out := make([]byte, 0, len(ev)+len(e.own)*len(nullValue))
	if at >= 0 {
		return e.own.appendHidden(out, ev, at)
	}
	out = e.own.appendHidden(append(append(appendName(out, ev), dataField...), ' '), data, 0)
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

// longestName is the longest form of a name of transferNames: each character as an escape of six bytes.
// Both are of one length.
const longestName = len("kv_transfer_params") * 6

// Hider makes the top-level kv_transfer_params and ec_transfer_params null in an answer that passes in
// pieces, wherever a piece ends. The length of the answer does not change, because spaces fill up the rest
// of the value. A value shorter than null contains no address and stays, and so do bytes that are not
// JSON. The zero value is ready for one answer.
type Hider struct {
	name    [longestName]byte
	length  int // of the name so far; a name longer than longestName is none of them
	depth   int // open containers
	masked  int // bytes of the value that were overwritten; 0 while no value is being hidden
	string  bool
	escaped bool // the last byte was a backslash
	member  bool // a name may begin here: after a brace or comma of the outermost object
	ours    bool // the next value is one of them
	handle  bool // and that of kv_transfer_params
	found   bool

	tells   bool // the next value is that of usage
	keeping bool // inside that
	kept    int
	usage   [mostUsage]byte
}

// mostUsage is how long a usage may be to be read, in bytes.
const mostUsage = 1024

// Usage is that of the answer, of which all has passed.
func (h *Hider) Usage() Usage {
	var s scanner
	s.reset(h.usage[:h.kept])
	u := noUsage
	if s.byteAt(0) != '{' || u.read(&s, 0, 0) != h.kept {
		return NoUsage()
	}
	return u.figures()
}

// keep keeps c if it belongs to the usage. It is called before the step of c.
func (h *Hider) keep(c byte) {
	if h.tells && !h.string && c == '{' {
		h.keeping, h.kept = true, 0
	}
	if h.keeping && h.kept < len(h.usage) {
		h.usage[h.kept] = c
		h.kept++
	}
}

// Handle reports whether there were kv_transfer_params to hide.
func (h *Hider) Handle() bool { return h.found }

// Hide overwrites in b what the client must not have, and returns how many bytes of b the caller may
// send. The rest is at most three bytes. The caller passes them again at the start of the next piece.
// It need not hold back bytes of the last piece.
func (h *Hider) Hide(b []byte) (ready int) {
	for i := 0; i < len(b); i++ {
		if h.string && !h.escaped && h.length > longestName && h.masked == 0 && !h.keeping {
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
				h.masked, h.found = 1, h.found || h.handle
			}
		}
		if h.tells || h.keeping {
			h.keep(c)
		}
		end := h.step(c)
		h.keeping = h.keeping && !(end && h.depth == 1)
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
	var h Hider
	for _, c := range b {
		if h.step(c) && h.depth == 0 {
			return true
		}
	}
	return false
}

// step follows the structure by one byte. end says that this byte ends a string or a container.
func (h *Hider) step(c byte) (end bool) {
	if h.string {
		return h.stepString(c)
	}
	switch c {
	case '"':
		h.string, h.length = true, 0
		if !h.member {
			h.length = longestName + 1
		}
	case '{', '[':
		h.depth++
		h.member, h.ours, h.tells = h.depth == 1 && c == '{', false, false
	case '}', ']':
		h.depth--
		h.member, h.ours, h.tells = false, false, false
		return true
	case ',':
		h.member, h.ours, h.tells = h.depth == 1, false, false
	case ':':
		h.member = false
	}
	return false
}

func (h *Hider) stepString(c byte) (end bool) {
	switch {
	case h.escaped:
		h.escaped = false
	case c == '\\':
		h.escaped = true
	case c == '"':
		h.string = false
		if h.ours = false; h.member && h.length <= longestName {
			name := h.name[:h.length]
			which := transferNamed(name)
			h.ours, h.handle, h.tells = which >= 0, which == transferKV, string(name) == "usage"
		}
		return true
	}
	if h.length < longestName {
		h.name[h.length] = c
	}
	h.length++
	return false
}

// transferNamed is transferOf for the content of a string, with escapes or without.
func transferNamed(raw []byte) int {
	if bytes.IndexByte(raw, '\\') < 0 {
		return transferOf(raw)
	}
	var s scanner
	s.reset(append(append([]byte{'"'}, raw...), '"'))
	if s.str(0) < 0 {
		return -1
	}
	return transferOf(unescape(nil, raw))
}
