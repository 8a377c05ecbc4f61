package proxy_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"xpyd/sim"
)

// front is in front of an engine and may answer a completion in its place. Everything else goes
// through. It notes the request ids of completions, but not of releases.
type front struct {
	engine string // base URL
	server *httptest.Server

	mu    sync.Mutex
	asked []string
}

// newFront starts one. instead returns true if it has answered. body is the body of the request.
func newFront(t *testing.T, engine string, instead func(f *front, w http.ResponseWriter, q *http.Request, body []byte) bool) *front {
	t.Helper()
	f := &front{engine: engine}
	f.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		id := q.Header.Get("X-Request-Id")
		if q.Method == http.MethodPost && !strings.HasSuffix(id, "-release") {
			f.mu.Lock()
			f.asked = append(f.asked, id)
			f.mu.Unlock()
			if instead(f, w, q, body) {
				return
			}
		}
		f.pass(w, q, body)
	}))
	t.Cleanup(f.server.Close)
	return f
}

// pass lets the engine answer. It reads the answer whole, because a front is for legs that are not
// streamed.
func (f *front) pass(w http.ResponseWriter, q *http.Request, body []byte) {
	status, answer := ask(f.engine, q.Method, q.URL.Path, body, q.Header)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(answer)
}

// times is how many requests the engine got for the client's request id.
func (f *front) times(id string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.asked {
		if strings.HasPrefix(a, id+"-") {
			n++
		}
	}
	return n
}

// ask is one request to an engine, past the proxy.
func ask(engine, method, path string, body []byte, header http.Header) (status int, answer []byte) {
	q, err := http.NewRequest(method, engine+path, bytes.NewReader(body))
	if err != nil {
		panic(err)
	}
	q.Header = header.Clone()
	q.Close = true // leaves nothing that a test would have to end
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		return http.StatusBadGateway, nil
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err = io.ReadAll(resp.Body)
	if err != nil {
		return http.StatusBadGateway, nil
	}
	return resp.StatusCode, answer
}

// breakOff writes raw in place of a response and then closes the connection.
func breakOff(w http.ResponseWriter, raw string) {
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	_, _ = buf.WriteString(raw)
	_ = buf.Flush()
	_ = conn.Close()
}

// legsOf are the requests that an engine got for the client's request id, without releases.
func legsOf(e *sim.Engine, id string) []sim.Record {
	var out []sim.Record
	for _, rec := range e.Requests() {
		if strings.HasPrefix(rec.RequestID, id+"-") && !strings.HasSuffix(rec.RequestID, "-release") {
			out = append(out, rec)
		}
	}
	return out
}

// legOutcome is the count of a backend's legs with that outcome.
func (r *rig) legOutcome(url, leg, outcome string) float64 {
	r.t.Helper()
	return r.metric(fmt.Sprintf(`xpyd_leg_requests_total{backend=%q,leg=%q,outcome=%q}`, url, leg, outcome))
}

// blackhole is the address of a socket whose queue of connections is full: the kernel
// drops each SYN that comes, as a firewall or a host without power does.
func blackhole(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil { // room for one
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	occupy(t, name)
	return fmt.Sprintf("127.0.0.1:%d", name.(*unix.SockaddrInet4).Port)
}

// occupy takes every place in a socket's queue of connections.
func occupy(t *testing.T, name unix.Sockaddr) {
	t.Helper()
	for range 8 {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		_ = unix.Connect(fd, name) // in progress
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		if n, _ := unix.Poll(fds, 100); n == 0 {
			return // this one waits for an answer to its SYN
		}
	}
	t.Fatal("the queue does not fill")
}
