package proxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/valyala/fasthttp"

	"xpyd/intake/gate"
	"xpyd/netio"
	"xpyd/proxy/fault"
	"xpyd/router"
)

const (
	gateSmuggled = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
	gateProbe    = "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"

	postLine   = "POST /v1/completions HTTP/1.1\r\n"
	hostLine   = "Host: x\r\n"
	typeLine   = "Content-Type: application/json\r\n"
	sizeLine   = "Content-Length: 2\r\n"
	teLine     = "Transfer-Encoding: chunked\r\n"
	gateChunks = "2\r\n{}\r\n0\r\n\r\n"
)

// gatePost is a completion with the given field lines (each with its line end) and body.
func gatePost(fields, body string) string {
	return postLine + hostLine + typeLine + fields + "\r\n" + body
}

// gateLine is a request with the given first line and the usual fields and body.
func gateLine(line string) string {
	return line + "\r\n" + hostLine + typeLine + sizeLine + "\r\n{}"
}

// gateCase is one request as bytes and what the client sees. Every request is followed by another
// one: a probe that must be answered if the connection is kept, or one that no handler may see if
// it must be closed.
type gateCase struct {
	name string
	raw  string
	// want holds the statuses of the answers in order. 400|413 is either.
	want string
	keep bool
	// body is what the handler must have read when the answer is 200; "" is "{}".
	body string
	// cut says that the request's bytes end early, so nothing is sent after them.
	cut bool
	// reset says that the server closes on unread bytes, and TCP may lose the answer.
	reset bool
	// slow says that the read timeout gives the answer.
	slow bool
}

