// Package heads reads the fields of a client's request head, and writes those that go on to the engines.
// It refuses nothing. That is the gate's part.
package heads

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"strings"

	"github.com/valyala/fasthttp"

	"xpyd/netio"
)

// RequestID returns the client's X-Request-Id if it is 1–64 characters of [A-Za-z0-9._-], and
// otherwise a fresh one.
func RequestID(client []byte) string {
	if n := len(client); n == 0 || n > 64 {
		return RandomHex(32)
	}
	for _, b := range client {
		if !(b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '.' || b == '_' || b == '-') {
			return RandomHex(32)
		}
	}
	return string(client)
}

// RandomHex returns n hex digits. n is a multiple of 8 up to 32.
func RandomHex(n int) string {
	var raw [16]byte
	for i := 0; i < n/2; i += 4 {
		v := rand.Uint32()
		raw[i], raw[i+1], raw[i+2], raw[i+3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
	}
	return hex.EncodeToString(raw[:n/2])
}

// Forward says which fields go on to the engines. Nothing else of the client's head does.
type Forward struct {
	// Auth replaces the client's Authorization. If Auth is empty and KeepAuth is set, the client's goes
	// on.
	Auth     []byte
	KeepAuth bool
	// Traced leaves out the client's place in its trace, because the request's own span takes it.
	Traced bool
	passed []passedField
}

// NewForward makes a Forward that also has the fields named in pass.
func NewForward(auth []byte, keepAuth bool, pass []string) Forward {
	f := Forward{Auth: auth, KeepAuth: keepAuth}
	for _, name := range pass {
		f.passed = append(f.passed, passedField{name: name, lower: strings.ToLower(name)})
	}
	return f
}

// Append appends the header lines that go on.
func (f *Forward) Append(dst []byte, h *fasthttp.RequestHeader) []byte {
	switch {
	case len(f.Auth) > 0:
		dst = appendField(dst, "Authorization", f.Auth)
	case f.KeepAuth:
		dst = appendField(dst, "Authorization", h.Peek("Authorization"))
	}
	dst = appendField(dst, "User-Agent", h.UserAgent())
	dst = appendField(dst, "Anthropic-Version", h.Peek("Anthropic-Version"))
	dst = appendField(dst, "Anthropic-Beta", h.Peek("Anthropic-Beta"))
	if !f.Traced {
		dst = appendField(dst, "Traceparent", h.Peek("Traceparent"))
		dst = appendField(dst, "Tracestate", h.Peek("Tracestate"))
	}
	return f.appendPassed(dst, h)
}

// TakeAPIKey makes a key in X-Api-Key the client's Authorization, unless it sent one. Engines read no
// other field.
func TakeAPIKey(h *fasthttp.RequestHeader) {
	if key := h.Peek("X-Api-Key"); len(key) > 0 && len(h.Peek("Authorization")) == 0 {
		h.Set("Authorization", "Bearer "+string(key))
	}
}

func appendField(dst []byte, name string, value []byte) []byte {
	if len(value) == 0 {
		return dst
	}
	dst = append(append(dst, name...), ": "...)
	return append(append(dst, value...), "\r\n"...)
}

// passedField is one field of headers.pass.
type passedField struct{ name, lower string }

// appendPassed appends the fields of headers.pass that the client sent, except those that it meant
// for this connection alone. Of several lines the first counts, as in the engine's own reader. The
// gate has checked the values.
func (f *Forward) appendPassed(dst []byte, h *fasthttp.RequestHeader) []byte {
	for _, field := range f.passed {
		if v := h.Peek(field.name); len(v) > 0 && !ConnectionLists(h, field.lower) {
			dst = appendField(dst, field.name, v)
		}
	}
	return dst
}

// ConnectionLists reports whether a Connection field of the request names the token, which must be in
// lower case. The gate has passed the request. fasthttp itself knows only "Connection: close" in
// lower case, as the whole value of the last such field.
func ConnectionLists(h *fasthttp.RequestHeader, token string) bool {
	const name = "connection:"
	for line, raw := []byte(nil), h.RawHeaders(); len(raw) > 0; {
		line, raw, _ = bytes.Cut(raw, []byte("\r\n"))
		if len(line) < len(name) || !netio.EqualFold(line[:len(name)], name) {
			continue
		}
		for value := line[len(name):]; len(value) > 0; {
			var one []byte
			one, value, _ = bytes.Cut(value, []byte(","))
			if netio.EqualFold(bytes.Trim(one, " \t"), token) {
				return true
			}
		}
	}
	return false
}

// KnowExpect makes fasthttp see that a client holds its body back. fasthttp knows "100-continue" only
// in lower case, and would otherwise wait for a first byte. After this it asks the gate, which reads
// what the client wrote.
func KnowExpect(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
	if len(h.Peek(fasthttp.HeaderExpect)) > 0 {
		h.Set(fasthttp.HeaderExpect, "100-continue")
	}
	return fasthttp.RequestConfig{}
}

// CutQuery splits the target of a request. The query begins with its question mark.
func CutQuery(target []byte) (path, query []byte) {
	if i := bytes.IndexByte(target, '?'); i >= 0 {
		return target[:i], target[i:]
	}
	return target, nil
}
