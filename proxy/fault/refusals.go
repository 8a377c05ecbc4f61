package fault

import (
	"strconv"

	"github.com/valyala/fasthttp"

	"xpyd/intake/gate"
	"xpyd/intake/upload"
)

// OfGate returns a refusal of the gate as the client gets it, or nil if the gate lets the request in.
func OfGate(r *gate.Refusal) *Error {
	if r == nil {
		return nil
	}
	err := NewError(r.Status, codeOfGate(r.Why), "", r.Message)
	if r.Why == gate.Coding {
		err.Header = [][2]string{{"Accept-Encoding", "gzip, zstd"}}
	}
	return err
}

func codeOfGate(why gate.Why) Code {
	return [gate.Whys]Code{
		gate.InvalidHTTP:     CodeInvalidHTTP,
		gate.Version:         CodeHTTPVersion,
		gate.Method:          CodeMethod,
		gate.Expectation:     CodeExpectation,
		gate.HeadersTooLarge: CodeHeadersTooLarge,
		gate.RequestTimeout:  CodeRequestTimeout,
		gate.MediaType:       CodeMediaType,
		gate.Coding:          CodeMediaType,
		gate.LengthRequired:  CodeLengthRequired,
		gate.BodyTooLarge:    CodeBodyTooLarge,
	}[why]
}

// OfUpload returns what a client is told whose body was not read to its end, or nil if it was. most is
// limits.body, in bytes.
func OfUpload(f upload.Fault, most int64) *Error {
	switch f {
	case upload.None:
		return nil
	case upload.Stopped:
		return ErrStopped()
	case upload.Late:
		return NewError(fasthttp.StatusRequestTimeout, CodeRequestTimeout, "", "request body did not arrive in time")
	case upload.Gone:
		return ErrGone()
	case upload.Miscoded:
		return NewError(fasthttp.StatusBadRequest, CodeInvalidEncoding, "", "request body is not what its Content-Encoding says, or is cut short")
	case upload.WideWindow:
		return NewError(fasthttp.StatusBadRequest, CodeInvalidEncoding, "", "request body needs a zstd window above 8 MiB; compress it at a level up to 19, without --long")
	case upload.TooLarge:
		return ErrBodyTooLarge(most)
	case upload.Spent:
		return NewError(fasthttp.StatusServiceUnavailable, CodeOverloaded, "", "too many request bytes are being held; try again").After(1)
	case upload.OverShare:
		return NewError(fasthttp.StatusTooManyRequests, CodeClientLimit, "", "the request bodies of this client hold limits.client_share of limits.body_budget already; try again").After(1)
	}
	return NewError(fasthttp.StatusBadRequest, CodeInvalidHTTP, "", "malformed request body framing")
}

// ErrBodyTooLarge refuses a body beyond limits.body, in bytes.
func ErrBodyTooLarge(most int64) *Error {
	return NewError(fasthttp.StatusRequestEntityTooLarge, CodeBodyTooLarge, "", "request body is larger than "+strconv.FormatInt(most, 10)+" bytes")
}

// ErrTooLargeToHold refuses an answer that can be neither held nor passed on, because only the close of
// its connection would show where it ends. spent: limits.answer_budget has no room for it. No backend has failed.
func ErrTooLargeToHold(spent bool) *Error {
	e := NewError(fasthttp.StatusBadGateway, CodeDecodeFailed, "", "decode backend sent an answer larger than limits.answer without a length").Final()
	if spent {
		e = NewError(fasthttp.StatusServiceUnavailable, CodeOverloaded, "", "too many answer bytes are being held; try again").After(1)
	}
	e.Blameless = true
	return e
}
