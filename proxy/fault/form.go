package fault

import (
	"bytes"
	"strconv"

	"github.com/valyala/fasthttp"

	"xpyd/kvparams"
)

// This file has the forms in which the clients of other APIs than OpenAI's first two expect an error.

// anthropic reports whether a request target is of Anthropic's API. A path that xpyd does not serve there
// is answered in that API's form too.
func anthropic(target []byte) bool {
	rest, ok := bytes.CutPrefix(target, []byte("/v1/messages"))
	return ok && (len(rest) == 0 || rest[0] == '/' || rest[0] == '?')
}

// anthropicType is the type that Anthropic's clients know for a status.
func anthropicType(status int) string {
	switch status {
	case fasthttp.StatusUnauthorized:
		return "authentication_error"
	case fasthttp.StatusForbidden:
		return "permission_error"
	case fasthttp.StatusNotFound:
		return "not_found_error"
	case fasthttp.StatusRequestEntityTooLarge:
		return "request_too_large"
	case fasthttp.StatusTooManyRequests:
		return "rate_limit_error"
	case fasthttp.StatusServiceUnavailable:
		return "overloaded_error"
	case fasthttp.StatusGatewayTimeout:
		return "timeout_error"
	}
	if status >= 500 {
		return "api_error"
	}
	return "invalid_request_error"
}

// appendAnthropic appends the error as {"type":"error","error":{…}}. The code is xpyd's own addition.
func (e *Error) appendAnthropic(dst []byte) []byte {
	dst = append(append(dst, `{"type":"error","error":{"type":"`...), anthropicType(e.Status)...)
	dst = appendQuoted(append(dst, `","message":`...), e.Message)
	dst = appendQuoted(append(dst, `,"code":`...), e.Code.String())
	return append(dst, `}}`...)
}

// AppendEvent appends the error as the last event of a stream of api that breaks off, after number events.
func (e *Error) AppendEvent(dst []byte, api kvparams.API, number int) []byte {
	switch api {
	case kvparams.Messages:
		dst = e.appendAnthropic(append(dst, "event: error\ndata: "...))
	case kvparams.Responses:
		dst = e.appendResponse(append(dst, "event: error\ndata: "...), number)
	default:
		dst = e.AppendBody(append(dst, "data: "...))
	}
	return append(dst, "\n\n"...)
}

// appendResponse appends the error as an event of the responses API. OpenAI's clients raise an exception
// for the member "error" only, which is not in the API's own description.
func (e *Error) appendResponse(dst []byte, number int) []byte {
	dst = appendQuoted(append(dst, `{"type":"error","code":`...), e.Code.String())
	dst = appendQuoted(append(dst, `,"message":`...), e.Message)
	dst = strconv.AppendInt(append(dst, `,"param":null,"sequence_number":`...), int64(number), 10)
	body := e.AppendBody(nil)
	return append(append(dst, ','), body[1:]...)
}
