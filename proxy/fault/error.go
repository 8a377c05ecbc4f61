package fault

import (
	"errors"
	"strconv"
	"unicode/utf8"

	"github.com/valyala/fasthttp"

	"xpyd/kvparams"
)

// Error is an answer in the error form of its API, mostly OpenAI's. Every error that a client sees is one of these, or
// the text of an engine's own error in Raw.
type Error struct {
	Status  int
	Code    Code
	Type    string
	Param   string // the field at fault, or empty
	Message string // never holds any part of a prompt, a key or a backend's text
	// RetryAfter is in seconds. 0 sends no header.
	RetryAfter int
	// NoRetry asks the official clients not to try again, because it cannot help.
	NoRetry bool
	// Raw, when not nil, is a backend's own body, which is relayed in place of ours.
	Raw         []byte
	ContentType string
	Header      [][2]string
	// Log tells the log what failed, without a byte of a request or an answer.
	Log string
	// Blameless says that no backend has failed, although this is a 5xx.
	Blameless bool
}

// BadBody is the answer to a body that kvparams refuses.
func BadBody(err error) *Error {
	var e *kvparams.Error
	if !errors.As(err, &e) {
		panic("BUG: kvparams error of another type")
	}
	return NewError(fasthttp.StatusBadRequest, parseCode(e), e.Param, e.Message)
}

// parseCode returns the code for a body that cannot be served.
func parseCode(of *kvparams.Error) Code {
	switch of.Code {
	case kvparams.CodeInvalidForm:
		return CodeInvalidForm
	case kvparams.CodeInvalidType:
		return CodeInvalidType
	case kvparams.CodeDuplicate:
		return CodeDuplicate
	case kvparams.CodeUnsupported:
		return CodeUnsupported
	}
	return CodeInvalidJSON
}

func NewError(status int, c Code, param, message string) *Error {
	return &Error{Status: status, Code: c, Type: errorType(status), Param: param, Message: message, NoRetry: final(status)}
}

// final reports whether a status says that the request itself is wrong, so that a retry cannot help.
func final(status int) bool {
	switch status {
	case fasthttp.StatusRequestTimeout, fasthttp.StatusTooManyRequests, statusClientGone:
		return false
	case fasthttp.StatusHTTPVersionNotSupported:
		return true
	}
	return status < 500
}

// Error makes an Error usable where an error is returned.
func (e *Error) Error() string { return e.Code.String() + ": " + e.Message }

func errorType(status int) string {
	switch {
	case status == fasthttp.StatusUnauthorized:
		return "authentication_error"
	case status == fasthttp.StatusNotFound:
		return "not_found_error"
	case status == fasthttp.StatusTooManyRequests:
		return "rate_limit_error"
	case status == fasthttp.StatusServiceUnavailable:
		return "service_unavailable_error"
	case status >= 500:
		return "server_error"
	}
	return "invalid_request_error"
}

// After asks the client to come back after s seconds.
func (e *Error) After(s int) *Error {
	e.RetryAfter = s
	return e
}

// Final tells the official clients that trying again cannot help.
func (e *Error) Final() *Error {
	e.NoRetry = true
	return e
}

// Why returns what the log says about the error. That is its Log, or otherwise what the client is
// told.
func (e *Error) Why() string {
	if e.Log != "" {
		return e.Log
	}
	return e.Message
}

// AppendBody appends the error as {"error":{…}}.
func (e *Error) AppendBody(dst []byte) []byte {
	dst = appendQuoted(append(dst, `{"error":{"message":`...), e.Message)
	dst = appendQuoted(append(dst, `,"type":`...), e.Type)
	if e.Param == "" {
		dst = append(dst, `,"param":null`...)
	} else {
		dst = appendQuoted(append(dst, `,"param":`...), e.Param)
	}
	dst = appendQuoted(append(dst, `,"code":`...), e.Code.String())
	return append(dst, `}}`...)
}

// appendQuoted appends s as a JSON string. A field name from the client's body may hold anything, so a byte that is no
// UTF-8 becomes the replacement character.
func appendQuoted(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch c := s[0]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < 0x20 || c == 0x7f:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			dst = utf8.AppendRune(dst, r)
		}
		s = s[n:]
	}
	return append(dst, '"')
}

// Write puts the error into the response in place of all that the response held before.
func (e *Error) Write(ctx *fasthttp.RequestCtx) {
	ctx.Response.Reset()
	ctx.SetStatusCode(e.Status)
	h := &ctx.Response.Header
	for _, f := range e.Header {
		h.Set(f[0], f[1])
	}
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(e.RetryAfter))
	}
	if e.NoRetry {
		h.Set("X-Should-Retry", "false")
	}
	if e.Raw != nil {
		h.SetContentType(e.ContentType)
		ctx.Response.AppendBody(e.Raw)
		return
	}
	h.SetContentType("application/json")
	if anthropic(ctx.Request.Header.RequestURI()) {
		ctx.Response.SetBodyRaw(e.appendAnthropic(nil))
		return
	}
	ctx.Response.SetBodyRaw(e.AppendBody(nil))
}
