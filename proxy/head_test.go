package proxy

import (
	"bufio"
	"bytes"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"
)

func TestHeadIsReadStrictly(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for _, tc := range []struct {
		name, raw string
		want      head // zero: refused
	}{
		{"length", ok + "Content-Length: 12\r\n\r\n", head{status: 200, length: 12}},
		{"the same length twice", ok + "content-length: 12\r\nContent-Length:12\r\n\r\n", head{status: 200, length: 12}},
		{"chunked", ok + "Transfer-Encoding: Chunked\r\n\r\n", head{status: 200, length: lengthChunked}},
		{"neither", "HTTP/1.1 204\r\n\r\n", head{status: 204, length: lengthNone}},
		{"empty reason", "HTTP/1.1 503 \r\nRetry-After: 7\r\n\r\n", head{status: 503, length: lengthNone, retryAfter: []byte("7")}},
		{"type", ok + "Content-Type:\ttext/event-stream; charset=utf-8 \r\n\r\n",
			head{status: 200, length: lengthNone, contentType: []byte("text/event-stream; charset=utf-8")}},
		{"close", ok + "Connection: x , Close\r\n\r\n", head{status: 200, length: lengthNone, close: true}},
		{"1.0", "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n", head{status: 200, length: 1, close: true}},
		{"1.0 kept", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\n", head{status: 200, length: 1, keepAlive: true}},
		{"interim", "HTTP/1.1 100 Continue\r\n\r\n", head{status: 100, length: lengthNone}},

		{"two lengths", ok + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", head{}},
		{"list of lengths", ok + "Content-Length: 1, 1\r\n\r\n", head{}},
		{"signed length", ok + "Content-Length: +1\r\n\r\n", head{}},
		{"empty length", ok + "Content-Length:\r\n\r\n", head{}},
		{"huge length", ok + "Content-Length: 9999999999999999999\r\n\r\n", head{}},
		{"length and chunks", ok + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", head{}},
		{"chunks and length", ok + "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", head{}},
		{"chunked twice", ok + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", head{}},
		{"another coding", ok + "Transfer-Encoding: gzip, chunked\r\n\r\n", head{}},
		{"chunks in 1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", head{}},
		{"bare LF", "HTTP/1.1 200 OK\nContent-Length: 1\n\n", head{}},
		{"bare LF in between", ok + "A: b\nContent-Length: 1\r\n\r\n", head{}},
		{"bare CR", ok + "A: b\rContent-Length: 1\r\n\r\n", head{}},
		{"NUL", ok + "A: b\x00\r\n\r\n", head{}},
		{"folded", ok + "A: b\r\n c\r\n\r\n", head{}},
		{"space before the colon", ok + "Content-Length : 1\r\n\r\n", head{}},
		{"no colon", ok + "Content-Length\r\n\r\n", head{}},
		{"no name", ok + ": 1\r\n\r\n", head{}},
		{"HTTP/2", "HTTP/2.0 200 OK\r\n\r\n", head{}},
		{"HTTP/1.2", "HTTP/1.2 200 OK\r\n\r\n", head{}},
		{"status of two digits", "HTTP/1.1 20 OK\r\n\r\n", head{}},
		{"status of four digits", "HTTP/1.1 2000 OK\r\n\r\n", head{}},
		{"status 600", "HTTP/1.1 600 OK\r\n\r\n", head{}},
		{"status 099", "HTTP/1.1 099 OK\r\n\r\n", head{}},
		{"another protocol", "SSH-2.0-OpenSSH", head{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var h head
			n, err := h.parse([]byte(tc.raw + "body"))
			if tc.want.status == 0 {
				if err == nil {
					t.Fatalf("taken as %+v", h)
				}
				return
			}
			if err != nil || n != len(tc.raw) {
				t.Fatalf("%d of %d bytes, %v", n, len(tc.raw), err)
			}
			if h.status != tc.want.status || h.length != tc.want.length || h.close != tc.want.close ||
				!bytes.Equal(h.contentType, tc.want.contentType) || !bytes.Equal(h.retryAfter, tc.want.retryAfter) {
				t.Fatalf("%+v, want %+v", h, tc.want)
			}
			for cut := range len(tc.raw) {
				if n, err := h.parse([]byte(tc.raw[:cut])); n != 0 || err != nil {
					t.Fatalf("cut at %d: %d, %v", cut, n, err)
				}
			}
		})
	}
}

// What the proxy takes, fasthttp's reader takes for the same.
func FuzzHead(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 12\r\nContent-Type: a/b\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"))
	f.Add([]byte("HTTP/1.0 404 Not Found\r\nRetry-After: 3\r\nConnection: keep-alive\r\n\r\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var h head
		n, err := h.parse(raw)
		if err != nil || n == 0 || h.status < 200 {
			return
		}
		var ref fasthttp.ResponseHeader
		if err := ref.Read(bufio.NewReaderSize(bytes.NewReader(raw[:n]), n+16)); err != nil {
			t.Fatalf("fasthttp refuses %q: %v", raw[:n], err)
		}
		if ref.StatusCode() != h.status {
			t.Fatalf("status %d, fasthttp has %d", h.status, ref.StatusCode())
		}
		body := h.status != fasthttp.StatusNoContent && h.status != fasthttp.StatusNotModified
		if want := int64(ref.ContentLength()); body && want != h.length {
			t.Fatalf("length %d, fasthttp has %d: %q", h.length, want, raw[:n])
		}
		if strings.Count(strings.ToLower(string(raw[:n])), "connection") == 1 && body && h.length != lengthNone && ref.ConnectionClose() && !h.close {
			t.Fatalf("kept, fasthttp closes: %q", raw[:n])
		}
	})
}
