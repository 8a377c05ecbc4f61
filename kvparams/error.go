package kvparams

import "fmt"

// Codes of Error and AnswerError.
const (
	CodeInvalidJSON = "invalid_json"
	CodeInvalidForm = "invalid_form"
	CodeInvalidType = "invalid_type"
	CodeDuplicate   = "duplicate_field"
	CodeUnsupported = "unsupported_parameter"
	CodeHandoff     = "invalid_handoff"
	CodeIncomplete  = "incomplete_answer"
	CodeEnded       = "ended_prefill"
)

// Error is a fault of the client. xpyd answers it with status 400.
type Error struct {
	Code    string // CodeInvalidJSON, CodeInvalidForm, CodeInvalidType, CodeDuplicate or CodeUnsupported
	Param   string // path of the field, "vllm_xargs.kv_transfer_params"; empty if no field is at fault
	Message string // names the field and the fix, and never contains a value of the body
}

func (e *Error) Error() string { return e.Message }

// AnswerError is a fault of a backend whose answer cannot be used.
type AnswerError struct {
	Code    string // CodeInvalidJSON, CodeHandoff, CodeIncomplete or CodeEnded
	Member  string // path of the member, "kv_transfer_params.remote_port"; empty if no member is at fault
	Message string // never contains a value of the body
}

func (e *AnswerError) Error() string { return e.Message }

func (s *scanner) requestError() error {
	return &Error{Code: CodeInvalidJSON,
		Message: fmt.Sprintf("request body is not valid JSON: %s at byte %d; send one UTF-8 JSON object", s.why, s.at)}
}

func (s *scanner) answerError() error {
	return &AnswerError{Code: CodeInvalidJSON,
		Message: fmt.Sprintf("backend answer is not valid JSON: %s at byte %d", s.why, s.at)}
}

func duplicate(path string) error {
	return &Error{Code: CodeDuplicate, Param: path,
		Message: fmt.Sprintf("field %q stands twice in the request body; send it once", path)}
}

func unsupported(path string) error {
	return &Error{Code: CodeUnsupported, Param: path,
		Message: fmt.Sprintf("field %q is not accepted from clients; remove it", path)}
}

// background refuses background responses. A client could never fetch one, because only the engine that
// made it knows it.
func background() error {
	return &Error{Code: CodeUnsupported, Param: "background",
		Message: "background responses are not served, because no later request would find the engine that made one; send background false, or stream"}
}

func wrongType(path, want string) error {
	return &Error{Code: CodeInvalidType, Param: path,
		Message: fmt.Sprintf("field %q must be %s", path, want)}
}

func badHandoff(member, want string) error {
	return &AnswerError{Code: CodeHandoff, Member: member,
		Message: fmt.Sprintf("prefill answer: member %q must be %s", member, want)}
}
