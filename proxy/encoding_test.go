package proxy_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"xpyd/proxy"
)

// encoded is a body as a client sends it with a Content-Encoding.
func encoded(t *testing.T, coding, body string) string {
	t.Helper()
	if coding == "zstd" {
		z, err := zstd.NewWriter(nil)
		if err != nil {
			t.Fatal(err)
		}
		return string(z.EncodeAll([]byte(body), nil))
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(body)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Engines get a compressed request as if it had come plain, on both legs and where it is relayed.
func TestCompressedRequests(t *testing.T) {
	r := newRig(t, rigOptions{})
	for _, coding := range []string{"gzip", "x-gzip", "GZIP", "zstd"} {
		for _, c := range forms(prompt, 3) {
			r.expectWhole(c, r.post(c.path(), encoded(t, strings.ToLower(coding), c.body()), "Content-Encoding", coding))
		}
		plain := r.post("/tokenize", `{"model":"sim","prompt":"one two"}`)
		if a := r.post("/tokenize", encoded(t, coding, `{"model":"sim","prompt":"one two"}`), "Content-Encoding", coding); a.status != 200 || a.body != plain.body {
			t.Errorf("%s: relayed: %d %s, want %s", coding, a.status, a.body, plain.body)
		}
	}
	r.expectNothingHeld()
}

func TestCompressedRequestsThatAreRefused(t *testing.T) {
	r := newRig(t, rigOptions{config: func(c *proxy.Config) { c.Limits.Body = 1 << 20 }})
	good := forms(prompt, 3)[0].body()
	bomb := strings.Repeat(" ", 64<<20)
	for _, tt := range []struct {
		name, coding, body string
		status             int
		code               string
	}{
		{"gzip bomb", "gzip", encoded(t, "gzip", bomb), 413, "body_too_large"},
		{"zstd bomb", "zstd", encoded(t, "zstd", bomb), 413, "body_too_large"},
		{"gzip that is none", "gzip", good, 400, "invalid_encoding"},
		{"zstd that is none", "zstd", good, 400, "invalid_encoding"},
		{"cut", "gzip", encoded(t, "gzip", good)[:20], 400, "invalid_encoding"},
		{"not JSON", "zstd", encoded(t, "zstd", "{"), 400, "invalid_json"},
		{"another coding", "br", good, 415, "unsupported_media_type"},
		{"two codings", "gzip, zstd", good, 415, "unsupported_media_type"},
	} {
		a := r.post("/v1/completions", tt.body, "Content-Encoding", tt.coding)
		if a.status != tt.status || a.code() != tt.code {
			t.Errorf("%s: %d %s, want %d %s", tt.name, a.status, a.body, tt.status, tt.code)
		}
		if got, want := a.header.Get("Accept-Encoding"), map[bool]string{true: "gzip, zstd"}[tt.status == 415]; got != want {
			t.Errorf("%s: Accept-Encoding %q, want %q", tt.name, got, want)
		}
	}
	for _, c := range forms(prompt, 3) {
		r.expectWhole(c, r.call(c))
	}
	r.await("nothing charged", func() bool { return r.metric("xpyd_request_bytes_buffered") == 0 })
	if n := fmt.Sprint(len(legs(r.prefill, "prefill"))); n != "4" {
		t.Errorf("%s prefills, want those of the good requests, 4", n)
	}
}
