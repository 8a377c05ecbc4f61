package proxy

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"xpyd/netio"
)

// chunks is a completion whose chunked body has the given bytes.
func chunks(body string) string { return gatePost(teLine, body) }

// head is a good completion whose head is given whole.
func gateHeadOf(head string) string { return head + "{}" }

// framingCases are requests whose lines or chunks some reader takes for something else. Each is
// answered once, at once, and its connection is closed, so that what follows it is never a request.
var framingCases = []gateCase{
	{name: "trailer section ended by LF", raw: chunks("2\r\n{}\r\n0\r\n\n")},
	{name: "trailer section ended by LF, then CR LF", raw: chunks("2\r\n{}\r\n0\r\n\n\r\n")},
	{name: "trailer ended by LF", raw: chunks("2\r\n{}\r\n0\r\nA: b\n\r\n")},
	{name: "trailers ended by LF", raw: chunks("2\r\n{}\r\n0\r\nA: b\n\n")},
	{name: "trailer, then LF", raw: chunks("2\r\n{}\r\n0\r\nA: b\r\n\n")},
	{name: "last chunk ended by LF", raw: chunks("2\r\n{}\r\n0\n\r\n")},
	{name: "last chunk and trailers ended by LF", raw: chunks("2\r\n{}\r\n0\n\n")},
	{name: "CR CR LF at the end", raw: chunks("2\r\n{}\r\n0\r\n\r\r\n")},
	{name: "CR at the end", raw: chunks("2\r\n{}\r\n0\r\n\rG")},
	{name: "bare CR in a trailer", raw: chunks("2\r\n{}\r\n0\r\nA: b\rC: d\r\n\r\n")},
	{name: "folded trailer", raw: chunks("2\r\n{}\r\n0\r\nA: b\r\n c\r\n\r\n")},
	{name: "trailer folded by a tab", raw: chunks("2\r\n{}\r\n0\r\nA: b\r\n\tc\r\n\r\n")},
	{name: "trailer folded to nothing", raw: chunks("2\r\n{}\r\n0\r\nA: b\r\n \r\n\r\n")},
	{name: "space before the first trailer", raw: chunks("2\r\n{}\r\n0\r\n A: b\r\n\r\n")},
	{name: "trailer without a colon", raw: chunks("2\r\n{}\r\n0\r\nabc\r\n\r\n")},
	{name: "trailer without a name", raw: chunks("2\r\n{}\r\n0\r\n: b\r\n\r\n")},
	{name: "space in a trailer's name", raw: chunks("2\r\n{}\r\n0\r\nA b: c\r\n\r\n")},
	{name: "space before a trailer's colon", raw: chunks("2\r\n{}\r\n0\r\nA : c\r\n\r\n")},
	{name: "NUL in a trailer", raw: chunks("2\r\n{}\r\n0\r\nA: b\x00c\r\n\r\n")},
	{name: "NUL in a trailer's name", raw: chunks("2\r\n{}\r\n0\r\nA\x00: b\r\n\r\n")},
	{name: "DEL in a trailer", raw: chunks("2\r\n{}\r\n0\r\nA: b\x7f\r\n\r\n")},
	{name: "trailer of 300 bytes", raw: chunks("2\r\n{}\r\n0\r\nA: " + strings.Repeat("b", 300) + "\r\n\r\n")},
	{name: "length in the trailer", raw: chunks("2\r\n{}\r\n0\r\nContent-Length: 5\r\n\r\n")},
	{name: "coding in the trailer", raw: chunks("2\r\n{}\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n")},
	{name: "request in the trailer", raw: chunks("2\r\n{}\r\n0\r\n" + gateSmuggled)},
	{name: "space after a size", raw: chunks("2 \r\n{}\r\n0\r\n\r\n")},
	{name: "tab after a size", raw: chunks("2\t\r\n{}\r\n0\r\n\r\n")},
	{name: "spaces after a size", raw: chunks("2" + strings.Repeat(" ", 100) + "\r\n{}\r\n0\r\n\r\n")},
	{name: "space after the last size", raw: chunks("2\r\n{}\r\n0 \r\n\r\n")},
	{name: "space before an extension", raw: chunks("2 ;a\r\n{}\r\n0\r\n\r\n")},
	{name: "space before a size", raw: chunks(" 2\r\n{}\r\n0\r\n\r\n")},
	{name: "tab before the second size", raw: chunks("2\r\n{}\r\n\t0\r\n\r\n")},
	{name: "no size", raw: chunks("\r\n{}\r\n0\r\n\r\n")},
	{name: "extension without a size", raw: chunks(";a\r\n{}\r\n0\r\n\r\n")},
	{name: "size with a sign", raw: chunks("+2\r\n{}\r\n0\r\n\r\n")},
	{name: "negative size", raw: chunks("-2\r\n{}\r\n0\r\n\r\n")},
	{name: "negative last size", raw: chunks("2\r\n{}\r\n-0\r\n\r\n")},
	{name: "size 0x2", raw: chunks("0x2\r\n{}\r\n0\r\n\r\n")},
	{name: "size 2h", raw: chunks("2h\r\n{}\r\n0\r\n\r\n")},
	{name: "size with an underscore", raw: chunks("0_2\r\n{}\r\n0\r\n\r\n")},
	{name: "two sizes", raw: chunks("2,2\r\n{}\r\n0\r\n\r\n")},
	{name: "NUL behind a size", raw: chunks("2\x00\r\n{}\r\n0\r\n\r\n")},
	{name: "size ended by LF", raw: chunks("2\n{}\r\n0\r\n\r\n")},
	{name: "size ended by CR", raw: chunks("2\r{}\r\n0\r\n\r\n")},
	{name: "size ended by CR CR LF", raw: chunks("2\r\r\n{}\r\n0\r\n\r\n")},
	{name: "size of 2^64 + 2", raw: chunks("10000000000000002\r\n{}\r\n0\r\n\r\n")},
	{name: "size of 300 digits", raw: chunks(strings.Repeat("0", 300) + "2\r\n{}\r\n0\r\n\r\n")},
	{name: "NUL in an extension", raw: chunks("2;a\x00b\r\n{}\r\n0\r\n\r\n")},
	{name: "NUL in the last extension", raw: chunks("2\r\n{}\r\n0;\x00\r\n\r\n")},
	{name: "DEL in an extension", raw: chunks("2;a\x7f\r\n{}\r\n0\r\n\r\n")},
	{name: "LF in an extension", raw: chunks("2;a\nb\r\n{}\r\n0\r\n\r\n")},
	{name: "LF behind an extension", raw: chunks("2;a\n{}\r\n0\r\n\r\n")},
	{name: "CR in an extension", raw: chunks("2;a\rb\r\n{}\r\n0\r\n\r\n")},
	{name: "extension of 300 bytes", raw: chunks("2;" + strings.Repeat("a", 300) + "\r\n{}\r\n0\r\n\r\n")},
	{name: "LF behind a chunk", raw: chunks("2\r\n{}\n0\r\n\r\n")},
	{name: "CR behind a chunk", raw: chunks("2\r\n{}\r0\r\n\r\n")},
	{name: "CR CR LF behind a chunk", raw: chunks("2\r\n{}\r\r\n0\r\n\r\n")},
	{name: "nothing behind a chunk", raw: chunks("2\r\n{}0\r\n\r\n")},
	{name: "chunk longer than its size", raw: chunks("1\r\n{}\r\n0\r\n\r\n")},

	{name: "all lines end in LF", raw: strings.ReplaceAll(gatePost(sizeLine, "{}"), "\r", "")},
	{name: "all lines of a GET end in LF", raw: "GET /v1/models HTTP/1.1\nHost: x\n\n"},
	{name: "LF behind the request line", raw: gateHeadOf(strings.TrimSuffix(postLine, "\r\n") + "\n" + hostLine + typeLine + sizeLine + "\r\n")},
	{name: "LF behind the last field", raw: gateHeadOf(postLine + hostLine + typeLine + "Content-Length: 2\n\r\n")},
	{name: "LF for the empty line", raw: gateHeadOf(postLine + hostLine + typeLine + sizeLine + "\n")},
	{name: "LF behind a long field", raw: gatePost("X-A: "+strings.Repeat("a", 5000)+"\n"+sizeLine, "{}")},
	{name: "LF behind the length", raw: gatePost("Content-Length: 2\nX-A: 1\r\n", "{}")},
	{name: "LF before the request line", raw: "\n" + gatePost(sizeLine, "{}")},
	{name: "CR LF LF before the request line", raw: "\r\n\n" + gatePost(sizeLine, "{}")},
	{name: "CR before the request line", raw: "\r" + gatePost(sizeLine, "{}")},
	{name: "CR CR LF before the request line", raw: "\r\r\n" + gatePost(sizeLine, "{}")},
	{name: "CR behind the request line", raw: gateHeadOf(strings.TrimSuffix(postLine, "\n") + hostLine + typeLine + sizeLine + "\r\n")},
	{name: "CR CR LF behind a field", raw: gatePost("X-A: 1\r\r\n"+sizeLine, "{}")},
	{name: "all lines end in CR", raw: strings.ReplaceAll(gatePost(sizeLine, "{}"), "\n", "")},
	{name: "CR CR LF for the empty line", raw: gateHeadOf(postLine + hostLine + typeLine + sizeLine + "\r\r\n")},
	{name: "folded field", raw: gatePost("X-A: 1\r\n 2\r\n"+sizeLine, "{}")},
	{name: "folded coding", raw: gatePost("Transfer-Encoding:\r\n chunked\r\n", gateChunks)},
	{name: "folded length", raw: gatePost("Content-Length: 2\r\n 2\r\n", strings.Repeat(" ", 22))},
}

