package proxy

import (
	"errors"
	"strconv"

	"github.com/valyala/fasthttp"

	"xpyd/kvparams"
)

// apiError is an answer in OpenAI's error form. Every error that a client sees is one of these, or
// the text of an engine's own error in Raw.
type apiError struct {
	Status  int
	Code    code
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
	// cause tells the log what failed, without a byte of a request or an answer.
	cause string
	// blameless says that no backend has failed, although this is a 5xx.
	blameless bool
}

// code is the word under which a reader finds an error in the documentation. It never changes.
type code uint8

// Error codes of xpyd's own answers. docs/errors.md explains each.
const (
	codeNone code = iota // no error
	codeInvalidHTTP
	codeInvalidJSON
	codeInvalidType
	codeDuplicate
	codeUnsupported
	codeHTTPVersion
	codeMethod
	codeUnknownRoute
	codeExpectation
	codeHeadersTooLarge
	codeRequestTimeout
	codeMediaType
	codeLengthRequired
	codeBodyTooLarge
	codeInvalidAPIKey
	codeOverloaded
	codeShuttingDown
	codeInternal
	codeClientGone
	codePrefillUnavailable
	codePrefillTimeout
	codePrefillFailed
	codeInvalidHandoff
	codeHandleExpired
	codeDecodeUnavailable
	codeDecodeTimeout
	codeDecodeFailed
	codeDecodeStalled
	codeDeadline
	codeClientLimit
	codeUpstreamAuth
	codeUpstreamRejected
	codes
)

func (c code) String() string {
	return [codes]string{
		codeInvalidHTTP:        "invalid_http",
		codeInvalidJSON:        kvparams.CodeInvalidJSON,
		codeInvalidType:        kvparams.CodeInvalidType,
		codeDuplicate:          kvparams.CodeDuplicate,
		codeUnsupported:        kvparams.CodeUnsupported,
		codeHTTPVersion:        "http_version_not_supported",
		codeMethod:             "method_not_allowed",
		codeUnknownRoute:       "unknown_route",
		codeExpectation:        "expectation_failed",
		codeHeadersTooLarge:    "headers_too_large",
		codeRequestTimeout:     "request_timeout",
		codeMediaType:          "unsupported_media_type",
		codeLengthRequired:     "length_required",
		codeBodyTooLarge:       "body_too_large",
		codeInvalidAPIKey:      "invalid_api_key",
		codeOverloaded:         "overloaded",
		codeShuttingDown:       "shutting_down",
		codeInternal:           "internal_error",
		codeClientGone:         "client_gone",
		codePrefillUnavailable: "prefill_unavailable",
		codePrefillTimeout:     "prefill_timeout",
		codePrefillFailed:      "prefill_failed",
		codeInvalidHandoff:     "invalid_prefill_handoff",
		codeHandleExpired:      "handle_expired",
		codeDecodeUnavailable:  "decode_unavailable",
		codeDecodeTimeout:      "decode_timeout",
		codeDecodeFailed:       "decode_failed",
		codeDecodeStalled:      "decode_stalled",
		codeDeadline:           "deadline",
		codeClientLimit:        "client_limit",
		codeUpstreamAuth:       "upstream_auth",
		codeUpstreamRejected:   "upstream_rejected",
	}[c]
}

// ErrorCodes lists every code that xpyd_request_errors_total may carry.
func ErrorCodes() []string { return names(codes)[codeNone+1:] }

// badBody is the answer to a body that kvparams refuses.
func badBody(err error) *apiError {
	var e *kvparams.Error
	if !errors.As(err, &e) {
		panic("BUG: kvparams error of another type")
	}
	return newError(fasthttp.StatusBadRequest, parseCode(e), e.Param, e.Message).noRetry()
}

// parseCode returns the code for a body that cannot be served.
func parseCode(of *kvparams.Error) code {
	switch of.Code {
	case kvparams.CodeInvalidType:
		return codeInvalidType
	case kvparams.CodeDuplicate:
		return codeDuplicate
	case kvparams.CodeUnsupported:
		return codeUnsupported
	}
	return codeInvalidJSON
}

func newError(status int, c code, param, message string) *apiError {
	return &apiError{Status: status, Code: c, Type: errorType(status), Param: param, Message: message}
}

// Error makes an apiError usable where an error is returned.
func (e *apiError) Error() string { return e.Code.String() + ": " + e.Message }

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

// retryAfter asks the client to come back after s seconds.
func (e *apiError) retryAfter(s int) *apiError {
	e.RetryAfter = s
	return e
}

// noRetry tells the official clients that trying again cannot help.
func (e *apiError) noRetry() *apiError {
	e.NoRetry = true
	return e
}

// why returns what the log says about the error. That is its cause, or otherwise what the client is
// told.
func (e *apiError) why() string {
	if e.cause != "" {
		return e.cause
	}
	return e.Message
}

// appendBody appends the error as {"error":{…}}.
func (e *apiError) appendBody(dst []byte) []byte {
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

// appendEvent appends the error as the last event of a stream that breaks off.
func (e *apiError) appendEvent(dst []byte) []byte {
	return append(e.appendBody(append(dst, "data: "...)), "\n\n"...)
}

// appendQuoted appends s as a JSON string. Messages are xpyd's own ASCII, but a field name from the
// client's body may hold anything.
func appendQuoted(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < 0x20 || c >= 0x7f:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

// write puts the error into the response in place of all that the response held before.
func (e *apiError) write(ctx *fasthttp.RequestCtx) {
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
	ctx.Response.SetBodyRaw(e.appendBody(nil))
}

// seconds reads a Retry-After of whole seconds, at most 120. 0 means that there is none to use.
func seconds(v []byte) int {
	n, err := fasthttp.ParseUint(v)
	if err != nil || n < 1 {
		return 0
	}
	return min(n, 120)
}
