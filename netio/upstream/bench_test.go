package upstream

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// echoing answers each request, which comes in one piece, with these writes. It allocates nothing for
// a request.
func echoing(b *testing.B, writes ...[]byte) *Client {
	b.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = ln.Close() })
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		buf := make([]byte, 64<<10)
		for {
			if _, err := c.Read(buf); err != nil {
				return
			}
			for _, w := range writes {
				_, _ = c.Write(w)
			}
		}
	}()
	u := New(Config{Addr: ln.Addr().String(), Host: "backend.test:80", DialTimeout: time.Second, MaxIdle: time.Minute})
	b.Cleanup(u.Close)
	return u
}

// BenchmarkExchange measures what one leg with a short answer costs on a kept connection.
func BenchmarkExchange(b *testing.B) {
	u := echoing(b, []byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"))
	req, dst := post(`{"a":`, `1}`), make([]byte, 0, 1<<10)
	var x Exchange
	b.ReportAllocs()
	for b.Loop() {
		if err := x.Do(u, req, time.Now().Add(time.Minute), false); err != nil {
			b.Fatal(err)
		}
		if _, err := x.ReadAll(dst[:0], 1<<10); err != nil {
			b.Fatal(err)
		}
		x.Finish()
	}
}

// BenchmarkLongAnswer measures P's answer to a prompt of 4 MiB, into a buffer like that of a fresh completion.
func BenchmarkLongAnswer(b *testing.B) {
	const n = 400 << 10
	u := echoing(b, []byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 409600\r\n\r\n"+strings.Repeat("12345,67", n/8)))
	req, dst := post(`{"a":1}`), make([]byte, 0, 4<<10)
	var x Exchange
	b.ReportAllocs()
	for b.Loop() {
		if err := x.Do(u, req, time.Now().Add(time.Minute), false); err != nil {
			b.Fatal(err)
		}
		if body, err := x.ReadAll(dst[:0], 1<<20); err != nil || len(body) != n {
			b.Fatal(len(body), err)
		}
		x.Finish()
	}
}

// BenchmarkStream measures what a stream of 100 events costs, from the request to its end.
func BenchmarkStream(b *testing.B) {
	event := "data: " + strings.Repeat("x", 74) + "\n\n"
	writes := [][]byte{[]byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")}
	for range 100 {
		writes = append(writes, []byte("52\r\n"+event+"\r\n"))
	}
	u := echoing(b, append(writes, []byte("0\r\n\r\n"))...)
	req, dst, n := post(`{"a":1}`), make([]byte, 0, 64<<10), 0
	var x Exchange
	var failed error
	take := func() bool {
		x.Progress(time.Now(), time.Minute)
		got, err := x.Fill(dst[:0])
		n += len(got)
		if failed = err; err == io.EOF {
			failed = nil
		}
		return err == nil
	}
	b.ReportAllocs()
	for b.Loop() {
		n = 0
		if err := x.Do(u, req, time.Now().Add(time.Minute), false); err != nil {
			b.Fatal(err)
		}
		if err := x.Follow(nil, take); err != nil || failed != nil || n != 100*len(event) {
			b.Fatal(n, err, failed)
		}
		x.Finish()
	}
}