// goodFramings are odd as well, but right.
var goodFramings = []gateCase{
	{name: "extension", raw: chunks("2;a=b;c=\"d e\"\r\n{}\r\n0;x\r\n\r\n")},
	{name: "trailers", raw: chunks("2\r\n{}\r\n0\r\nA: b\r\nC:\r\n\r\n")},
	{name: "chunks of one byte", raw: chunks("1\r\n{\r\n1\r\n}\r\n0\r\n\r\n")},
	{name: "digits of either case", raw: chunks("A\r\n{        }\r\n00\r\n\r\n")},
	{name: "size with zeros before it", raw: chunks("0002\r\n{}\r\n0000\r\n\r\n")},
	{name: "two chunked requests", raw: chunks(gateChunks) + chunks("1\r\n{\r\n1\r\n}\r\n0\r\nA: b\r\n\r\n")},
	{name: "length behind chunks", raw: chunks(gateChunks) + gatePost(sizeLine, "{}")},
	{name: "line ends before the request line", raw: "\r\n\r\n" + chunks(gateChunks)},
	{name: "line ends between requests", raw: gatePost(sizeLine, "{}") + "\r\n" + chunks(gateChunks) + "\r\n"},
	{name: "body that looks like a head", raw: gatePost(fmt.Sprintf("Content-Length: %d\r\n", len("{\"\n\n\":\"GET / HTTP/1.1\r\n\r\n\"}")), "{\"\n\n\":\"GET / HTTP/1.1\r\n\r\n\"}"), want: "400"},
	{name: "names of fields in any case", raw: gatePost("CONTENT-LENGTH:\t 2 \t\r\n", "{}")},
	{name: "fields that only look like framing", raw: gatePost("X-Content-Length: 7\r\nContent-Lengths: 7\r\nX: Transfer-Encoding: chunked\r\n"+sizeLine, "{}")},
}

