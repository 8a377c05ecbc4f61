package sim

import (
	"fmt"
	"net/http"
)

// apiError is an error answer in OpenAI's form.
type apiError struct {
	status  int
	message string
	kind    string // the "type" member
	param   string // "" is null
}

// appendJSON appends the body that vLLM writes for e.
func (e *apiError) appendJSON(b []byte) []byte {
	b = appendString(append(b, `{"error":{"message":`...), e.message)
	b = appendString(append(b, `,"type":`...), e.kind)
	b = append(b, `,"param":`...)
	if e.param == "" {
		b = append(b, "null"...)
	} else {
		b = appendString(b, e.param)
	}
	b = appendInt(append(b, `,"code":`...), e.status)
	return append(b, "}}"...)
}

// streamError is the event of an error in a stream. It has 500, and the spaces of another
// serialiser.
const streamError = `{"error": {"message": "Internal server error", "type": "InternalServerError", "param": null, "code": 500}}`

func internalError() *apiError {
	return &apiError{status: http.StatusInternalServerError, message: "Internal server error", kind: "InternalServerError"}
}

// modelError is a failure of the request model (pydantic's). Nothing has seen the request's handle.
func modelError(kind, field, message, input string) *apiError {
	loc := "body." + field
	return &apiError{
		status: http.StatusBadRequest, kind: "Bad Request", param: loc,
		message: fmt.Sprintf("1 validation error:\n  {'type': '%s', 'loc': '%s', 'msg': '%s', 'input': %s}", kind, loc, message, input),
	}
}

func invalidJSON(offset int64, cause string) *apiError {
	loc := fmt.Sprintf("body.%d", offset)
	return &apiError{
		status: http.StatusBadRequest, kind: "Bad Request", param: loc,
		message: fmt.Sprintf("1 validation error:\n  {'type': 'json_invalid', 'loc': '%s', 'msg': 'JSON decode error', "+
			"'input': '<dict of 0 items>', 'ctx': {'error': '%s'}}", loc, cause),
	}
}

// badRequest is a 400 from the handler.
func badRequest(param, format string, args ...any) *apiError {
	return &apiError{
		status: http.StatusBadRequest, kind: "BadRequestError", param: param,
		message: fmt.Sprintf(format, args...),
	}
}

// badParameter is a 400 whose message ends with the parameter and its value.
func badParameter(param string, value any, format string, args ...any) *apiError {
	return badRequest(param, "%s (parameter=%s, value=%v)", fmt.Sprintf(format, args...), param, value)
}

func unknownModel(model, served string) *apiError {
	return &apiError{
		status: http.StatusNotFound, kind: "NotFoundError", param: "model",
		message: fmt.Sprintf("The model `%s` does not exist. Valid aliases: %s.", model, served),
	}
}
