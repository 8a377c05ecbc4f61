package upstream

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// scripted is a backend that plays one raw response per accepted request.
type scripted struct {
	t    *testing.T
	ln   net.Listener
	seen chan string // each request, head and body
}

// newScripted serves requests one after the other. It writes answer(n) for request n, and closes the
// connection after it if close is true.
func newScripted(t *testing.T, answer func(n int) (raw string, close bool)) *scripted {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &scripted{t: t, ln: ln, seen: make(chan string, 64)}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		n := 0
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			br := bufio.NewReader(c)
			for {
				req, err := readRaw(br)
				if err != nil {
					break
				}
				s.seen <- req
				raw, end := answer(n)
				n++
				_, _ = io.WriteString(c, raw)
				if end {
					break
				}
			}
			_ = c.Close()
		}
	}()
	return s
}

func readRaw(br *bufio.Reader) (string, error) {
	var head strings.Builder
	length := 0
	for {
		line, err := br.ReadString('\n')
		if err != nil {
			return "", err
		}
		head.WriteString(line)
		if n, ok := strings.CutPrefix(line, "Content-Length: "); ok {
			for _, d := range strings.TrimSpace(n) {
				length = length*10 + int(d-'0')
			}
		}
		if line == "\r\n" {
			break
		}
	}
	body := make([]byte, length)
	_, err := io.ReadFull(br, body)
	return head.String() + string(body), err
}

func (s *scripted) client() *Client {
	u := New(Config{Addr: s.ln.Addr().String(), Host: "backend.test:80", DialTimeout: time.Minute, MaxIdle: time.Minute})
	s.t.Cleanup(u.Close)
	return u
}

func post(body ...string) *Request {
	r := &Request{Method: "POST", Path: "/v1/completions", ID: "id-1", Fields: []byte("User-Agent: t\r\n"), Body: [][]byte{}}
	for _, b := range body {
		r.Body = append(r.Body, []byte(b))
	}
	return r
}

func exchangeOnce(u *Client, req *Request) (x *Exchange, body string, err error) {
	x = &Exchange{}
	if err := x.Do(u, req, time.Now().Add(time.Minute), true); err != nil {
		return x, "", err
	}
	b, err := x.ReadAll(nil, 1<<20)
	return x, string(b), err
}

func TestRequestIsBuiltFromScratch(t *testing.T) {
	s := newScripted(t, func(int) (string, bool) { return "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", false })
	x, body, err := exchangeOnce(s.client(), post(`{"a":`, `1}`))
	if err != nil || body != "ok" {
		t.Fatalf("%q, %v", body, err)
	}
	x.Finish()
	want := "POST /v1/completions HTTP/1.1\r\nHost: backend.test:80\r\nAccept-Encoding: identity\r\nX-Request-Id: id-1\r\n" +
		"Content-Type: application/json\r\nContent-Length: 7\r\nUser-Agent: t\r\n\r\n{\"a\":1}"
	if got := <-s.seen; got != want {
		t.Fatalf("backend saw\n%q\nwant\n%q", got, want)
	}
}

