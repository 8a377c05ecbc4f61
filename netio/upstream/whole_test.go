package upstream

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"xpyd/netio"
)

// sized is an answer that announces n bytes and has those of body.
func sized(n int, body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", n, body)
}

// Long answers come whole, into a buffer that is hardly larger than they are.
func TestLongAnswers(t *testing.T) {
	for _, n := range []int{netio.InboxSize - 1, netio.InboxSize, netio.InboxSize + 1, netio.InboxSize + 2, 3 * netio.InboxSize, 400 << 10, mostTrusted, 3*mostTrusted + 1} {
		text := strings.Repeat("0123456789abcdef", n/16+1)[:n]
		u := newScripted(t, func(int) (string, bool) { return sized(n, text), false }).client()
		for _, room := range []int{0, 1, 4 << 10, 60 << 10} {
			var x Exchange
			if err := x.Do(u, post("{}"), time.Now().Add(time.Minute), true); err != nil {
				t.Fatal(err)
			}
			body, err := x.ReadAll(make([]byte, 0, room), int64(n))
			if err != nil || string(body) != text {
				t.Fatalf("%d bytes into %d: %d bytes, error %v", n, room, len(body), err)
			}
			if most := n + n/4 + 16<<10; n > netio.InboxSize && n <= mostTrusted && cap(body) > max(most, room) {
				t.Errorf("%d bytes into %d: a buffer of %d", n, room, cap(body))
			}
			x.Finish()
		}
		u.mu.Lock()
		if len(u.idle) != 1 {
			t.Errorf("%d bytes: %d connections are kept, want one for all requests", n, len(u.idle))
		}
		u.mu.Unlock()
	}
}

// A long answer that breaks off, that has bytes behind it, or that is larger than the caller takes, is what
// a short one would be.
func TestLongAnswersThatAreWrong(t *testing.T) {
	const n = 100 << 10
	text := strings.Repeat("x", n)
	for _, tc := range []struct {
		name, raw string
		closes    bool
		limit     int64
		want      error
	}{
		{"cut", sized(n, text[:n-1]), true, n, io.ErrUnexpectedEOF},
		{"cut early", sized(n, text[:20<<10]), true, n, io.ErrUnexpectedEOF},
		{"too large", sized(n, text), false, n / 2, ErrTooLarge},
		{"too large, announced only", sized(1<<40, text), true, n / 2, ErrTooLarge},
	} {
		u := newScripted(t, func(int) (string, bool) { return tc.raw, tc.closes }).client()
		var x Exchange
		if err := x.Do(u, post("{}"), time.Now().Add(time.Minute), true); err != nil {
			t.Fatal(err)
		}
		body, err := x.ReadAll(nil, tc.limit)
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: %d bytes, error %v, want %v", tc.name, len(body), err, tc.want)
		}
		if bytes.Count(body, []byte("x")) != len(body) || int64(cap(body)) > 2*mostTrusted {
			t.Errorf("%s: %d bytes of the answer, a buffer of %d", tc.name, len(body), cap(body))
		}
		x.Finish()
		if u.mu.Lock(); len(u.idle) > 0 {
			t.Errorf("%s: the connection is kept", tc.name)
		}
		u.mu.Unlock()
	}
}

// What comes behind a long answer, together with its last byte, is no answer to the next request.
func TestBytesBehindALongAnswer(t *testing.T) {
	u := newScripted(t, func(int) (string, bool) { return sized(3, "own"), true }).client()
	backend, client := tcpPair(t)
	u.put(connOn(t, u, client))
	const n = 100 << 10
	go func() {
		if _, err := readRaw(bufio.NewReader(backend)); err == nil {
			_, _ = io.WriteString(backend, sized(n, strings.Repeat("x", n-1)))
			_, _ = io.WriteString(backend, "x"+sized(7, "planted"))
		}
	}()
	x, body, err := exchangeOnce(u, post("{}"))
	if err != nil || body != strings.Repeat("x", n) {
		t.Fatalf("%d bytes, error %v", len(body), err)
	}
	x.Finish()
	if x, body, err = exchangeOnce(u, post("{}")); err != nil || body != "own" {
		t.Fatalf("the next request gets %q, error %v", body, err)
	}
	x.Finish()
	if err := client.SetDeadline(time.Time{}); err == nil {
		t.Error("the connection is still open")
	}
}