var gateCases = []gateCase{
	{name: "good", raw: gatePost(sizeLine, "{}"), want: "200", keep: true},
	{name: "good chunked", raw: gatePost(teLine, gateChunks), want: "200", keep: true},
	{name: "01 length and chunked", raw: gatePost("Content-Length: 5\r\n"+teLine, "0\r\n\r\nG"), want: "400"},
	{name: "01 chunked and length", raw: gatePost(teLine+"Content-Length: 5\r\n", "0\r\n\r\nG"), want: "400"},
	{name: "01 length and chunks of a document", raw: gatePost(sizeLine+teLine, gateChunks), want: "400"},
	{name: "02 two equal lengths", raw: gatePost(sizeLine+sizeLine, "{}"), want: "400"},
	{name: "03 two different lengths", raw: gatePost(sizeLine+"Content-Length: 3\r\n", "{}"), want: "400"},
	{name: "04 length list", raw: gatePost("Content-Length: 2, 2\r\n", "{}"), want: "400"},
	{name: "05 length with sign", raw: gatePost("Content-Length: +2\r\n", "{}"), want: "400"},
	{name: "06 negative length", raw: gatePost("Content-Length: -1\r\n", "{}"), want: "400"},
	{name: "07 hexadecimal length", raw: gatePost("Content-Length: 0x2\r\n", "{}"), want: "400"},
	{name: "08 length overflow", raw: gatePost("Content-Length: 18446744073709551618\r\n", "{}"), want: "400|413"},
	{name: "09 empty length", raw: gatePost("Content-Length: \r\n", "{}"), want: "400"},
	{name: "10 length with inner space", raw: gatePost("Content-Length: 2 2\r\n", "{}"), want: "400"},
	{name: "11 unknown coding", raw: gatePost("Transfer-Encoding: xchunked\r\n", gateChunks), want: "400|501"},
	{name: "12 gzip, chunked", raw: gatePost("Transfer-Encoding: gzip, chunked\r\n", gateChunks), want: "400|501"},
	{name: "13 chunked not last", raw: gatePost("Transfer-Encoding: chunked, identity\r\n", gateChunks), want: "400"},
	{name: "14 chunked twice", raw: gatePost(teLine+teLine, gateChunks), want: "400"},
	{name: "15 tab before coding", raw: gatePost("Transfer-Encoding:\tchunked\r\n", gateChunks), want: "200", keep: true},
	{name: "15 coding in capitals", raw: gatePost("transfer-encoding: CHUNKED \t\r\n", gateChunks), want: "200", keep: true},
	{name: "16 vertical tab before coding", raw: gatePost("Transfer-Encoding: \x0bchunked\r\n", gateChunks), want: "400"},
	{name: "17 space before colon", raw: gatePost("Transfer-Encoding : chunked\r\n", gateChunks), want: "400"},
	{name: "18 chunked on 1.0", raw: "POST /v1/completions HTTP/1.0\r\n" + typeLine + teLine + "\r\n" + gateChunks, want: "400"},
	{name: "18 chunked on 1.0, kept alive", raw: "POST /v1/completions HTTP/1.0\r\nConnection: keep-alive\r\n" + typeLine + teLine + "\r\n" + gateChunks, want: "400"},
	{name: "19 coding folded", raw: gatePost("Transfer-Encoding:\r\n chunked\r\n", gateChunks), want: "400|501"},
	{name: "20 folded line", raw: gatePost("X-A: 1\r\n  2\r\n"+sizeLine, "{}"), want: "400"},
	{name: "20 folded by a tab", raw: gatePost("X-A: 1\r\n\t2\r\n"+sizeLine, "{}"), want: "400"},
	{name: "20 fold of nothing", raw: gatePost(sizeLine+"X-A: 1\r\n \r\n", "{}"), want: "400"},
	{name: "21 bare line feeds", raw: strings.ReplaceAll(gatePost(sizeLine, "{}"), "\r", ""), want: "400", cut: true},
	{name: "21 bare line feeds, then a request", raw: strings.ReplaceAll(gatePost(sizeLine, "{}"), "\r", ""), want: "400"},
	{name: "21 one bare line feed", raw: gatePost("X-A: 1\n"+sizeLine, "{}"), want: "400"},
	{name: "22 bare CR in value", raw: gatePost("X-A: 1\rX-B: 2\r\n"+sizeLine, "{}"), want: "400"},
	{name: "23 NUL in value", raw: gatePost("X-A: a\x00b\r\n"+sizeLine, "{}"), want: "400"},
	{name: "24 NUL in name", raw: gatePost("X\x00A: a\r\n"+sizeLine, "{}"), want: "400"},
	{name: "25 space in name", raw: gatePost("X A: a\r\n"+sizeLine, "{}"), want: "400"},
	{name: "26 empty name", raw: gatePost(": a\r\n"+sizeLine, "{}"), want: "400"},
	{name: "27 no colon", raw: gatePost("garbage\r\n"+sizeLine, "{}"), want: "400"},
	{name: "28 space before the first field", raw: postLine + " " + hostLine + sizeLine + "\r\n{}", want: "400"},
	{name: "29 chunk extension with bare LF", raw: gatePost(teLine, "2;a\nxx\r\n{}\r\n0\r\n\r\n"), want: "400"},
	{name: "30 chunk size with bare LF", raw: gatePost(teLine, "2\n{}\r\n0\r\n\r\n"), want: "400"},
	{name: "31 chunk size overflow", raw: gatePost(teLine, "10000000000000002\r\n{}\r\n0\r\n\r\n"), want: "400"},
	{name: "32 chunk size 0x2", raw: gatePost(teLine, "0x2\r\n{}\r\n0\r\n\r\n"), want: "400"},
	{name: "33 chunk size -2", raw: gatePost(teLine, "-2\r\n{}\r\n0\r\n\r\n"), want: "400"},
	{name: "34 chunk without line end", raw: gatePost(teLine, "2\r\n{}XX0\r\n\r\n"), want: "400"},
	{name: "35 space after chunk size", raw: gatePost(teLine, "2 \r\n{}\r\n0\r\n\r\n"), want: "400"},
	{name: "36 chunk extension of 32 KiB", raw: gatePost(teLine, "2;"+strings.Repeat("a", 32<<10)+"\r\n{}\r\n0\r\n\r\n"), want: "400", reset: true},
	{name: "37 length in the trailer", raw: gatePost(teLine, "2\r\n{}\r\n0\r\nContent-Length: 5\r\n\r\n"), want: "400"},
	{name: "38 no Host", raw: postLine + typeLine + sizeLine + "\r\n{}", want: "400"},
	{name: "38 no field at all", raw: "GET /v1/models HTTP/1.1\r\n\r\n", want: "400"},
	{name: "38 no Host on 1.0", raw: "POST /v1/completions HTTP/1.0\r\nConnection: keep-alive\r\n" + typeLine + sizeLine + "\r\n{}", want: "200", keep: true},
	{name: "39 two Hosts", raw: gatePost("Host: b\r\n"+sizeLine, "{}"), want: "400"},
	{name: "39 the same Host twice", raw: gatePost(hostLine+sizeLine, "{}"), want: "400"},
	{name: "40 bad Host", raw: postLine + "Host: a b/c\r\n" + typeLine + sizeLine + "\r\n{}", want: "400"},
	{name: "40 Host with user", raw: postLine + "Host: u@x\r\n" + typeLine + sizeLine + "\r\n{}", want: "400"},
	{name: "40 Host with long port", raw: postLine + "Host: x:123456\r\n" + typeLine + sizeLine + "\r\n{}", want: "400"},
	{name: "40 Host with empty port", raw: postLine + "Host: x:\r\n" + typeLine + sizeLine + "\r\n{}", want: "400"},
	{name: "40 open bracket", raw: postLine + "Host: [::1\r\n" + typeLine + sizeLine + "\r\n{}", want: "400"},
	{name: "40 empty brackets", raw: postLine + "Host: []:80\r\n" + typeLine + sizeLine + "\r\n{}", want: "400"},
	{name: "40 good IPv6 Host", raw: postLine + "Host: [::1]:8080\r\n" + typeLine + sizeLine + "\r\n{}", want: "200", keep: true},
	{name: "40 good name and port", raw: postLine + "Host: a-1.example:65535\r\n" + typeLine + sizeLine + "\r\n{}", want: "200", keep: true},
	{name: "41 absolute form", raw: gateLine("POST http://evil/v1/completions HTTP/1.1"), want: "400|404"},
	{name: "42 version 1.2", raw: gateLine("POST /v1/completions HTTP/1.2"), want: "505"},
	{name: "43 version 2.0", raw: gateLine("POST /v1/completions HTTP/2.0"), want: "505"},
	{name: "44 version in lower case", raw: gateLine("POST /v1/completions http/1.1"), want: "400"},
	{name: "45 HTTP/0.9", raw: "GET /v1/models\r\n\r\n", want: "400"},
	{name: "46 two spaces", raw: gateLine("POST  /v1/completions HTTP/1.1"), want: "400"},
	{name: "46 tab for a space", raw: gateLine("POST\t/v1/completions HTTP/1.1"), want: "400"},
	{name: "47 space in target", raw: gateLine("POST /v1/completions b HTTP/1.1"), want: "400"},
	{name: "48 control byte in method", raw: gateLine("PO\x01ST /v1/completions HTTP/1.1"), want: "400"},
	{name: "48 control byte in target", raw: gateLine("POST /v1/completions\x01 HTTP/1.1"), want: "400"},
	{name: "49 method in lower case", raw: gateLine("post /v1/completions HTTP/1.1"), want: "405|501"},
	{name: "50 field of 31 KB", raw: gatePost("X-A: "+strings.Repeat("a", 31<<10)+"\r\n"+sizeLine, "{}"), want: "200", keep: true},
	{name: "50 field of 33 KB", raw: gatePost("X-A: "+strings.Repeat("a", 33<<10)+"\r\n"+sizeLine, "{}"), want: "431", reset: true},
	{name: "50 field of 50 KB", raw: gatePost("X-A: "+strings.Repeat("a", 50_000)+"\r\n"+sizeLine, "{}"), want: "431", reset: true},
	{name: "51 target of 50 KB", raw: gateLine("GET /" + strings.Repeat("a", 50_000) + " HTTP/1.1"), want: "414|431", reset: true},
	{name: "52 length over the limit", raw: gatePost("Content-Length: 9000000\r\n", strings.Repeat(" ", 4<<10)), want: "413", cut: true, reset: true},
	{name: "52 first byte over the limit", raw: gatePost("Content-Length: 9000000\r\n", " "), want: "413", cut: true},
	{name: "52 chunks over the limit", raw: gatePost(teLine, "480000\r\n"+strings.Repeat(" ", 0x480000)+"\r\n0\r\n\r\n"), want: "413", reset: true},
	{name: "53 Expect", raw: gatePost("Expect: 100-continue\r\n"+sizeLine, "{}"), want: "100 200", keep: true},
	{name: "53 Expect in capitals", raw: gatePost("Expect: 100-Continue\r\n"+sizeLine, "{}"), want: "100 200", keep: true},
	{name: "53 Expect on 1.0", raw: "POST /v1/completions HTTP/1.0\r\nExpect: 100-continue\r\n" + typeLine + sizeLine + "\r\n{}", want: "417"},
	{name: "53 Expect and a bad request", raw: gatePost("Expect: 100-continue\r\nX A: 1\r\n"+sizeLine, "{}"), want: "400"},
	{name: "54 unknown Expect", raw: gatePost("Expect: foo\r\n"+sizeLine, "{}"), want: "417"},
	{name: "55 obfuscated Expect", raw: gatePost("Expect: y 100-continue\r\n"+sizeLine, "{}"), want: "417"},
	{name: "55 second Expect unknown", raw: gatePost("Expect: 100-continue\r\nExpect: foo\r\n"+sizeLine, "{}"), want: "417"},
	{name: "56 GET with body, then a GET", raw: "GET /v1/models HTTP/1.1\r\n" + hostLine + sizeLine + "\r\n{}" + gateProbe, want: "200 200", keep: true},
	{name: "57 two pipelined POSTs", raw: gatePost(sizeLine, "{}") + gatePost("Content-Length: 3\r\n", "{ }"), want: "200 200", keep: true},
	{name: "58 Upgrade to h2c", raw: gatePost("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n"+sizeLine, "{}"), want: "200", keep: true},
	{name: "58 Upgrade to websocket", raw: gatePost("Connection: Upgrade\r\nUpgrade: websocket\r\n"+sizeLine, "{}"), want: "200", keep: true},
	{name: "58 settings without Upgrade", raw: gatePost("HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n"+sizeLine, "{}"), want: "200", keep: true},
	{name: "59 HTTP/2 preface", raw: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", want: "400|505"},
	{name: "60 CONNECT", raw: "CONNECT evil:443 HTTP/1.1\r\nHost: evil:443\r\n\r\n", want: "400|405"},
	{name: "61 TRACE", raw: gateLine("TRACE /v1/completions HTTP/1.1"), want: "405"},
	{name: "61 DELETE", raw: gateLine("DELETE /v1/completions HTTP/1.1"), want: "405"},
	{name: "62 leading line ends", raw: "\r\n\r\n" + gatePost(sizeLine, "{}"), want: "200", keep: true},
	{name: "63 underscore for a dash", raw: gatePost("Content_Length: 7\r\n"+sizeLine, "{}"), want: "200", keep: true},
	{name: "64 Connection names the length", raw: gatePost("Connection: Content-Length\r\n"+sizeLine, "{}"), want: "200", keep: true},
	{name: "65 0xFF in name", raw: gatePost("X-\xffA: 1\r\n"+sizeLine, "{}"), want: "400"},
	{name: "66 DEL in value", raw: gatePost("X-A: a\x7fb\r\n"+sizeLine, "{}"), want: "400"},
	{name: "66 Latin-1 in value passes", raw: gatePost("X-A: a\xe9b\r\n"+sizeLine, "{}"), want: "200", keep: true},
	{name: "67 dots to an admin route", raw: gateLine("POST /v1/../sleep HTTP/1.1"), want: "400|404"},
	{name: "68 encoded slash", raw: gateLine("POST /v1%2f..%2fsleep HTTP/1.1"), want: "400|404"},
	{name: "69 doubled slash", raw: gateLine("POST //v1/completions HTTP/1.1"), want: "400|404"},
	{name: "70 fragment", raw: gateLine("POST /v1/completions#x HTTP/1.1"), want: "400"},
	{name: "71 short body, then silence", raw: gatePost("Content-Length: 100\r\n", "{}"), want: "400|408", cut: true, slow: true},
	{name: "71 no body, then silence", raw: gatePost("Content-Length: 100\r\n", ""), want: "400|408", cut: true, slow: true},
	{name: "71 half a chunk, then silence", raw: gatePost(teLine, "9\r\n{}"), want: "400|408", cut: true, slow: true},
	{name: "71 half a head, then silence", raw: postLine + "Ho", want: "400|408", cut: true, slow: true},
	{name: "72 br", raw: gatePost("Content-Encoding: br\r\n"+sizeLine, "{}"), want: "415"},
	{name: "72 two codings", raw: gatePost("Content-Encoding: gzip, zstd\r\n"+sizeLine, "{}"), want: "415"},
	{name: "72 empty coding", raw: gatePost("Content-Encoding:\r\n"+sizeLine, "{}"), want: "415"},
	{name: "72 identity and gzip", raw: gatePost("Content-Encoding: identity\r\nContent-Encoding: gzip\r\n"+sizeLine, "{}"), want: "415"},
	{name: "72 identity", raw: gatePost("Content-Encoding: Identity\r\n"+sizeLine, "{}"), want: "200", keep: true},
	{name: "74 length on a route that ignores bodies", raw: "GET /v1/models HTTP/1.1\r\n" + hostLine + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(gateSmuggled)) + gateSmuggled, want: "200", keep: true, body: gateSmuggled},
	{name: "74 chunks on a route that ignores bodies", raw: "GET /v1/models HTTP/1.1\r\n" + hostLine + teLine + "\r\n" + gateChunks, want: "200", keep: true},
	{name: "74 body on no route", raw: "GET /v1/nothing HTTP/1.1\r\n" + hostLine + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(gateSmuggled)) + gateSmuggled, want: "404"},
	{name: "77 101 fields", raw: gatePost(strings.Repeat("a:b\r\n", 98)+sizeLine, "{}"), want: "431"},
	{name: "77 100 fields", raw: gatePost(strings.Repeat("a:b\r\n", 97)+sizeLine, "{}"), want: "200", keep: true},
	{name: "77 3,000 tiny fields", raw: gatePost(strings.Repeat("a:b\r\n", 3000)+sizeLine, "{}"), want: "431"},
	{name: "77 7,000 tiny fields", raw: gatePost(strings.Repeat("a:b\r\n", 7000)+sizeLine, "{}"), want: "431", reset: true},
	{name: "79 two documents", raw: gatePost("Content-Length: 4\r\n", "{}{}"), want: "400"},
	{name: "79 byte order mark", raw: gatePost("Content-Length: 5\r\n", "\xef\xbb\xbf{}"), want: "400"},
	{name: "79 NUL behind the document", raw: gatePost("Content-Length: 3\r\n", "{}\x00"), want: "400"},
	{name: "79 no body", raw: gatePost("", ""), want: "400"},
	{name: "two X-Api-Keys", raw: gatePost("X-Api-Key: a\r\nx-api-key: b\r\n"+sizeLine, "{}"), want: "400"},
	{name: "80 two Authorizations", raw: gatePost("Authorization: Bearer a\r\nAuthorization: Bearer b\r\n"+sizeLine, "{}"), want: "400"},
	{name: "80 two content types", raw: gatePost(typeLine+sizeLine, "{}"), want: "400"},
	{name: "content type in capitals, UTF-8", raw: postLine + hostLine + "Content-Type: Application/JSON ; x=1; Charset=\"UTF-8\"\r\n" + sizeLine + "\r\n{}", want: "200", keep: true},
	{name: "content type in Latin-1", raw: postLine + hostLine + "Content-Type: application/json;charset=latin1\r\n" + sizeLine + "\r\n{}", want: "200", keep: true},
	{name: "content type of a form", raw: postLine + hostLine + "Content-Type: application/x-www-form-urlencoded\r\n" + sizeLine + "\r\n{}", want: "415"},
	{name: "content type of more letters", raw: postLine + hostLine + "Content-Type: application/json-seq\r\n" + sizeLine + "\r\n{}", want: "415"},
	{name: "no content type", raw: postLine + hostLine + sizeLine + "\r\n{}", want: "415"},
}