func TestResponseFraming(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\n"
	for _, tc := range []struct {
		name, raw, body string
		fails           bool
		reusable        bool
	}{
		{name: "length", raw: head + "Content-Length: 3\r\n\r\nabc", body: "abc", reusable: true},
		{name: "chunked", raw: head + "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n", body: "abc", reusable: true},
		{name: "chunked with extension and trailer", raw: head + "Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nT: v\r\n\r\n", body: "abc", reusable: true},
		{name: "interim first", raw: "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + head + "Content-Length: 1\r\n\r\na", body: "a", reusable: true},
		{name: "no content", raw: "HTTP/1.1 204 No Content\r\n\r\n", reusable: true},
		{name: "connection close", raw: head + "Connection: close\r\nContent-Length: 1\r\n\r\na", body: "a"},
		{name: "until the connection ends", raw: head + "\r\nabc", body: "abc"},
		{name: "bytes behind the body", raw: head + "Content-Length: 1\r\n\r\nabc", body: "a"},
		{name: "ends between two chunks", raw: head + "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n", fails: true},
		{name: "ends after the zero", raw: head + "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n", fails: true},
		{name: "ends inside a chunk", raw: head + "Transfer-Encoding: chunked\r\n\r\n5\r\nab", fails: true},
		{name: "short length", raw: head + "Content-Length: 9\r\n\r\nabc", fails: true},
		{name: "bad chunk size", raw: head + "Transfer-Encoding: chunked\r\n\r\nzz\r\na\r\n0\r\n\r\n", fails: true},
		{name: "chunk without its line end", raw: head + "Transfer-Encoding: chunked\r\n\r\n1\r\nabc0\r\n\r\n", fails: true},
		{name: "bare LF in the size line", raw: head + "Transfer-Encoding: chunked\r\n\r\n1\na\r\n0\r\n\r\n", fails: true},
		{name: "endless chunk extension", raw: head + "Transfer-Encoding: chunked\r\n\r\n1;" + strings.Repeat("x", 5000) + "\r\na\r\n0\r\n\r\n", fails: true},
		{name: "no HTTP", raw: "hello\r\n\r\n", fails: true},
		{name: "empty", raw: "", fails: true},
		{name: "switching protocols", raw: "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n", fails: true},
		{name: "huge head", raw: head + "X: " + strings.Repeat("x", 70_000) + "\r\n\r\n", fails: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScripted(t, func(int) (string, bool) { return tc.raw, !tc.reusable })
			u := s.client()
			x, body, err := exchangeOnce(u, post("{}"))
			if tc.fails != (err != nil) || body != tc.body && !tc.fails {
				t.Fatalf("body %q, error %v; want %q, failure %v", body, err, tc.body, tc.fails)
			}
			x.Finish()
			u.mu.Lock()
			defer u.mu.Unlock()
			if got := len(u.idle) == 1; got != tc.reusable {
				t.Fatalf("connection kept: %v, want %v", got, tc.reusable)
			}
		})
	}
}

func TestStaleConnectionIsReplacedOnce(t *testing.T) {
	// The backend closes after each answer without saying so, as uvicorn does with an idle connection.
	s := newScripted(t, func(int) (string, bool) { return "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", true })
	u := s.client()
	for i := range 50 {
		x, body, err := exchangeOnce(u, post("{}"))
		if err != nil || body != "a" {
			t.Fatalf("request %d: %q, %v", i, body, err)
		}
		x.Finish()
	}
}

func TestUnsolicitedBytesAreNeverAnAnswer(t *testing.T) {
	s := newScripted(t, func(n int) (string, bool) {
		return "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n" + string(rune('a'+n)), n == 1
	})
	u := s.client()
	x, _, err := exchangeOnce(u, post("{}"))
	if err != nil {
		t.Fatal(err)
	}
	x.Finish()
	// The connection is poisoned: the socket holds an answer without a request.
	poisoned, client := tcpPair(t)
	c := connOn(t, u, client)
	c.since, c.reused = time.Now(), true
	_, _ = io.WriteString(poisoned, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nplanted")
	awaitReadable(t, c)
	u.put(c)
	_, body, err := exchangeOnce(u, post("{}"))
	if err != nil || body != "b" {
		t.Fatalf("answer %q, %v; want the backend's own", body, err)
	}
}

// connOn returns a connection of u over an open socket.
func connOn(t *testing.T, u *Client, tcp *net.TCPConn) *conn {
	t.Helper()
	c := &conn{in: u.scratch.Inbox(), scratch: u.scratch}
	if err := c.Attach(tcp, nil); err != nil {
		t.Fatal(err)
	}
	return c
}

func awaitReadable(t *testing.T, c *conn) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); c.Quiet(); {
		if time.Now().After(deadline) {
			t.Fatal("bytes did not arrive")
		}
		time.Sleep(time.Millisecond)
	}
}

func tcpPair(t *testing.T) (server, client *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	sc, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(); _ = sc.Close() })
	return sc.(*net.TCPConn), c.(*net.TCPConn)
}

func TestNoSecondTryForAHandle(t *testing.T) {
	n := 0
	s := newScripted(t, func(i int) (string, bool) {
		if i == 0 {
			return "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", false
		}
		return "", true // takes the request, answers nothing
	})
	u := s.client()
	x, _, err := exchangeOnce(u, post("{}"))
	if err != nil {
		t.Fatal(err)
	}
	x.Finish()
	err = x.Do(u, post("{}"), time.Now().Add(time.Minute), false)
	var ue *Error
	if !errors.As(err, &ue) || !ue.Reused || !ue.Silent {
		t.Fatalf("error %v", err)
	}
	for range 2 {
		<-s.seen
		n++
	}
	select {
	case <-s.seen:
		t.Fatal("the request was sent twice")
	default:
	}
}

