package soak

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"xpyd/tools/completion"
)

// badRequest is a request that the proxy itself must refuse, whatever the engines do.
type badRequest struct {
	name   string
	status int
	raw    string // %s is the line with the key
}

const goodBody = `{"model":"sim","prompt":"a","max_tokens":2}`

func badPost(more, body string) string {
	return "POST /v1/completions HTTP/1.1\r\nHost: soak\r\nContent-Type: application/json\r\n%s" + more +
		"Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
}

// malformedRequests returns requests that are not HTTP or not JSON, or that look like smuggling.
func malformedRequests() []badRequest {
	return []badRequest{
		{"no HTTP", 400, "HELO soak\r\n\r\n"},
		{"two lengths", 400, badPost("Content-Length: 3\r\n", goodBody)},
		{"length and chunks", 400, badPost("Transfer-Encoding: chunked\r\n", goodBody)},
		{"folded header", 400, badPost("X-A: b\r\n c\r\n", goodBody)},
		{"blank before the colon", 400, badPost("X-A : b\r\n", goodBody)},
		{"head of 40 KiB", 431, badPost("X-A: "+strings.Repeat("a", 40<<10)+"\r\n", goodBody)},
		{"bad chunk", 400, "POST /v1/completions HTTP/1.1\r\nHost: soak\r\nContent-Type: application/json\r\n%sTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n"},
		{"no JSON", 400, badPost("", `{"model":"sim","prompt":"a"`)},
		{"a field twice", 400, badPost("", `{"model":"sim","prompt":"a","prompt":"b"}`)},
		{"no route", 404, "POST /v1/nothing HTTP/1.1\r\nHost: soak\r\n%sContent-Length: 0\r\n\r\n"},
		{"a route of the engines' own", 404, "GET /sim/ledger HTTP/1.1\r\nHost: soak\r\n%s\r\n"},
		{"wrong method", 405, "DELETE /v1/completions HTTP/1.1\r\nHost: soak\r\n%sContent-Length: 0\r\n\r\n"},
		{"wrong key", 401, strings.Replace(badPost("", goodBody), "%s", "Authorization: Bearer wrong\r\n", 1)},
	}
}

// forbiddenRequests returns requests with what only the proxy may tell an engine. An engine that
// got one would die or hang.
func forbiddenRequests() []badRequest {
	return []badRequest{
		{"kv_transfer_params", 400, badPost("", `{"model":"sim","prompt":"a","kv_transfer_params":{"do_remote_prefill":true}}`)},
		{"kv_transfer_params, no object", 400, badPost("", `{"model":"sim","prompt":"a","kv_transfer_params":[1]}`)},
		{"kv_transfer_params, escaped", 400, badPost("", `{"model":"sim","prompt":"a","kv_transfer_param\u0073":{"do_remote_decode":true}}`)},
		{"disagg_id", 400, badPost("", `{"model":"sim","prompt":"a","disagg_id":"x"}`)},
	}
}

// misbehave sends one bad request on a connection of its own.
func (c *client) misbehave(load string, all []badRequest) {
	b := all[c.r.IntN(len(all))]
	what, bad := c.refusedOf(b)
	if bad == nil {
		c.s.tally.ended(load, what)
		return
	}
	c.s.tally.ended(load, "WRONG")
	c.s.verdict.Breach(bad.invariant, load+" request: "+bad.what, "%s: %s", b.name, bad.detail)
}

func (c *client) refusedOf(b badRequest) (string, *wrong) {
	resp, body, err := c.sendRaw(strings.Replace(b.raw, "%s", "Authorization: Bearer "+c.s.key+"\r\n", 1))
	if err != nil {
		return "", wrongf(invOutcomes, "no answer", "%v", err)
	}
	if resp.StatusCode != b.status {
		return "", wrongf(invOutcomes, "the wrong status", "%d in place of %d: %.200q", resp.StatusCode, b.status, body)
	}
	if what, bad := refused(resp, body); bad != nil {
		return what, bad
	}
	return strconv.Itoa(b.status), nil
}

func (c *client) sendRaw(raw string) (*http.Response, []byte, error) {
	under, err := net.DialTimeout("tcp", c.s.proxy.address(), completion.Patience)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the proxy: %w", err)
	}
	defer func() { _ = under.Close() }()
	conn := c.secure(under)
	_ = conn.SetDeadline(time.Now().Add(completion.Patience)) // fails on a closed connection, as the read then does
	if _, err := io.WriteString(conn, raw); err != nil {
		return nil, nil, fmt.Errorf("send: %w", err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil, nil, fmt.Errorf("read the answer's head: %w", err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, nil, fmt.Errorf("read the answer: %w", err)
	}
	return resp, body, nil
}
