package goload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// The answers of these tests: a line that says whether the connection closes, or a stream of
// lines, each with its stamp.
const (
	asking    = "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"
	wholeLine = "whole\n"
	closeLine = "close\n"
	endLine   = "end\n"
)

// lines is a Reply for them.
type lines struct {
	onEvent func(int64)
	part    []byte
	closing bool
}

func (l *lines) Reset()        { l.part, l.closing = l.part[:0], false }
func (l *lines) Closing() bool { return l.closing }

func (l *lines) Feed(b []byte) (whole bool, err error) {
	l.part = append(l.part, b...)
	for {
		line, rest, ok := bytes.Cut(l.part, []byte("\n"))
		if !ok {
			return whole, nil
		}
		switch text := string(line) + "\n"; text {
		case closeLine:
			l.closing, whole = true, true
		case wholeLine, endLine:
			whole = true
		default:
			var at int64
			if _, err := fmt.Sscanf(text, "%019d", &at); err != nil {
				return false, errors.New("wrong line " + text)
			}
			l.onEvent(at)
		}
		l.part = rest
	}
}

func clock() int64 { return time.Now().UnixNano() }

// serve starts an engine that counts the requests that it has answered, or is about to answer.
func serve(t *testing.T, answer func(n int64) (string, *Stream)) (addr string, count *atomic.Int64) {
	t.Helper()
	count = new(atomic.Int64)
	e, err := Serve(1, Behaviour{
		Length: func(head []byte) (int, error) {
			if !strings.HasPrefix(string(head), "POST / HTTP/1.1\r\n") || !strings.HasSuffix(string(head), ": 5\r\n") {
				return 0, fmt.Errorf("head %q", head)
			}
			return 5, nil
		},
		Answer: func(_ int, _ []byte, size int) ([]byte, *Stream) {
			whole, stream := answer(count.Add(1))
			return []byte(whole), stream
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e.Addrs()[0], count
}

func streamOf(events int, interval time.Duration, hold bool) *Stream {
	return &Stream{
		Head: []byte("0000000000000000001\n"), Event: []byte("0000000000000000000\n"), Tail: []byte(endLine),
		Stamp:  func(event []byte) { copy(event, fmt.Sprintf("%019d", clock())) },
		Events: events, Interval: interval, Hold: hold,
	}
}

func loadOf(addr string, conns int) Load {
	return Load{
		Addr: addr, Conns: conns, Request: []byte(asking), Clock: clock,
		NewReply: func(onEvent func(int64)) Reply { return &lines{onEvent: onEvent} },
		Warm:     10 * time.Millisecond, Window: 300 * time.Millisecond, Opening: time.Minute, Quiet: time.Minute,
	}
}

// What the clients have counted is what the engine has answered between both ends of the window,
// but for what was under way at either end: at most one answer of each connection.
func TestCountsAreThoseOfTheEngine(t *testing.T) {
	const conns, events = 5, 7
	for _, tc := range []struct {
		name   string
		answer func(n int64) (string, *Stream)
		events int
	}{
		{"whole answers", func(int64) (string, *Stream) { return wholeLine, nil }, 0},
		{"a connection for a few", func(n int64) (string, *Stream) {
			if n%10 == 0 {
				return closeLine, nil
			}
			return wholeLine, nil
		}, 0},
		{"streams", func(int64) (string, *Stream) { return "", streamOf(events-1, 0, false) }, events},
		{"paced streams", func(int64) (string, *Stream) { return "", streamOf(events-1, time.Millisecond, false) }, events},
	} {
		t.Run(tc.name, func(t *testing.T) {
			addr, count := serve(t, tc.answer)
			l := loadOf(addr, conns)
			l.Delays = true
			var seen Counts
			var answered int
			agree := func() bool {
				return seen.Requests > 0 && seen.Requests >= answered-conns && seen.Requests <= answered+conns
			}
			for range 8 { // a machine that stalls spoils a window
				var from, to int64
				var err error
				seen, err = Run(t.Context(), l, func(end bool) error {
					if end {
						to = count.Load()
					} else {
						from = count.Load()
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				if answered = int(to - from); agree() {
					break
				}
			}
			if !agree() {
				t.Errorf("counted %d requests, the engine %d", seen.Requests, answered)
			}
			if far := seen.Events - seen.Requests*tc.events; far < -conns*tc.events || far > conns*tc.events {
				t.Errorf("%d events of %d requests of %d", seen.Events, seen.Requests, tc.events)
			}
			if len(seen.Delays) != seen.Events || tc.events > 0 && len(seen.TTFTs) == 0 || len(seen.TTFTs) > seen.Requests+conns {
				t.Errorf("%d delays of %d events, %d first events of %d requests", len(seen.Delays), seen.Events, len(seen.TTFTs), seen.Requests)
			}
			if seen.Seconds < l.Window.Seconds() {
				t.Errorf("a window of %v s, want at least %v", seen.Seconds, l.Window)
			}
		})
	}
}

// Streams that hold are counted as begun at their event, and are left alone however long they wait.
func TestHeldStreamsStayOpen(t *testing.T) {
	addr, count := serve(t, func(int64) (string, *Stream) { return "", streamOf(2, time.Millisecond, true) })
	l := loadOf(addr, 100)
	l.Hold, l.Quiet, l.Window = 3, 2*time.Second, 3*time.Second
	seen, err := Run(t.Context(), l, func(bool) error { return nil })
	if err != nil || seen.Events != 0 || seen.Requests != 0 || count.Load() != 100 {
		t.Errorf("counted %+v, %d requests, error %v; want none within the window and 100 requests", seen, count.Load(), err)
	}
}

// A load always ends, and says why if it is not at the end of its window.
func TestLoadEnds(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	always := func(line string) string {
		addr, _ := serve(t, func(int64) (string, *Stream) { return line, nil })
		return addr
	}
	once, _ := serve(t, func(n int64) (string, *Stream) {
		if n == 1 {
			return wholeLine, nil
		}
		return "part of", nil
	})
	ended, _ := serve(t, func(int64) (string, *Stream) { return "", streamOf(3, 0, false) })
	for _, tc := range []struct {
		name string
		addr string
		set  func(l *Load)
		want string
	}{
		{"no byte ever", l.Addr().String(), func(l *Load) { l.Quiet = 50 * time.Millisecond }, os.ErrDeadlineExceeded.Error()},
		{"not open in time", l.Addr().String(), func(l *Load) { l.Opening = 50 * time.Millisecond }, "0 of them have an answer"},
		{"stalls in an answer", once, func(l *Load) { l.Conns, l.Quiet, l.Window = 1, 100*time.Millisecond, time.Minute }, os.ErrDeadlineExceeded.Error()},
		{"nobody listens", "127.0.0.1:1", func(*Load) {}, "connection refused"}, // no free port is below 1024, so no test gets it
		{"wrong answer", always("nonsense\n"), func(*Load) {}, "wrong line"},
		{"a held stream ends", ended, func(l *Load) { l.Hold = 1; l.Window = time.Minute }, errEnded.Error()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ld := loadOf(tc.addr, 2)
			tc.set(&ld)
			if _, err := Run(t.Context(), ld, func(bool) error { return nil }); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

// A connection that closes in mid-answer is a lost request.
func TestClosedConnectionIsAnError(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			buf := make([]byte, len(asking))
			_, _ = conn.Read(buf)
			_, _ = conn.Write([]byte("who"))
			_ = conn.Close()
		}
	}()
	ld := loadOf(l.Addr().String(), 1)
	ld.Window = time.Minute
	if _, err := Run(t.Context(), ld, func(bool) error { return nil }); !errors.Is(err, errClosed) {
		t.Errorf("error %v, want %v", err, errClosed)
	}
}

func TestCancelEndsTheLoad(t *testing.T) {
	addr, _ := serve(t, func(int64) (string, *Stream) { return wholeLine, nil })
	ld := loadOf(addr, 3)
	ld.Window = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Run(ctx, ld, func(end bool) error {
		if !end {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// Close ends streams that wait for their turn.
func TestCloseEndsEngines(t *testing.T) {
	e, err := Serve(3, Behaviour{
		Length: func([]byte) (int, error) { return 5, nil },
		Answer: func(int, []byte, int) ([]byte, *Stream) { return nil, streamOf(5, time.Hour, false) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(e.Addrs()) != 3 {
		t.Fatalf("engines at %v", e.Addrs())
	}
	conn, err := net.Dial("tcp", e.Addrs()[2])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte(asking)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	e.Close() // returns
}