// framingServer is the data port. Its timeouts are longer than an answer takes.
func framingServer(t *testing.T) (addr string, backend *gateBackend) {
	t.Helper()
	backend = startGateBackend(t)
	return startGateProxy(t, DefaultConfig(), backend.server.URL), backend
}

func TestBadFramingIsAnsweredOnce(t *testing.T) {
	addr, backend := framingServer(t)
	t.Run("cases", func(t *testing.T) {
		for _, c := range framingCases {
			c.want = "400"
			kept, waiting := c, c
			kept.name, kept.raw, kept.want = "kept, "+c.name, gatePost(sizeLine, "{}")+c.raw, "200 400"
			waiting.name, waiting.cut = "waiting, "+c.name, true // nothing follows it
			for _, c := range []gateCase{c, kept, waiting} {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					c.exchange(t, addr)
				})
			}
		}
	})
	backend.mu.Lock()
	defer backend.mu.Unlock()
	if len(backend.bodies) != len(framingCases) {
		t.Errorf("the backend got %d completions, want the %d good ones", len(backend.bodies), len(framingCases))
	}
}

func TestGoodFramingIsServed(t *testing.T) {
	addr, _ := framingServer(t)
	for _, c := range goodFramings {
		if c.keep = c.want == ""; c.keep {
			c.want = strings.TrimSuffix(strings.Repeat("200 ", strings.Count(c.raw, postLine)), " ")
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.exchange(t, addr)
		})
	}
}