func TestDialFailureIsTold(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	_ = ln.Close()
	var x Exchange
	err = x.Do(New(Config{Addr: addr, Host: addr, DialTimeout: time.Minute, MaxIdle: time.Second}), post("{}"), time.Now().Add(time.Minute), true)
	if !IsDial(err) {
		t.Fatalf("error %v, want a dial failure", err)
	}
}

func TestCutWakesAReader(t *testing.T) {
	s := newScripted(t, func(int) (string, bool) { return "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", false })
	var x Exchange
	if err := x.Do(s.client(), post("{}"), time.Now().Add(time.Minute), true); err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := x.ReadAll(nil, 100)
		read <- err
	}()
	x.Cut(3, time.Now())
	x.Progress(time.Now(), time.Hour) // must not lift the cut
	x.Cut(3, time.Now().Add(time.Hour))
	x.Cut(2, time.Now().Add(time.Hour))
	var ue *Error
	if err := <-read; !errors.As(err, &ue) || !ue.TimedOut() || ue.Cause != 3 {
		t.Fatalf("error %v, want a timeout by the cut", err)
	}
	x.Reset()
}

// The client leaves, and the engine hangs up before the leg that was cut has looked again.
func TestHangUpAfterACutIsSeen(t *testing.T) {
	for _, raw := range []string{"", "HTTP/1.1 200 OK\r\n"} {
		t.Run(fmt.Sprintf("%q first", raw), func(t *testing.T) {
			goOn := make(chan bool)
			s := newScripted(t, func(int) (string, bool) { <-goOn; return raw, true })
			var x Exchange
			done := make(chan error, 1)
			go func() { done <- x.Do(s.client(), post("{}"), time.Now().Add(time.Minute), false) }()
			<-s.seen
			x.Cut(1, time.Now())
			if err := <-done; err == nil || x.HungUp() {
				t.Fatalf("error %v, hung up %v", err, x.HungUp())
			}
			close(goOn)
			for deadline := time.Now().Add(20 * time.Second); x.conn.Quiet() && time.Now().Before(deadline); {
				time.Sleep(time.Millisecond)
			}
			if want := raw == ""; x.HungUp() != want {
				t.Errorf("hung up: %v, want %v", !want, want)
			}
			x.Drop()
		})
	}
}

func TestHalfAHeadThenSilenceIsATimeout(t *testing.T) {
	s := newScripted(t, func(int) (string, bool) { return "HTTP/1.1 200 OK\r\nConte", false })
	var x Exchange
	err := x.Do(s.client(), post("{}"), time.Now().Add(100*time.Millisecond), false)
	x.Drop()
	var ue *Error
	if !errors.As(err, &ue) || !ue.TimedOut() {
		t.Fatalf("error %v, want a timeout", err)
	}
}

func TestHalfClosedConnectionIsNotKept(t *testing.T) {
	gate := make(chan struct{})
	s := newScripted(t, func(int) (string, bool) {
		<-gate
		return "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", false
	})
	u := s.client()
	var x Exchange
	done := make(chan error, 1)
	go func() { done <- x.Do(u, post("{}"), time.Now().Add(time.Minute), true) }()
	<-s.seen
	x.Cut(1, time.Now())
	var ue *Error
	if err := <-done; !errors.As(err, &ue) || !ue.TimedOut() {
		t.Fatalf("error %v, want a timeout", err)
	}
	x.HalfClose()
	x.Uncut(1)
	x.SetDeadline(time.Now().Add(time.Minute))
	close(gate)
	if err := x.ReadHead(); err != nil {
		t.Fatal(err)
	}
	if body, err := x.ReadAll(nil, 10); err != nil || string(body) != "a" {
		t.Fatalf("%q, %v", body, err)
	}
	x.Finish()
	if len(u.idle) != 0 {
		t.Fatal("a connection that cannot send is in the pool")
	}
}

func TestPoolDropsWhatIsTooOld(t *testing.T) {
	s := newScripted(t, func(int) (string, bool) { return "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", false })
	u := s.client()
	x, _, err := exchangeOnce(u, post("{}"))
	if err != nil {
		t.Fatal(err)
	}
	x.Finish()
	u.Expire(time.Now().Add(u.maxIdle / 2))
	if len(u.idle) != 1 {
		t.Fatal("young connection dropped")
	}
	u.Expire(time.Now().Add(u.maxIdle + time.Second))
	if len(u.idle) != 0 {
		t.Fatal("old connection kept")
	}
}
