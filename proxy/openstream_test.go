//go:build !race

package proxy_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"xpyd/router"
)

// An open stream with events holds at most this much of heap and stacks, in bytes. Of its 12 KiB of read
// buffer about half is never touched, so the resident memory of a stream is 3 to 4 KiB less. The goal of
// docs/results/performance.md is 28 KiB. Stacks come in pieces of 32 KiB, so two runs differ by 250 bytes a stream.
const openStream = 32 << 10

// A stream that is open holds no more than it needs. Clients and engines are descriptors without any memory
// of this process, so what grows is the proxy's. Under the race detector stacks are larger.
func TestOpenStreamMemory(t *testing.T) {
	alone(t)
	const streams = 300
	d := &bareDecode{opened: make(chan int, 1)}
	prefill, decode := newStub(t, answerHandle), newStub(t, d.open)
	r := newRig(t, rigOptions{router: func(c *router.Config) {
		prefill.asPrefill(c)
		decode.asDecode(c)
	}})
	var fds []int
	t.Cleanup(func() { closeAll(t, fds) })
	open := func(n int) (clients, engines []int) {
		for range n {
			client, engine := openBare(t, strings.TrimPrefix(r.url, "http://"), d.opened)
			clients, engines, fds = append(clients, client), append(engines, engine), append(fds, client, engine)
		}
		return clients, engines
	}
	open(10) // what the first streams allocate for all
	before := held()
	clients, engines := open(streams)
	for range 3 {
		for i := range clients {
			if _, err := unix.Write(engines[i], []byte(bareEvent)); err != nil {
				t.Fatal(err)
			}
		}
		for i := range clients {
			r.await("an event", func() bool { return readEvent(t, clients[i]) })
		}
	}
	each := (held() - before) / streams
	t.Logf("%d bytes a stream", each)
	if each > openStream {
		t.Errorf("an open stream holds %d bytes of heap and stacks, at most %d are expected", each, openStream)
	}
}

// held is the memory of objects and of stacks that live.
func held() int {
	var m runtime.MemStats
	for range 3 { // pools keep what they have for two collections
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}

const (
	barePrompt = `{"model":"sim","prompt":"a word and another word ","max_tokens":400,"stream":true}`
	bareChunk  = `data: {"id":"cmpl-1","object":"text_completion","created":1,"model":"sim","choices":[{"index":0,"text":"a","logprobs":null,"finish_reason":null}]}` + "\n\n"
	bareEvent  = "94\r\n" + bareChunk + "\r\n"
)

func answerHandle(w http.ResponseWriter, req *http.Request) {
	_, _ = io.Copy(io.Discard, req.Body)
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"id":"cmpl-1","object":"text_completion","created":1,"model":"sim","choices":[{"index":0,"text":"a","logprobs":null,"finish_reason":"length"}],"usage":{"prompt_tokens":9,"total_tokens":10,"completion_tokens":1},"kv_transfer_params":`+stubHandle+`}`)
}

// bareDecode answers with the beginning of a stream, and leaves the rest to whoever has the descriptor.
type bareDecode struct{ opened chan int }

func (d *bareDecode) open(w http.ResponseWriter, req *http.Request) {
	_, _ = io.Copy(io.Discard, req.Body)
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic("BUG: no connection of its own: " + err.Error())
	}
	_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"+bareEvent)
	d.opened <- bare(conn)
}

// bare is a connection's descriptor, which nothing of the runtime knows.
func bare(conn net.Conn) int {
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		panic("BUG: no descriptor: " + err.Error())
	}
	own := -1
	if ctlErr := raw.Control(func(fd uintptr) { own, err = unix.Dup(int(fd)) }); ctlErr != nil || err != nil {
		panic("BUG: not duplicated: " + errors.Join(ctlErr, err).Error())
	}
	_ = conn.Close()
	return own
}

// openBare opens a stream, and returns after its first event.
func openBare(t *testing.T, addr string, opened <-chan int) (client, engine int) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.WriteString(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 82\r\n\r\n"+barePrompt)
	if err != nil {
		t.Fatal(err)
	}
	var got []byte
	for buf := make([]byte, 4096); !bytes.Contains(got, []byte("\n\n")); {
		n, err := conn.Read(buf)
		if got = append(got, buf[:n]...); err != nil || !bytes.HasPrefix(got, []byte("HTTP/1.1 200")) {
			t.Fatalf("%q, %v", got, err)
		}
	}
	return bare(conn), <-opened
}

// readEvent reports whether an event has come, and takes it.
func readEvent(t *testing.T, fd int) bool {
	t.Helper()
	var buf [1024]byte
	n, err := unix.Read(fd, buf[:])
	if err != nil && !errors.Is(err, unix.EAGAIN) || err == nil && n == 0 {
		t.Fatalf("%d bytes, %v", n, err)
	}
	return n > 0
}

func closeAll(t *testing.T, fds []int) {
	t.Helper()
	for _, fd := range fds {
		if err := unix.Close(fd); err != nil {
			t.Error(err)
		}
	}
}
