package proxy

import (
	"bytes"
	"errors"
	"strings"
)

// Lengths of a response body that are none.
const (
	lengthChunked = -1
	lengthNone    = -2 // the connection's end is the body's
)

// head is a backend's response head: what the proxy needs of it. Its slices are its own,
// until the next parse.
type head struct {
	status      int
	length      int64 // or lengthChunked, lengthNone
	close       bool  // the connection ends with this response
	contentType []byte
	retryAfter  []byte

	minor     byte // of HTTP/1.x
	keepAlive bool
}

// errNotHTTP names no byte of what was read: it may be anything.
var errNotHTTP = errors.New("not HTTP")

// parse reads the head that b begins with; n is its length, 0 while it is not whole. It
// takes nothing that two readers might take for different things: bare line feeds, folded
// lines, control characters, two lengths, a length beside chunks.
func (h *head) parse(b []byte) (n int, err error) {
	const version = "HTTP/1."
	if !strings.HasPrefix(version, string(b[:min(len(b), len(version))])) {
		return 0, errNotHTTP
	}
	*h = head{length: lengthNone, contentType: h.contentType[:0], retryAfter: h.retryAfter[:0]}
	for {
		i := bytes.IndexByte(b[n:], '\n')
		if i < 0 {
			return 0, nil
		}
		line, ok := bytes.CutSuffix(b[n:n+i], []byte{'\r'})
		if !ok {
			return 0, errNotHTTP
		}
		switch first := n == 0; {
		case first:
			ok = h.statusLine(line)
		case len(line) == 0:
			h.close = h.close || h.minor == 0 && !h.keepAlive
			return n + i + 1, nil
		default:
			ok = h.field(line)
		}
		if !ok {
			return 0, errNotHTTP
		}
		n += i + 1
	}
}

// statusLine reads "HTTP/1.1 200 OK"; the reason may be empty or missing.
func (h *head) statusLine(line []byte) bool {
	if len(line) < len("HTTP/1.1 200") || line[8] != ' ' || len(line) > 12 && line[12] != ' ' {
		return false
	}
	if h.minor = line[7] - '0'; h.minor > 1 {
		return false
	}
	for _, d := range line[9:12] {
		if d-'0' > 9 {
			return false
		}
		h.status = h.status*10 + int(d-'0')
	}
	return h.status >= 100 && h.status <= 599 && printable(line[12:])
}

func (h *head) field(line []byte) bool {
	name, value, ok := bytes.Cut(line, []byte{':'})
	if !ok || !token(name) {
		return false
	}
	value = bytes.Trim(value, " \t")
	if !printable(value) {
		return false
	}
	switch {
	case is(name, "content-length"):
		return h.contentLength(value)
	case is(name, "transfer-encoding"):
		ok := h.length == lengthNone && h.minor == 1 && is(value, "chunked")
		h.length = lengthChunked
		return ok
	case is(name, "connection"):
		for option := range bytes.SplitSeq(value, []byte{','}) {
			option = bytes.Trim(option, " \t")
			h.close = h.close || is(option, "close")
			h.keepAlive = h.keepAlive || is(option, "keep-alive")
		}
	case is(name, "content-type"):
		h.contentType = append(h.contentType[:0], value...)
	case is(name, "retry-after"):
		h.retryAfter = append(h.retryAfter[:0], value...)
	}
	return true
}

// contentLength takes one plain number, which may stand there again.
func (h *head) contentLength(value []byte) bool {
	if len(value) == 0 || len(value) > 18 {
		return false
	}
	var n int64
	for _, d := range value {
		if d-'0' > 9 {
			return false
		}
		n = n*10 + int64(d-'0')
	}
	ok := h.length == lengthNone || h.length == n
	h.length = n
	return ok
}

// is compares without regard to the case of ASCII letters; want is in small ones.
func is(b []byte, want string) bool {
	if len(b) != len(want) {
		return false
	}
	for i := range b {
		c := b[i]
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != want[i] {
			return false
		}
	}
	return true
}

// token reports whether b may be a field name.
func token(b []byte) bool {
	for _, c := range b {
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return len(b) > 0
}

// printable: no control characters but tabs.
func printable(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