func TestGate(t *testing.T) {
	fast := gateOptions{readTimeout: 10 * time.Second}
	slow := gateOptions{readTimeout: time.Second}
	for _, c := range gateCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			options := fast
			if c.slow {
				options = slow
			}
			c.check(t, startGate(t, options))
		})
	}
}

func (c gateCase) check(t *testing.T, g *gateServer) {
	t.Helper()
	c.exchange(t, g.addr)
	c.checkSeen(t, g.requests())
}

// exchange sends the case to a server, reads the answers, and reports whether the connection ended
// or was kept as it must be.
func (c gateCase) exchange(t *testing.T, addr string) {
	t.Helper()
	conn, answers := dialGate(t, addr)
	want, tail := strings.Fields(c.want), gateSmuggled
	switch {
	case c.cut:
		tail = ""
	case c.keep:
		want, tail = append(want, "200"), gateProbe
	}
	go func() { _, _ = conn.Write([]byte(c.raw + tail)) }() // fails where the server has closed
	for i, status := range want {
		answer, err := readGateAnswer(answers)
		if i == 0 && c.reset && errors.Is(err, syscall.ECONNRESET) {
			break
		}
		if err != nil {
			t.Fatalf("answer %d: %v, want %s", i+1, err, status)
		}
		if !slices.Contains(strings.Split(status, "|"), strconv.Itoa(answer.status)) {
			t.Fatalf("answer %d is %d %s, want %s", i+1, answer.status, answer.body, status)
		}
		if closing := i == len(want)-1 && !c.keep; answer.close != closing && answer.status != 100 {
			t.Errorf("answer %d: Connection: close is %v, want %v", i+1, answer.close, closing)
		}
	}
	if !c.keep {
		expectGateClosed(t, answers)
	}
}

