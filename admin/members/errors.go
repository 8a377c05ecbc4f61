package members

import "fmt"

// Kind says whose fault an Error is.
type Kind uint8

// The kinds.
const (
	Wrong    Kind = iota // a value is not valid
	Unknown              // there is no such backend
	Conflict             // the pools do not allow the change
	Later                // a successor takes over; it may be asked soon
)

// Error is a change that was refused. Nothing has changed.
type Error struct {
	Kind Kind
	Text string
}

func (e *Error) Error() string { return e.Text }

func wrong(format string, args ...any) error { return &Error{Wrong, fmt.Sprintf(format, args...)} }

func conflict(format string, args ...any) error {
	return &Error{Conflict, fmt.Sprintf(format, args...)}
}