// accepted is a client's connection, and the client's end of it.
func accepted(t *testing.T) (client *net.TCPConn, conn *netio.Conn) {
	t.Helper()
	port, err := netio.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := netio.NewListener(port, netio.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	client, _ = dialGate(t, listener.Addr().String())
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return client, server.(*netio.Conn)
}

// framed is how many bytes the framing takes of these pieces.
func framed(pieces ...[]byte) (taken int, refused bool) {
	var f netio.Framing
	for _, p := range pieces {
		if !f.Refused() {
			taken += f.Take(slices.Clone(p))
		}
	}
	return taken, f.Refused()
}

func checkFramingCut(t *testing.T, data []byte, at int) {
	t.Helper()
	taken, refused := framed(data)
	if n, r := framed(data[:at], data[at:]); n != taken || r != refused {
		t.Errorf("cut at %d: %d taken, refused %v; whole %d, %v\n%q", at, n, r, taken, refused, data)
	}
	if n, r := framed(slices.Collect(slices.Chunk(data, 1))...); n != taken || r != refused {
		t.Errorf("in bytes: %d taken, refused %v; whole %d, %v\n%q", n, r, taken, refused, data)
	}
}

func TestFramingIsTheSameHoweverItIsCut(t *testing.T) {
	for _, c := range slices.Concat(gateCases, framingCases, goodFramings) {
		for at := range min(len(c.raw), 1000) {
			checkFramingCut(t, []byte(c.raw[:min(len(c.raw), 1000)]), at)
		}
	}
}

func FuzzFraming(f *testing.F) {
	for _, c := range slices.Concat(gateCases, framingCases, goodFramings) {
		if len(c.raw) < 4<<10 {
			f.Add([]byte(c.raw), len(c.raw)/2)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, at int) {
		if at >= 0 && at <= len(data) {
			checkFramingCut(t, data, at)
		}
	})
}

// The cost of a body of known length does not grow with it, and nothing is allocated.
func BenchmarkFraming(b *testing.B) {
	for _, size := range []int{0, 64 << 10} {
		for name, raw := range map[string]string{
			"length":  gatePost(fmt.Sprintf("Content-Length: %d\r\n", size), strings.Repeat("x", size)),
			"chunked": gatePost(teLine, fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", size+1, strings.Repeat("x", size+1))),
		} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				data := []byte(raw)
				b.ReportAllocs()
				for b.Loop() {
					var f netio.Framing
					if f.Take(data); f.Refused() {
						b.Fatal("refused")
					}
				}
			})
		}
	}
}