// checkSeen asserts what the handler was called with.
func (c gateCase) checkSeen(t *testing.T, seen []gateRequest) {
	t.Helper()
	for _, r := range seen {
		if r.target == "/smuggled" {
			t.Errorf("the handler got a smuggled request; all: %v", seen)
		}
	}
	if !c.keep {
		if len(seen) > 1 {
			t.Errorf("the handler ran %d times, want at most once: %v", len(seen), seen)
		}
		return
	}
	want := c.body
	if want == "" {
		want = "{}"
	}
	if len(seen) == 0 || seen[0].body != want {
		t.Errorf("the handler got %v, want a first body %q", seen, want)
	}
}

type gateAnswer struct {
	status int
	close  bool
	body   string
}

func dialGate(t *testing.T, addr string) (*net.TCPConn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	// Longer than anything but a hang.
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn.(*net.TCPConn), bufio.NewReader(conn)
}

func readGateAnswer(r *bufio.Reader) (gateAnswer, error) {
	response, err := http.ReadResponse(r, nil)
	if err != nil {
		return gateAnswer{}, err
	}
	body, err := io.ReadAll(response.Body)
	return gateAnswer{response.StatusCode, response.Close, string(body)}, err
}

// expectGateClosed asserts that nothing but the end of the connection follows.
func expectGateClosed(t *testing.T, r *bufio.Reader) {
	t.Helper()
	rest, err := io.ReadAll(r)
	if len(rest) > 0 {
		t.Errorf("bytes behind the last answer: %q", rest)
	}
	if err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection was not closed: %v", err)
	}
}

