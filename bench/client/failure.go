package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
)

// The codes of failures. A status other than 200 is "http_" and its number.
const (
	FailConnect  = "connect"     // no connection
	FailReset    = "reset"       // broken off before the answer's head
	FailCut      = "cut"         // broken off in the middle of the answer
	FailStall    = "stall"       // no event within the stall bound
	FailTimeout  = "timeout"     // longer than the bound of a request
	FailNoStream = "no_stream"   // 200 without a stream of events
	FailEvent    = "bad_event"   // an event that is not JSON
	FailError    = "error_event" // the server sent an error in the stream
	FailNoDone   = "no_done"     // ended without [DONE]
	FailNoToken  = "no_token"    // ended well without a token
	FailNoFinish = "no_finish"   // ended well without a finish_reason
	FailNoUsage  = "no_usage"    // ended well without counts of tokens
	FailUsage    = "bad_usage"   // impossible counts of tokens
	FailLeft     = "interrupted" // the tool itself broke the request off
)

var (
	errStall   = errors.New("no event within the stall bound")
	errTimeout = errors.New("the request took longer than its bound")
)

// wrong is the failure of an answer, with its code.
type wrong struct {
	code   string
	detail string
}

func (w *wrong) Error() string { return w.code + ": " + w.detail }

func wrongf(code, format string, args ...any) *wrong {
	return &wrong{code: code, detail: fmt.Sprintf(format, args...)}
}

// longestDetail is how much of a failure's text is kept.
const longestDetail = 300

// classify names a failure. A bound that has passed is the cause of ctx, whatever error the transport
// returns. begun says whether the answer's head had come.
func classify(ctx context.Context, err error, begun bool) (code, detail string) {
	var w *wrong
	var dial *net.OpError
	cause := context.Cause(ctx)
	detail = err.Error()
	switch {
	case errors.As(err, &w):
		code, detail = w.code, w.detail
	case errors.Is(cause, errStall):
		code, detail = FailStall, cause.Error()
	case errors.Is(cause, errTimeout):
		code, detail = FailTimeout, cause.Error()
	case cause != nil:
		code = FailLeft
	case errors.As(err, &dial) && dial.Op == "dial":
		code = FailConnect
	case begun:
		code = FailCut
	default:
		code = FailReset
	}
	if len(detail) > longestDetail {
		detail = strings.ToValidUTF8(detail[:longestDetail], "") + "…"
	}
	return code, detail
}

// badStatus is the failure of an answer that is not 200, with the beginning of its body.
func badStatus(resp *http.Response, body []byte) *wrong {
	return wrongf(fmt.Sprintf("http_%d", resp.StatusCode), "%s: %s", resp.Status, strings.TrimSpace(string(body)))
}
