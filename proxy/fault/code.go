package fault

import "xpyd/kvparams"

// Code is the word under which a reader finds an error in the documentation. It never changes.
type Code uint8

// Error codes of xpyd's own answers. docs/errors.md explains each.
const (
	CodeNone Code = iota // no error
	CodeInvalidHTTP
	CodeInvalidJSON
	CodeInvalidForm
	CodeInvalidType
	CodeDuplicate
	CodeUnsupported
	CodeHTTPVersion
	CodeMethod
	CodeUnknownRoute
	CodeExpectation
	CodeHeadersTooLarge
	CodeRequestTimeout
	CodeMediaType
	CodeLengthRequired
	CodeBodyTooLarge
	CodeInvalidEncoding
	CodeInvalidAPIKey
	CodeOverloaded
	CodeShuttingDown
	CodeInternal
	CodeClientGone
	CodePrefillUnavailable
	CodePrefillTimeout
	CodePrefillFailed
	CodeInvalidHandoff
	CodeHandleExpired
	CodeDecodeUnavailable
	CodeDecodeTimeout
	CodeDecodeFailed
	CodeDecodeStalled
	CodeDeadline
	CodeClientLimit
	CodeRateLimit
	CodeModelNotFound
	CodeUpstreamAuth
	CodeUpstreamRejected
	Codes
)

func (c Code) String() string {
	return [Codes]string{
		CodeInvalidHTTP:        "invalid_http",
		CodeInvalidJSON:        kvparams.CodeInvalidJSON,
		CodeInvalidForm:        kvparams.CodeInvalidForm,
		CodeInvalidType:        kvparams.CodeInvalidType,
		CodeDuplicate:          kvparams.CodeDuplicate,
		CodeUnsupported:        kvparams.CodeUnsupported,
		CodeHTTPVersion:        "http_version_not_supported",
		CodeMethod:             "method_not_allowed",
		CodeUnknownRoute:       "unknown_route",
		CodeExpectation:        "expectation_failed",
		CodeHeadersTooLarge:    "headers_too_large",
		CodeRequestTimeout:     "request_timeout",
		CodeMediaType:          "unsupported_media_type",
		CodeLengthRequired:     "length_required",
		CodeBodyTooLarge:       "body_too_large",
		CodeInvalidEncoding:    "invalid_encoding",
		CodeInvalidAPIKey:      "invalid_api_key",
		CodeOverloaded:         "overloaded",
		CodeShuttingDown:       "shutting_down",
		CodeInternal:           "internal_error",
		CodeClientGone:         "client_gone",
		CodePrefillUnavailable: "prefill_unavailable",
		CodePrefillTimeout:     "prefill_timeout",
		CodePrefillFailed:      "prefill_failed",
		CodeInvalidHandoff:     "invalid_prefill_handoff",
		CodeHandleExpired:      "handle_expired",
		CodeDecodeUnavailable:  "decode_unavailable",
		CodeDecodeTimeout:      "decode_timeout",
		CodeDecodeFailed:       "decode_failed",
		CodeDecodeStalled:      "decode_stalled",
		CodeDeadline:           "deadline",
		CodeClientLimit:        "client_limit",
		CodeRateLimit:          "rate_limit_exceeded",
		CodeModelNotFound:      "model_not_found",
		CodeUpstreamAuth:       "upstream_auth",
		CodeUpstreamRejected:   "upstream_rejected",
	}[c]
}

// OfBackends reports whether an error with this code means that no backend served.
func (c Code) OfBackends() bool {
	switch c {
	case CodePrefillUnavailable, CodePrefillTimeout, CodePrefillFailed, CodeInvalidHandoff, CodeHandleExpired,
		CodeDecodeUnavailable, CodeDecodeTimeout, CodeDecodeFailed, CodeDecodeStalled, CodeUpstreamAuth:
		return true
	}
	return false
}