// TestGateOfServer runs the same bytes against the data port itself.
func TestGateOfServer(t *testing.T) {
	backend := startGateBackend(t)
	cfg := DefaultConfig()
	cfg.Limits.Body = gateBodyLimit
	fast := startGateProxy(t, cfg, backend.server.URL)
	// A connection whose head does not begin in time is closed without an answer.
	cfg.Timeouts.Header, cfg.Timeouts.Body = 2*time.Second, 150*time.Millisecond
	cfg.Limits.Body = 32 << 10 // a chunked body is given the time of the largest one
	slow := startGateProxy(t, cfg, backend.server.URL)
	served := 0
	t.Run("cases", func(t *testing.T) {
		for _, c := range gateCases {
			if c.keep && strings.HasPrefix(c.raw, "GET ") {
				// The server reads no body on GET and closes after its answer.
				c.want, c.keep = "200", false
			} else if c.keep {
				served += strings.Count(c.want, "200")
			}
			addr := fast
			if c.slow {
				addr = slow
			}
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				c.exchange(t, addr)
			})
		}
	})
	backend.mu.Lock()
	defer backend.mu.Unlock()
	if len(backend.bodies) != served {
		t.Errorf("the backend got %d completions, want the %d that were answered 200", len(backend.bodies), served)
	}
	for _, body := range backend.bodies {
		if body != "{}" && body != "{ }" {
			t.Errorf("the backend got the body %q, which nobody sent", body)
		}
	}
}

