package upstream

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"xpyd/netio"
)

// Stage is how far an exchange with a backend had come when it failed.
type Stage uint8

// Stages of an exchange.
const (
	StageDial  Stage = iota // no connection, so the backend has seen nothing
	StageWrite              // some of the request may have arrived
	StageHead               // the request is written, and the response head is not complete
	StageBody               // inside the response body
)

// Error is a transport failure on the way to a backend.
type Error struct {
	Stage  Stage
	Silent bool  // no byte of a response was received
	Reused bool  // the connection had served a request before
	Cause  Cause // the cause of the cut that ended it; 0 if no cut did
	Err    error
}

// Error names the stage and what happened in it.
func (e *Error) Error() string {
	return [...]string{"dial", "write request", "read response head", "read response body"}[e.Stage] + ": " + e.Err.Error()
}

// Unwrap returns what happened.
func (e *Error) Unwrap() error { return e.Err }

// TimedOut reports that a deadline of the exchange or a cut ended it.
func (e *Error) TimedOut() bool { return errors.Is(e.Err, os.ErrDeadlineExceeded) }

// LongHead reports that the head of the answer is larger than xpyd reads, which is no failure of the backend.
func (e *Error) LongHead() bool { return errors.Is(e.Err, netio.ErrLongHead) }

// BrokeOff reports that the backend hung up or reset the connection after some of the request had been
// written. A deadline, a cut or an answer that is not HTTP does not count.
func (e *Error) BrokeOff() bool {
	return e.Stage != StageDial && (errors.Is(e.Err, io.EOF) || errors.Is(e.Err, io.ErrUnexpectedEOF) ||
		errors.Is(e.Err, unix.ECONNRESET) || errors.Is(e.Err, unix.EPIPE))
}

// ErrRemoved is the error of a request to a backend that a reload has removed.
var ErrRemoved = errors.New("backend was removed from the configuration")

// IsDial reports that no connection was made.
func IsDial(err error) bool {
	var ue *Error
	return errors.As(err, &ue) && ue.Stage == StageDial
}

// IsLocal reports that a dial failed because this process or host lacks a resource, which says nothing
// about the backend. If there are several addresses, each of them must have failed for this reason.
// EADDRNOTAVAIL does not count, because a host without IPv6 also returns it for an IPv6 address.
func IsLocal(err error) bool {
	var several interface{ Unwrap() []error }
	if !errors.As(err, &several) {
		return netio.OutOfResources(err)
	}
	for _, e := range several.Unwrap() {
		if !IsLocal(e) {
			return false
		}
	}
	return true
}
