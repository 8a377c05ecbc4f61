package upstream

import (
	"bytes"
	"errors"
	"strings"

	"github.com/valyala/fasthttp"

	"xpyd/netio"
)

// These values of Length do not count bytes.
const (
	LengthChunked = -1
	LengthNone    = -2 // the body ends with the connection
)

// Head is what the proxy needs from a backend's response head. It owns its slices, which are valid
// until the next head is read.
type Head struct {
	Status      int
	Length      int64 // the body's length in bytes, or LengthChunked, or LengthNone
	ContentType []byte
	Coding      []byte // Content-Encoding: xpyd asks for none, but what is in front of an engine may not care
	RetryAfter  []byte

	close     bool // the connection ends with this response
	minor     byte // of HTTP/1.x
	keepAlive bool
}

// Wait is the Retry-After in whole seconds, at most 120. 0 means that there is none to use.
func (h *Head) Wait() int {
	n, err := fasthttp.ParseUint(h.RetryAfter)
	if err != nil || n < 1 {
		return 0
	}
	return min(n, 120)
}

// media is the Content-Type without its parameters.
func (h *Head) media() []byte {
	media, _, _ := bytes.Cut(h.ContentType, []byte{';'})
	return bytes.TrimRight(media, " \t")
}

// errNotHTTP shows no byte of what was read, because it may be anything.
var errNotHTTP = errors.New("not HTTP")

// parse reads the head that b begins with. n is its length, or 0 while it is not whole. parse takes
// nothing that two readers might understand differently: bare line feeds, folded lines, control
// characters, two lengths, or a length beside chunks.
func (h *Head) parse(b []byte) (n int, err error) {
	const version = "HTTP/1."
	if !strings.HasPrefix(version, string(b[:min(len(b), len(version))])) {
		return 0, errNotHTTP
	}
	*h = Head{Length: LengthNone, ContentType: h.ContentType[:0], Coding: h.Coding[:0], RetryAfter: h.RetryAfter[:0]}
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

// statusLine reads "HTTP/1.1 200 OK". The reason may be empty or missing.
func (h *Head) statusLine(line []byte) bool {
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
		h.Status = h.Status*10 + int(d-'0')
	}
	return h.Status >= 100 && h.Status <= 599 && netio.Printable(line[12:])
}

func (h *Head) field(line []byte) bool {
	name, value, ok := netio.SplitField(line)
	if !ok {
		return false
	}
	switch {
	case netio.EqualFold(name, "content-length"):
		return h.contentLength(value)
	case netio.EqualFold(name, "transfer-encoding"):
		ok := h.Length == LengthNone && h.minor == 1 && netio.EqualFold(value, "chunked")
		h.Length = LengthChunked
		return ok
	case netio.EqualFold(name, "connection"):
		for option := range bytes.SplitSeq(value, []byte{','}) {
			option = bytes.Trim(option, " \t")
			h.close = h.close || netio.EqualFold(option, "close")
			h.keepAlive = h.keepAlive || netio.EqualFold(option, "keep-alive")
		}
	case netio.EqualFold(name, "content-type"):
		h.ContentType = append(h.ContentType[:0], value...)
	case netio.EqualFold(name, "content-encoding"):
		h.Coding = append(h.Coding[:0], value...)
	case netio.EqualFold(name, "retry-after"):
		h.RetryAfter = append(h.RetryAfter[:0], value...)
	}
	return true
}

// contentLength takes one plain number. The same number may be repeated.
func (h *Head) contentLength(value []byte) bool {
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
	ok := h.Length == LengthNone || h.Length == n
	h.Length = n
	return ok
}
