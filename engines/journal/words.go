package journal

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"os"

	"golang.org/x/sys/unix"

	"xpyd/netio/tlsconf"
)

// Words is an error of a request to an engine, as short as an operator needs it.
func Words(err error) string {
	var name *net.DNSError
	var timeout net.Error
	switch {
	case err == nil:
		return ""
	case tlsconf.IsExplained(err):
		return explanation(err)
	case errors.As(err, &name) && name.IsNotFound:
		return "no such host"
	case errors.Is(err, unix.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, unix.EPIPE):
		return "connection broken off"
	case errors.Is(err, unix.EHOSTUNREACH):
		return "no route to its host"
	case errors.Is(err, unix.ENETUNREACH):
		return "its network cannot be reached"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in time"
	}
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err
	}
	return err.Error()
}

// explanation is the text of the error in err that tlsconf has explained.
func explanation(err error) string {
	for next := errors.Unwrap(err); next != nil && tlsconf.IsExplained(next); next = errors.Unwrap(err) {
		err = next
	}
	return err.Error()
}
