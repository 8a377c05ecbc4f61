package journal

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"xpyd/netio/tlsconf"
)

// The journal has the last events by their numbers, in the words of the log.
func TestJournal(t *testing.T) {
	j, log := New(), bytes.Buffer{}
	to := zerolog.New(&log)
	if events, last := j.Since(0); len(events) != 0 || last != 0 {
		t.Errorf("%d events before the first, the last is %d", len(events), last)
	}
	const told = Kept + 7
	for i := range told {
		j.Tell(to.Warn(), Event{Kind: Down, Role: "prefill", Backend: "http://p", Text: "backend state", Reason: fmt.Sprint("reason ", i+1)})
	}
	for _, tc := range []struct{ since, want, first uint64 }{{0, Kept, 8}, {3, Kept, 8}, {told - 2, 2, told - 1}, {told, 0, 0}, {told + 5, 0, 0}} {
		events, last := j.Since(tc.since)
		if last != told || uint64(len(events)) != tc.want || len(events) > 0 && (events[0].Seq != tc.first || events[len(events)-1].Reason != fmt.Sprint("reason ", told)) {
			t.Errorf("since %d: %d events from %+v, the last is %d", tc.since, len(events), events[:min(1, len(events))], last)
		}
	}
	line, _, _ := strings.Cut(log.String(), "\n")
	if want := `{"level":"warn","event":"down","role":"prefill","backend":"http://p","error":"reason 1","message":"backend state"}`; line != want {
		t.Errorf("the log says %s\nwant %s", line, want)
	}
}

// What an engine failed of is said in the words that an operator knows.
func TestWords(t *testing.T) {
	get := func(err error) error {
		return fmt.Errorf("get /health: %w", tlsconf.Explain(&url.Error{Op: "Get", URL: "http://p/health", Err: err}))
	}
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	for _, tc := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{dial(unix.ECONNREFUSED), "connection refused"},
		{&net.DNSError{Err: "no such host", Name: "p", IsNotFound: true}, "no such host"},
		{dial(unix.EHOSTUNREACH), "no route to its host"},
		{io.EOF, "connection broken off"},
		{dial(unix.ECONNRESET), "connection broken off"},
		{context.DeadlineExceeded, "no answer in time"},
		{x509.UnknownAuthorityError{}, "TLS: its certificate is signed by a CA that is not known here; put that CA into backend_tls.ca"},
		{errors.New("something else"), "something else"},
	} {
		err := tc.err
		if err != nil {
			err = get(err)
		}
		if got := Words(err); got != tc.want {
			t.Errorf("%v: %q, want %q", err, got, tc.want)
		}
	}
}
