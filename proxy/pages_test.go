package proxy_test

import (
	"strings"
	"testing"

	"xpyd/intake/cors"
	"xpyd/proxy"
)

const page = "https://chat.example.com"

// OPTIONS says what a route takes, without a key. Without cors.origins no page may do anything.
func TestOptions(t *testing.T) {
	r := newRig(t, rigOptions{config: func(c *proxy.Config) { c.APIKeys = []string{"k"} }})
	for path, allow := range map[string]string{
		"/v1/chat/completions": "POST, OPTIONS", "/v1/embeddings": "POST, OPTIONS", "/v1/models": "GET, HEAD, OPTIONS",
		"/livez": "GET, HEAD, OPTIONS", "/version": "GET, HEAD, OPTIONS",
	} {
		a := r.send("OPTIONS", path, "", "Origin", page, "Access-Control-Request-Method", "POST")
		if a.status != 204 || a.header.Get("Allow") != allow || a.body != "" {
			t.Errorf("%s: %d, Allow %q, %q", path, a.status, a.header.Get("Allow"), a.body)
		}
		for name := range a.header {
			if strings.HasPrefix(name, "Access-Control-") || name == "Vary" {
				t.Errorf("%s: %s: %s", path, name, a.header.Get(name))
			}
		}
	}
	if a := r.send("OPTIONS", "/nowhere", ""); a.status != 404 {
		t.Errorf("an unknown path: %d", a.status)
	}
	if a := r.send("GET", "/v1/completions", "", "Authorization", "Bearer k"); a.status != 405 || a.header.Get("Allow") != "POST, OPTIONS" {
		t.Errorf("another method: %d, Allow %q", a.status, a.header.Get("Allow"))
	}
	for path, allow := range map[string]string{"/v1/completions": "POST, OPTIONS", "/livez": "GET, HEAD, OPTIONS", "/nowhere": "GET, HEAD, POST, OPTIONS"} {
		if a := r.send("DELETE", path, ""); a.status != 405 || a.header.Get("Allow") != allow || a.header.Get("X-Should-Retry") != "false" {
			t.Errorf("DELETE %s: %d, Allow %q, X-Should-Retry %q", path, a.status, a.header.Get("Allow"), a.header.Get("X-Should-Retry"))
		}
	}
	conn := r.dialRaw()
	if _, a := r.read10(write(conn, "OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")); a.status != 204 || a.header.Get("Allow") != "GET, HEAD, POST, OPTIONS" {
		t.Errorf("*: %d, Allow %q", a.status, a.header.Get("Allow"))
	}
	r.expectWhole(forms(prompt, 2)[0], r.call(forms(prompt, 2)[0], "Authorization", "Bearer k"))
}

// A page that may use the port can read every answer to it: whole ones, streams and errors.
func TestPagesOfOtherOrigins(t *testing.T) {
	r := newRig(t, rigOptions{config: func(c *proxy.Config) {
		c.APIKeys, c.CORS = []string{"k"}, cors.Config{Origins: []string{page}}
	}})
	readable := func(what string, a answer, status int) {
		t.Helper()
		exposed := a.header.Get("Access-Control-Expose-Headers")
		if a.status != status || a.header.Get("Access-Control-Allow-Origin") != page || a.header.Get("Vary") != "Origin" || !strings.Contains(exposed, "X-Request-Id") {
			t.Errorf("%s: %d %v", what, a.status, a.header)
		}
	}
	a := r.send("OPTIONS", "/v1/chat/completions", "", "Origin", page, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,content-type")
	if a.status != 204 || a.header.Get("Access-Control-Allow-Origin") != page || a.header.Get("Access-Control-Allow-Methods") != "POST, OPTIONS" ||
		a.header.Get("Access-Control-Allow-Headers") != "authorization,content-type" {
		t.Errorf("preflight: %d %v", a.status, a.header)
	}
	for _, c := range forms(prompt, 3) {
		a := r.call(c, "Origin", page, "Authorization", "Bearer k")
		r.expectWhole(c, a)
		readable(c.name(), a, 200)
		if a := r.call(c, "Origin", "https://evil.example.com", "Authorization", "Bearer k"); a.status != 200 || a.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s of another page: %d %v", c.name(), a.status, a.header)
		}
		conn := r.dialRaw()
		head, _ := r.read10(write(conn, raw10(c, "Origin: "+page+"\r\nAuthorization: Bearer k\r\n"))) // as behind nginx
		if head.Get("Access-Control-Allow-Origin") != page {
			t.Errorf("%s over HTTP/1.0: %v", c.name(), head)
		}
	}
	readable("no key", r.post("/v1/completions", "{}", "Origin", page), 401)
	readable("bad body", r.post("/v1/completions", "{", "Origin", page, "Authorization", "Bearer k"), 400)
	readable("no route", r.post("/nowhere", "{}", "Origin", page), 404)
	readable("models", r.send("GET", "/v1/models", "", "Origin", page, "Authorization", "Bearer k"), 200)
	readable("relayed", r.post("/tokenize", `{"model":"sim","prompt":"x"}`, "Origin", page, "Authorization", "Bearer k"), 200)
	readable("health", r.send("GET", "/health", "", "Origin", page), 200)
}
