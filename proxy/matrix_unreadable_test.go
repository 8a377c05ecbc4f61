package proxy_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"xpyd/proxy"
)

// unreadable is an answer of P, with its own body in it, that cannot be used.
type unreadable struct {
	name  string
	write func(w io.Writer, body []byte)
}

func unreadables() []unreadable {
	const head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	return []unreadable{
		{"50 MB", func(w io.Writer, body []byte) {
			_, _ = fmt.Fprintf(w, "%sContent-Length: %d\r\n\r\n", head, 50<<20+len(body))
			fill(w, 50<<20)
			_, _ = w.Write(body)
		}},
		{"50 MB in chunks", func(w io.Writer, body []byte) {
			_, _ = fmt.Fprintf(w, "%sTransfer-Encoding: chunked\r\n\r\n%x\r\n", head, 50<<20)
			fill(w, 50<<20)
			_, _ = fmt.Fprintf(w, "\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)
		}},
		{"a head of 1 MB", func(w io.Writer, body []byte) {
			_, _ = fmt.Fprintf(w, "%sContent-Length: %d\r\nX-Big: ", head, len(body))
			fill(w, 1<<20)
			_, _ = fmt.Fprintf(w, "\r\n\r\n%s", body)
		}},
		{"gzip", func(w io.Writer, body []byte) {
			_, _ = fmt.Fprintf(w, "%sContent-Encoding: gzip\r\nConnection: close\r\n\r\n", head)
			z := gzip.NewWriter(w)
			_, _ = z.Write(body)
			_ = z.Close()
		}},
		{"a chunk without a size", func(w io.Writer, body []byte) {
			_, _ = fmt.Fprintf(w, "%sTransfer-Encoding: chunked\r\n\r\nxyz\r\n%s\r\n0\r\n\r\n", head, body)
		}},
		{"a chunk of another size", func(w io.Writer, body []byte) {
			_, _ = fmt.Fprintf(w, "%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", head, len(body)-1, body)
		}},
		{"no HTTP", func(w io.Writer, body []byte) { _, _ = fmt.Fprintf(w, "%s", body) }},
		{"no JSON", func(w io.Writer, _ []byte) { _, _ = fmt.Fprintf(w, "%sContent-Length: 2\r\n\r\nok", head) }},
		{"two documents", func(w io.Writer, body []byte) {
			_, _ = fmt.Fprintf(w, "%sContent-Length: %d\r\n\r\n%s%s", head, 2*len(body), body, body)
		}},
	}
}

func TestUnreadablePrefillAnswers(t *testing.T) {
	together(t)
	for _, tc := range unreadables() {
		for _, another := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/another P: %v", tc.name, another), func(t *testing.T) {
				r, p := rigWithFront(t, rigOptions{config: func(c *proxy.Config) { c.DecodeOnly.Enabled = another }}, another, func(p *front, w http.ResponseWriter, q *http.Request, body []byte) bool {
					_, own := ask(p.engine, q.Method, q.URL.Path, body, q.Header)
					conn, _, err := http.NewResponseController(w).Hijack()
					if err != nil {
						panic(err)
					}
					tc.write(conn, own)
					_ = conn.Close()
					return true
				})
				c := forms(prompt, 4)[0]
				a := r.callVia(p, c, "odd")
				if another { // or decode alone
					r.expectWhole(c, a)
					return
				}
				if a.status != 502 || a.code() != "prefill_failed" {
					t.Errorf("%d %s", a.status, a.body)
				}
				if n := len(r.decode[0].Requests()); n != 0 {
					t.Errorf("decode was asked %d times", n)
				}
			})
		}
	}
}

// fill writes n bytes, and returns how many were taken.
func fill(w io.Writer, n int) (taken int) {
	block := []byte(strings.Repeat(" ", 64<<10))
	for taken < n {
		m, err := w.Write(block[:min(len(block), n-taken)])
		taken += m
		if err != nil {
			break
		}
	}
	return taken
}

func TestHugePrefillAnswerTakesLittleMemory(t *testing.T) {
	alone(t)
	const size = 50 << 20
	taken := make(chan int, 8)
	r, p := rigWithFront(t, rigOptions{config: noDecodeAlone}, false, func(_ *front, w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size)
		taken <- fill(conn, size)
		_ = conn.Close()
		return true
	})
	before := heapInUse()
	if a := r.callVia(p, forms(prompt, 4)[0], "huge"); a.status != 502 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	// limits.answer is 8 MiB. The kernel's buffers on both ends come on top.
	if n := <-taken; n > size/2 {
		t.Errorf("%d of %d bytes were read", n, size)
	}
	if grown := int64(heapInUse()) - int64(before); grown > 2<<20 {
		t.Errorf("%d bytes are still held", grown)
	}
}

// heapInUse is what is in use after a collection.
func heapInUse() uint64 {
	runtime.GC()
	runtime.GC() // a pool's buffers outlive the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
