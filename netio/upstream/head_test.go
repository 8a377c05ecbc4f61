package upstream

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
		want      Head // zero if refused
	}{
		{"length", ok + "Content-Length: 12\r\n\r\n", Head{Status: 200, Length: 12}},
		{"the same length twice", ok + "content-Length: 12\r\nContent-Length:12\r\n\r\n", Head{Status: 200, Length: 12}},
		{"chunked", ok + "Transfer-Encoding: Chunked\r\n\r\n", Head{Status: 200, Length: LengthChunked}},
		{"neither", "HTTP/1.1 204\r\n\r\n", Head{Status: 204, Length: LengthNone}},
		{"empty reason", "HTTP/1.1 503 \r\nRetry-After: 7\r\n\r\n", Head{Status: 503, Length: LengthNone, RetryAfter: []byte("7")}},
		{"type", ok + "Content-Type:\ttext/event-stream; charset=utf-8 \r\n\r\n",
			Head{Status: 200, Length: LengthNone, ContentType: []byte("text/event-stream; charset=utf-8")}},
		{"coding", ok + "Content-encoding: gzip\r\n\r\n", Head{Status: 200, Length: LengthNone, Coding: []byte("gzip")}},
		{"close", ok + "Connection: x , Close\r\n\r\n", Head{Status: 200, Length: LengthNone, close: true}},
		{"1.0", "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n", Head{Status: 200, Length: 1, close: true}},
		{"1.0 kept", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\n", Head{Status: 200, Length: 1, keepAlive: true}},
		{"interim", "HTTP/1.1 100 Continue\r\n\r\n", Head{Status: 100, Length: LengthNone}},

		{"two lengths", ok + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", Head{}},
		{"list of lengths", ok + "Content-Length: 1, 1\r\n\r\n", Head{}},
		{"signed length", ok + "Content-Length: +1\r\n\r\n", Head{}},
		{"empty length", ok + "Content-Length:\r\n\r\n", Head{}},
		{"huge length", ok + "Content-Length: 9999999999999999999\r\n\r\n", Head{}},
		{"length and chunks", ok + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", Head{}},
		{"chunks and length", ok + "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", Head{}},
		{"chunked twice", ok + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", Head{}},
		{"another coding", ok + "Transfer-Encoding: gzip, chunked\r\n\r\n", Head{}},
		{"chunks in 1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Head{}},
		{"bare LF", "HTTP/1.1 200 OK\nContent-Length: 1\n\n", Head{}},
		{"bare LF in between", ok + "A: b\nContent-Length: 1\r\n\r\n", Head{}},
		{"bare CR", ok + "A: b\rContent-Length: 1\r\n\r\n", Head{}},
		{"NUL", ok + "A: b\x00\r\n\r\n", Head{}},
		{"folded", ok + "A: b\r\n c\r\n\r\n", Head{}},
		{"space before the colon", ok + "Content-Length : 1\r\n\r\n", Head{}},
		{"no colon", ok + "Content-Length\r\n\r\n", Head{}},
		{"no name", ok + ": 1\r\n\r\n", Head{}},
		{"HTTP/2", "HTTP/2.0 200 OK\r\n\r\n", Head{}},
		{"HTTP/1.2", "HTTP/1.2 200 OK\r\n\r\n", Head{}},
		{"status of two digits", "HTTP/1.1 20 OK\r\n\r\n", Head{}},
		{"status of four digits", "HTTP/1.1 2000 OK\r\n\r\n", Head{}},
		{"status 600", "HTTP/1.1 600 OK\r\n\r\n", Head{}},
		{"status 099", "HTTP/1.1 099 OK\r\n\r\n", Head{}},
		{"another protocol", "SSH-2.0-OpenSSH", Head{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var h Head
			n, err := h.parse([]byte(tc.raw + "body"))
			if tc.want.Status == 0 {
				if err == nil {
					t.Fatalf("taken as %+v", h)
				}
				return
			}
			if err != nil || n != len(tc.raw) {
				t.Fatalf("%d of %d bytes, %v", n, len(tc.raw), err)
			}
			if h.Status != tc.want.Status || h.Length != tc.want.Length || h.close != tc.want.close ||
				!bytes.Equal(h.ContentType, tc.want.ContentType) || !bytes.Equal(h.Coding, tc.want.Coding) || !bytes.Equal(h.RetryAfter, tc.want.RetryAfter) {
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

// fasthttp's reader reads each head that the proxy takes the same way.
func FuzzHead(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 12\r\nContent-Type: a/b\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"))
	f.Add([]byte("HTTP/1.0 404 Not Found\r\nRetry-After: 3\r\nConnection: keep-alive\r\n\r\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var h Head
		n, err := h.parse(raw)
		if err != nil || n == 0 || h.Status < 200 {
			return
		}
		var ref fasthttp.ResponseHeader
		if err := ref.Read(bufio.NewReaderSize(bytes.NewReader(raw[:n]), n+16)); err != nil {
			t.Fatalf("fasthttp refuses %q: %v", raw[:n], err)
		}
		if ref.StatusCode() != h.Status {
			t.Fatalf("status %d, fasthttp has %d", h.Status, ref.StatusCode())
		}
		body := h.Status != fasthttp.StatusNoContent && h.Status != fasthttp.StatusNotModified
		if want := int64(ref.ContentLength()); body && want != h.Length {
			t.Fatalf("length %d, fasthttp has %d: %q", h.Length, want, raw[:n])
		}
		if strings.Count(strings.ToLower(string(raw[:n])), "connection") == 1 && body && h.Length != LengthNone && ref.ConnectionClose() && !h.close {
			t.Fatalf("kept, fasthttp closes: %q", raw[:n])
		}
	})
}
