package cors

import (
	"strings"
	"testing"

	"github.com/valyala/fasthttp"
)

func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		origins     []string
		credentials bool
		wrong       string // part of what is said; empty: nothing is
	}{
		{nil, false, ""},
		{nil, true, ""},
		{[]string{"*"}, false, ""},
		{[]string{"*"}, true, "together with cors.credentials"},
		{[]string{"*", "https://a.example"}, false, "remove the others"},
		{[]string{"https://a.example", "http://localhost:3000", "http://[::1]:3000", "tauri://localhost"}, true, ""},
		{[]string{"https://a.example", "https://a.example"}, false, "twice"},
		{[]string{"https://a.example/"}, false, "no origin"},
		{[]string{"https://a.example/chat"}, false, "no origin"},
		{[]string{"https://A.example"}, false, "no origin"},
		{[]string{"https://a.example:443"}, false, "no origin"},
		{[]string{"http://a.example:80"}, false, "no origin"},
		{[]string{"https://a.example:"}, false, "no origin"},
		{[]string{"https://me@a.example"}, false, "no origin"},
		{[]string{"a.example"}, false, "no origin"},
		{[]string{"null"}, false, "no origin"},
		{[]string{"https://*.a.example"}, false, "no origin"},
	} {
		_, err := Config{Origins: tt.origins, Credentials: tt.credentials}.Check()
		if (err == nil) != (tt.wrong == "") || err != nil && !strings.Contains(err.Error(), tt.wrong) {
			t.Errorf("%q, credentials %v: %v, want %q", tt.origins, tt.credentials, err, tt.wrong)
		}
	}
}

// answer is what the policy writes into the head of an answer to a request with the given fields.
func answer(p *Policy, method string, fields ...string) *fasthttp.ResponseHeader {
	ctx := &fasthttp.RequestCtx{}
	ctx.Request.Header.SetMethod(method)
	for i := 0; i < len(fields); i += 2 {
		ctx.Request.Header.Set(fields[i], fields[i+1])
	}
	if method == "OPTIONS" {
		p.Options(ctx, "POST, OPTIONS")
	}
	p.Mark(ctx)
	p.Mark(ctx) // an answer may be marked twice
	return &ctx.Response.Header
}

func TestMark(t *testing.T) {
	one := New(Config{Origins: []string{"https://a.example", "https://b.example"}})
	trusted := New(Config{Origins: []string{"https://a.example"}, Credentials: true})
	all := New(Config{Origins: []string{"*"}})
	for _, tt := range []struct {
		name                     string
		p                        *Policy
		origin                   string
		allow, vary, credentials string
	}{
		{"off", New(Config{}), "https://a.example", "", "", ""},
		{"listed", one, "https://b.example", "https://b.example", "Origin", ""},
		{"not listed", one, "https://c.example", "", "Origin", ""},
		{"longer", one, "https://a.example.evil.example", "", "Origin", ""},
		{"another scheme", one, "http://a.example", "", "Origin", ""},
		{"null", one, "null", "", "Origin", ""},
		{"no page", one, "", "", "Origin", ""},
		{"all", all, "https://c.example", "*", "", ""},
		{"all, no page", all, "", "", "", ""},
		{"credentials", trusted, "https://a.example", "https://a.example", "Origin", "true"},
		{"credentials, not listed", trusted, "https://b.example", "", "Origin", ""},
	} {
		h := answer(tt.p, "POST", "Origin", tt.origin)
		if got := string(h.Peek("Access-Control-Allow-Origin")); got != tt.allow {
			t.Errorf("%s: allowed %q, want %q", tt.name, got, tt.allow)
		}
		if got := string(h.Peek("Vary")); got != tt.vary || len(h.PeekAll("Vary")) > 1 {
			t.Errorf("%s: Vary %q, want %q", tt.name, got, tt.vary)
		}
		if got := string(h.Peek("Access-Control-Allow-Credentials")); got != tt.credentials {
			t.Errorf("%s: credentials %q, want %q", tt.name, got, tt.credentials)
		}
		if got := strings.Contains(string(h.Peek("Access-Control-Expose-Headers")), "X-Request-Id, Request-Id, "); got != (tt.allow != "") {
			t.Errorf("%s: X-Request-Id and Request-Id are exposed: %v", tt.name, got)
		}
	}
}

func TestPreflight(t *testing.T) {
	p := New(Config{Origins: []string{"https://a.example"}})
	const asked = "authorization,content-type,x-stainless-lang"
	h := answer(p, "OPTIONS", "Origin", "https://a.example", "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", asked)
	for name, want := range map[string]string{
		"Access-Control-Allow-Origin": "https://a.example", "Access-Control-Allow-Methods": "POST, OPTIONS",
		"Access-Control-Allow-Headers": asked, "Access-Control-Max-Age": "600", "Allow": "POST, OPTIONS",
		"Vary": "Origin, Access-Control-Request-Method, Access-Control-Request-Headers",
	} {
		if got := string(h.Peek(name)); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	for name, fields := range map[string][]string{
		"another page": {"Origin", "https://b.example", "Access-Control-Request-Method", "POST"},
		"no preflight": {"Origin", "https://a.example"},
		"no page":      nil,
	} {
		h := answer(p, "OPTIONS", fields...)
		if got := string(h.Peek("Access-Control-Allow-Methods")); got != "" || string(h.Peek("Allow")) != "POST, OPTIONS" {
			t.Errorf("%s: methods %q allowed, Allow %q", name, got, h.Peek("Allow"))
		}
	}
	h = answer(p, "OPTIONS", "Origin", "https://a.example", "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "x\x01")
	if got := string(h.Peek("Access-Control-Allow-Headers")); got != "" {
		t.Errorf("what is no list of names is allowed: %q", got)
	}
}
