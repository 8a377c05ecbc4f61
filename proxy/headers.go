package proxy

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"strings"

	"github.com/valyala/fasthttp"

	"xpyd/netio"
)

// requestID returns the client's X-Request-Id if it is 1–64 characters of [A-Za-z0-9._-], and
// otherwise a fresh one.
func requestID(client []byte) string {
	if n := len(client); n == 0 || n > 64 {
		return randomHex(32)
	}
	for _, b := range client {
		if !(b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '.' || b == '_' || b == '-') {
			return randomHex(32)
		}
	}
	return string(client)
}

// randomHex returns n hex digits. n is a multiple of 8 up to 32.
func randomHex(n int) string {
	var raw [16]byte
	for i := 0; i < n/2; i += 4 {
		v := rand.Uint32()
		raw[i], raw[i+1], raw[i+2], raw[i+3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
	}
	return hex.EncodeToString(raw[:n/2])
}

// appendFields appends the header lines that both legs carry. Nothing else of the client's head goes
// on to the engines.
func (s *Server) appendFields(dst []byte, h *fasthttp.RequestHeader) []byte {
	switch {
	case len(s.backendAuth) > 0:
		dst = appendField(dst, "Authorization", s.backendAuth)
	case !s.keys.Required():
		dst = appendField(dst, "Authorization", h.Peek("Authorization"))
	}
	dst = appendField(dst, "User-Agent", h.UserAgent())
	dst = appendField(dst, "Traceparent", h.Peek("Traceparent"))
	return s.appendPassed(appendField(dst, "Tracestate", h.Peek("Tracestate")), h)
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

func passedFields(names []string) []passedField {
	fields := make([]passedField, 0, len(names))
	for _, name := range names {
		fields = append(fields, passedField{name: name, lower: strings.ToLower(name)})
	}
	return fields
}

// appendPassed appends the fields of headers.pass that the client sent, except those that it meant
// for this connection alone. Of several lines the first counts, as in the engine's own reader. The
// gate has checked the values.
func (s *Server) appendPassed(dst []byte, h *fasthttp.RequestHeader) []byte {
	for _, f := range s.passed {
		if v := h.Peek(f.name); len(v) > 0 && !connectionLists(h, f.lower) {
			dst = appendField(dst, f.name, v)
		}
	}
	return dst
}

// connectionLists reports whether a Connection field of the request names the token, which is given
// in lower case. The gate has passed the request. fasthttp itself knows only "Connection: close" in
// lower case, as the whole value of the last such field.
func connectionLists(h *fasthttp.RequestHeader, token string) bool {
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

// knowExpect makes fasthttp see that a client holds its body back. fasthttp knows "100-continue" only
// in lower case and would otherwise wait for a first byte. It asks the gate after this, and the gate
// reads what the client wrote.
func knowExpect(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
	if len(h.Peek(fasthttp.HeaderExpect)) > 0 {
		h.Set(fasthttp.HeaderExpect, "100-continue")
	}
	return fasthttp.RequestConfig{}
}
