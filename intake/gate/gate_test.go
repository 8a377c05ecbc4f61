package gate

import (
	"strings"
	"testing"
)

const (
	hostLine = "Host: x\r\n"
	sizeLine = "Content-Length: 2\r\n"
	teLine   = "Transfer-Encoding: chunked\r\n"
)

// The gate refuses these by itself, whatever fasthttp does before it.
func TestCheckFields(t *testing.T) {
	for _, c := range []struct {
		name, raw string
		old       bool // HTTP/1.0
		status    int
	}{
		{"good", hostLine + sizeLine + "\r\n", false, 0},
		{"no field on 1.0", "", true, 0},
		{"no field on 1.1", "", false, 400},
		{"empty line first", "\r\n", false, 400},
		{"empty line between", hostLine + "\r\n" + sizeLine + "\r\n", false, 400},
		{"cut line", hostLine + "Content-Le", false, 400},
		{"bare LF", "Host: x\n\r\n", false, 400},
		{"empty name", hostLine + ": x\r\n\r\n", false, 400},
		{"folded", "X-A: 1\r\n 2\r\n" + hostLine + "\r\n", false, 400},
		{"control byte", hostLine + "X-A: \x1f\r\n\r\n", false, 400},
		{"DEL", hostLine + "X-A: \x7f\r\n\r\n", false, 400},
		{"two Hosts", hostLine + hostLine + "\r\n", false, 400},
		{"two lengths", hostLine + sizeLine + sizeLine + "\r\n", false, 400},
		{"two codings", hostLine + teLine + teLine + "\r\n", false, 400},
		{"length and coding", hostLine + sizeLine + teLine + "\r\n", false, 400},
		{"coding on 1.0", teLine + "\r\n", true, 400},
		{"length with sign", hostLine + "Content-Length: +2\r\n\r\n", false, 400},
		{"empty length", hostLine + "Content-Length:\r\n\r\n", false, 400},
		{"identity", hostLine + "Transfer-Encoding: identity\r\n\r\n", false, 400},
		{"empty Host", "Host:\r\n\r\n", true, 400},
		{"Host of a port", "Host: :80\r\n\r\n", false, 400},
		{"Host and other byte before port", "Host: a/80\r\n\r\n", false, 400},
		{"Host with other bracket", "Host: [::1x\r\n\r\n", false, 400},
		{"Host with port behind bracket", "Host: [::ffff:1.2.3.4]:80\r\n\r\n", false, 0},
		{"Expect on 1.0", "Expect: 100-continue\r\n\r\n", true, 417},
		{"101 fields", hostLine + strings.Repeat("a:\r\n", 100) + "\r\n", false, 431},
		{"100 fields", hostLine + strings.Repeat("a:\r\n", 99) + "\r\n", false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			status := 0
			if e := checkFields([]byte(c.raw), !c.old); e != nil {
				status = e.Status
			}
			if status != c.status {
				t.Errorf("checkFields(%.60q) = %d, want %d", c.raw, status, c.status)
			}
		})
	}
}

func TestValidTarget(t *testing.T) {
	for target, want := range map[string]bool{
		"/": true, "/v1/completions?x=%41": true, "*": true,
		"": false, "v1": false, "*x": false, "http://evil/v1/completions": false, "evil:443": false,
		"/a#b": false, "/a b": false, "/a\x00": false, "/a\x7f": false, "/\xff": false,
	} {
		if got := validTarget([]byte(target)); got != want {
			t.Errorf("validTarget(%q) = %v, want %v", target, got, want)
		}
	}
}