// gateBackend is a decode engine that answers every completion with the same text.
type gateBackend struct {
	server *httptest.Server
	mu     sync.Mutex
	bodies []string // of the completions
}

func startGateBackend(t *testing.T) *gateBackend {
	t.Helper()
	b := &gateBackend{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"version":"0.32.0"}`) })
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"m","object":"model"}]}`)
	})
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		b.mu.Lock()
		b.bodies = append(b.bodies, string(body))
		b.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"cmpl-1","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"a","logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"total_tokens":2,"completion_tokens":1}}`)
	})
	b.server = httptest.NewServer(mux)
	t.Cleanup(b.server.Close)
	return b
}

// startGateProxy starts the data port over one decode backend and returns its address.
func startGateProxy(t *testing.T, cfg Config, backend string) string {
	t.Helper()
	pools := router.DefaultConfig()
	pools.Decode = router.MustEntries(backend)
	rt, err := router.New(pools, 1, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(cfg, rt, nil, "test", zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	listener, err := netio.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(listener) }()
	t.Cleanup(func() {
		if err := errors.Join(s.Shutdown(), <-done); err != nil {
			t.Errorf("shut down: %v", err)
		}
	})
	return listener.Addr().String()
}

func TestGateRequireLength(t *testing.T) {
	g := startGate(t, gateOptions{readTimeout: 10 * time.Second, requireLength: true})
	extension := "2;" + strings.Repeat("a", 32<<10) + "\r\n{}\r\n0\r\n\r\n"
	for _, c := range []gateCase{
		{name: "length", raw: gatePost(sizeLine, "{}"), want: "200", keep: true},
		{name: "chunked", raw: gatePost(teLine, gateChunks), want: "411"},
		{name: "36 chunk extension of 32 KiB", raw: gatePost(teLine, extension), want: "411", reset: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			g.forget()
			c.check(t, g)
		})
	}
}

// TCP may drop an answer that is followed by a close over unread bytes, so the
// refusals of oversize heads are looked at here without TCP.
func TestGateOversizeHeads(t *testing.T) {
	for _, c := range gateCases {
		if !c.reset || !strings.Contains(c.want, "431") {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			g := newGateServer(gateOptions{readTimeout: time.Second})
			conn := &gateConn{in: strings.NewReader(c.raw)}
			_ = g.server.ServeConn(&framedConn{Conn: conn}) // reports the parse error that it answered
			answer, err := readGateAnswer(bufio.NewReader(&conn.out))
			if err != nil || answer.status != fasthttp.StatusRequestHeaderFieldsTooLarge || !answer.close {
				t.Errorf("answer %+v (%v), want a closing 431", answer, err)
			}
			if seen := g.requests(); len(seen) > 0 {
				t.Errorf("the handler got %v", seen)
			}
		})
	}
}

// 73: a refusal is final although the body is still on its way: what arrives later
// is never a request.
func TestGateEarlyAnswer(t *testing.T) {
	for _, c := range []struct{ name, fields, first string }{
		{"by length", "Content-Length: 100000\r\n", "{"},
		{"chunked", teLine, "5\r\n{"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := startGate(t, gateOptions{readTimeout: 10 * time.Second, keys: []string{"sk-right"}})
			conn, answers := dialGate(t, g.addr)
			raw := gatePost("Authorization: Bearer sk-wrong\r\n"+c.fields, c.first)
			if _, err := io.WriteString(conn, raw); err != nil {
				t.Fatal(err)
			}
			answer, err := readGateAnswer(answers)
			if err != nil || answer.status != fasthttp.StatusUnauthorized || !answer.close {
				t.Fatalf("answer %+v (%v), want a closing 401", answer, err)
			}
			_, _ = io.WriteString(conn, gateSmuggled+gateProbe) // fails once the server has closed
			expectGateClosed(t, answers)
			if seen := g.requests(); len(seen) != 1 {
				t.Errorf("the handler got %v, want the refused request alone", seen)
			}
		})
	}
}

// 53 and 75: a client that waits between head and body sends one request.
func TestGatePause(t *testing.T) {
	for _, c := range []struct {
		name, fields, body string
		continues          bool
	}{
		{"length", sizeLine, "{}", false},
		{"chunked", teLine, gateChunks, false},
		{"length, waits for 100", "Expect: 100-continue\r\n" + sizeLine, "{}", true},
		{"chunked, waits for 100", "Expect: 100-continue\r\n" + teLine, gateChunks, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := startGate(t, gateOptions{readTimeout: 10 * time.Second})
			conn, answers := dialGate(t, g.addr)
			if _, err := io.WriteString(conn, gatePost(c.fields, "")); err != nil {
				t.Fatal(err)
			}
			<-g.received
			if c.continues {
				if answer, err := readGateAnswer(answers); err != nil || answer.status != fasthttp.StatusContinue {
					t.Fatalf("answer %+v (%v), want 100", answer, err)
				}
			}
			if _, err := io.WriteString(conn, c.body+gateProbe); err != nil {
				t.Fatal(err)
			}
			for i := range 2 {
				if answer, err := readGateAnswer(answers); err != nil || answer.status != fasthttp.StatusOK || answer.close {
					t.Fatalf("answer %d is %+v (%v), want a kept 200", i+1, answer, err)
				}
			}
			if seen := g.requests(); len(seen) != 2 || seen[0].body != "{}" {
				t.Errorf("the handler got %v, want the completion and the probe", seen)
			}
		})
	}
}

// 76: HEAD has the length of GET's body and no body.
func TestGateHead(t *testing.T) {
	g := startGate(t, gateOptions{readTimeout: 10 * time.Second})
	conn, answers := dialGate(t, g.addr)
	if _, err := io.WriteString(conn, "HEAD /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"+gateProbe); err != nil {
		t.Fatal(err)
	}
	head, err := http.ReadResponse(answers, &http.Request{Method: http.MethodHead})
	if err != nil || head.StatusCode != fasthttp.StatusOK || head.ContentLength != int64(len(gateModels)) {
		t.Fatalf("HEAD: %+v (%v), want 200 and length %d", head, err, len(gateModels))
	}
	_ = head.Body.Close()
	if answer, err := readGateAnswer(answers); err != nil || answer.body != gateModels {
		t.Errorf("behind HEAD: %+v (%v), want the answer to GET", answer, err)
	}
}

// 78: it makes no difference where the bytes of a request are split. A pipe hands over one write at
// a time, so the server really sees each split.
func TestGateSplits(t *testing.T) {
	for _, c := range []gateCase{
		{name: "length", raw: gatePost("Connection: close\r\n"+sizeLine, "{}"), want: "200"},
		{name: "chunked", raw: gatePost("Connection: close\r\n"+teLine, gateChunks), want: "200"},
		{name: "space in name", raw: gatePost("X A: 1\r\n"+sizeLine, "{}"), want: "400"},
		{name: "length and chunked", raw: gatePost(sizeLine+teLine, gateChunks), want: "400"},
		{name: "folded coding", raw: gatePost("Transfer-Encoding:\r\n chunked\r\n", gateChunks), want: "400"},
		{name: "coding unknown to fasthttp", raw: gatePost("Transfer-Encoding: xchunked\r\n", gateChunks), want: "400"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for at := range len(c.raw) - 1 {
				c.checkSplit(t, at+1)
			}
		})
	}
}

func (c gateCase) checkSplit(t *testing.T, at int) {
	t.Helper()
	g := newGateServer(gateOptions{readTimeout: 10 * time.Second})
	client, server := net.Pipe()
	var work sync.WaitGroup
	work.Go(func() { _ = g.server.ServeConn(&framedConn{Conn: server}) }) // reports the errors that it answered
	work.Go(func() {
		// A write fails once the server has refused and closed.
		for _, part := range []string{c.raw[:at], c.raw[at:], gateSmuggled} {
			_, _ = io.WriteString(client, part)
		}
	})
	answers := bufio.NewReader(client)
	answer, err := readGateAnswer(answers)
	if err != nil || strconv.Itoa(answer.status) != c.want || !answer.close {
		t.Errorf("split at %d: %+v (%v), want a closing %s", at, answer, err, c.want)
	}
	expectGateClosed(t, answers)
	work.Wait()
	_ = client.Close()
	c.checkSeen(t, g.requests())
}

func TestFrameError(t *testing.T) {
	timeout := &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
	for _, c := range []struct {
		name   string
		err    error
		status int
		code   fault.Code
	}{
		{"head over the buffer", &fasthttp.ErrSmallBuffer{}, 431, fault.CodeHeadersTooLarge},
		{"head over the buffer, wrapped", fmt.Errorf("head: %w", fasthttp.ErrSmallReadBuffer), 431, fault.CodeHeadersTooLarge},
		{"body over the limit", fmt.Errorf("body: %w", fasthttp.ErrBodyTooLarge), 413, fault.CodeBodyTooLarge},
		{"timeout", timeout, 408, fault.CodeRequestTimeout},
		{"timeout, wrapped", fmt.Errorf("head: %w", timeout), 408, fault.CodeRequestTimeout},
		{"timeout of fasthttp's own", fasthttp.ErrTimeout, 408, fault.CodeRequestTimeout},
		{"cut", io.ErrUnexpectedEOF, 400, fault.CodeInvalidHTTP},
		{"bad chunk", fasthttp.ErrBrokenChunk{}, 400, fault.CodeInvalidHTTP},
		{"anything else", errors.New(`cannot parse "Authorization: Bearer sk-secret"`), 400, fault.CodeInvalidHTTP},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := fault.OfGate(gate.FrameError(c.err))
			if e.Status != c.status || e.Code != c.code {
				t.Errorf("frameError(%T) = %d %s, want %d %s", c.err, e.Status, e.Code, c.status, c.code)
			}
			if strings.Contains(e.Message, "sk-secret") {
				t.Errorf("the message quotes the request: %s", e.Message)
			}
		})
	}
}

// gateHead is the head that the official Python client sends, 11 fields.
func gateHead(t testing.TB) *fasthttp.RequestHeader {
	t.Helper()
	const raw = "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nAccept-Encoding: gzip, deflate\r\n" +
		"Connection: keep-alive\r\nAccept: application/json\r\nContent-Type: application/json\r\n" +
		"User-Agent: OpenAI/Python 2.3.0\r\nX-Stainless-Lang: python\r\nX-Stainless-Runtime: CPython\r\n" +
		"Authorization: Bearer sk-0123456789abcdef0123456789abcdef\r\nx-stainless-retry-count: 0\r\nContent-Length: 1024\r\n\r\n"
	h := new(fasthttp.RequestHeader)
	if err := h.Read(bufio.NewReader(strings.NewReader(raw))); err != nil {
		t.Fatal(err)
	}
	return h
}

func TestGateAllocatesNothing(t *testing.T) {
	h := gateHead(t)
	n := testing.AllocsPerRun(100, func() {
		if e := fault.OfGate(gate.CheckRequest(h)); e != nil {
			t.Fatal(e)
		}
		if e := fault.OfGate(gate.CheckBodyHeaders(h, gate.JSON, true)); e != nil {
			t.Fatal(e)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations a request, want 0", n)
	}
}

func BenchmarkGate(b *testing.B) {
	h := gateHead(b)
	b.ReportAllocs()
	for b.Loop() {
		if e := fault.OfGate(gate.CheckRequest(h)); e != nil {
			b.Fatal(e)
		}
		if e := fault.OfGate(gate.CheckBodyHeaders(h, gate.JSON, false)); e != nil {
			b.Fatal(e)
		}
	}
}
