package upstream

import (
	"testing"
	"time"
)

// owing is a request whose answer is the backend's work.
func owing() *Request {
	req := post("{}")
	req.Owes = true
	return req
}

func TestDebt(t *testing.T) {
	const (
		whole  = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
		failed = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\n{}"
		stream = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	)
	for _, tc := range []struct {
		name, raw  string
		req        *Request
		owed, row  bool // once its head has come, or its time is over
		after, end bool // whether it still owes something once the exchange has ended, and with progress before that
	}{
		{name: "a whole answer", raw: whole, req: owing()},
		{name: "an error", raw: failed, req: owing()},
		{name: "a request that is no work", raw: stream, req: post("{}")},
		{name: "a stream that has only begun", raw: stream, req: owing(), owed: true, row: true, after: true},
		{name: "a stream that goes on", raw: stream, req: owing(), owed: true, row: true, end: true},
		{name: "no answer in time", raw: "", req: owing(), owed: true, row: true, after: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			u := newScripted(t, func(int) (string, bool) { return tc.raw, false }).client()
			if d := u.Debt(); d.Owed != 0 || !d.Since.IsZero() {
				t.Fatalf("at first it owes %+v", d)
			}
			deadline := time.Now().Add(time.Minute)
			if tc.raw == "" {
				deadline = time.Now().Add(20 * time.Millisecond)
			}
			var x Exchange
			before := time.Now()
			if err := x.Do(u, tc.req, deadline, true); err != nil && tc.raw != "" {
				t.Fatal(err)
			}
			if d := u.Debt(); d.Owed > 0 != tc.owed || d.Since.IsZero() == tc.row || tc.row && d.Since.Before(before) {
				t.Errorf("after the head it owes %+v", d)
			}
			if tc.end {
				x.Progress(time.Now(), time.Second)
			}
			x.Drop()
			if d := u.Debt(); d.Owed > 0 || d.Since.IsZero() == tc.after {
				t.Errorf("at the end it owes %+v", d)
			}
			u.Settle()
			if d := u.Debt(); !d.Since.IsZero() {
				t.Errorf("once settled it owes %+v", d)
			}
		})
	}
}

// Clients that give up one after the other do not hide that nothing comes. An answer ends that.
func TestDebtOutlivesThoseWhoGiveUp(t *testing.T) {
	answers := make(chan string, 4)
	t.Cleanup(func() { close(answers) })
	u := newScripted(t, func(int) (string, bool) { return <-answers, true }).client()
	var first time.Time
	for range 3 {
		var x Exchange
		if err := x.Do(u, owing(), time.Now().Add(20*time.Millisecond), true); err == nil {
			t.Fatal("an answer came")
		}
		x.Drop()
		since := u.Debt().Since
		if first.IsZero() {
			first = since
		}
		if since.IsZero() || !since.Equal(first) {
			t.Fatalf("nothing comes since %v, and then since %v", first, since)
		}
		answers <- "" // its connection ends
	}
	answers <- "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
	var x Exchange
	if err := x.Do(u, owing(), time.Now().Add(time.Minute), true); err != nil {
		t.Fatal(err)
	}
	x.Finish()
	if d := u.Debt(); !d.Since.IsZero() {
		t.Errorf("after an answer it owes %+v", d)
	}
}
