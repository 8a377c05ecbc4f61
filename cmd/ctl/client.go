// Package ctl operates a running xpyd over its admin port, and prints what it tells.
package ctl

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"xpyd/netio/tlsconf"
)

// Client sends requests to one admin port.
type Client struct {
	base, token string
	http        *http.Client
}

// callTime bounds one request. A reload may read slow files for some seconds.
const callTime = 30 * time.Second

// mostAnswer bounds an answer, in bytes.
const mostAnswer = 64 << 20

// New makes a client for the admin port at addr: a URL, or host and port. tlsConf may be nil.
func New(addr, token string, tlsConf *tls.Config) (*Client, error) {
	base, err := baseOf(addr)
	if err != nil {
		return nil, err
	}
	// A kept connection would go on to a process that has handed over, and nobody closes a Client.
	transport := &http.Transport{TLSClientConfig: tlsConf, Proxy: nil, DisableKeepAlives: true}
	return &Client{base, token, &http.Client{Transport: transport, Timeout: callTime, CheckRedirect: stay}}, nil
}

// stay has no redirect followed, as the token is for base only.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// baseOf returns the URL of an admin port. An address for all interfaces means this machine.
func baseOf(addr string) (string, error) {
	if !strings.Contains(addr, "://") {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return "", fmt.Errorf("--admin: %q must be a URL, such as http://127.0.0.1:8081", addr)
		}
		addr = "http://" + addr
	}
	u, err := url.Parse(addr)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return "", errors.New("--admin: must be http:// or https:// with host and port only, such as http://127.0.0.1:8081")
	}
	if ip := net.ParseIP(u.Hostname()); u.Port() != "" && (u.Hostname() == "" || ip != nil && ip.IsUnspecified()) {
		u.Host = net.JoinHostPort("127.0.0.1", u.Port())
	}
	return u.Scheme + "://" + u.Host, nil
}

// Base is the URL of the admin port.
func (c *Client) Base() string { return c.base }

// call sends one request and decodes its answer into v, unless that is nil. It returns the status.
func (c *Client) call(ctx context.Context, method, path string, body, v any) (int, error) {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return 0, err
		}
	}
	status, answer, err := c.exchange(ctx, method, path, text)
	switch {
	case err != nil:
		return status, err
	case status >= 300:
		if v != nil {
			_ = json.Unmarshal(answer, v) // a refusal may have its details
		}
		return status, refusal(status, method, path, answer)
	case v == nil:
		return status, nil
	}
	if err := json.Unmarshal(answer, v); err != nil {
		return status, fmt.Errorf("%s %s: no answer of xpyd's admin port: %w", method, c.base+path, err)
	}
	return status, nil
}

// plainToTLS is how Go's server begins its answer to a request without TLS on a port that speaks TLS.
const plainToTLS = "Client sent an HTTP request to an HTTPS server"

// exchange sends one request and returns the status and the text of its answer.
func (c *Client) exchange(ctx context.Context, method, path string, body []byte) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Xpyd-Client", "ctl") // for who has changed something
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, mostAnswer))
	switch {
	case err != nil:
		err = fmt.Errorf("%s %s: %w", method, c.base+path, err)
	case resp.StatusCode == http.StatusBadRequest && bytes.HasPrefix(answer, []byte(plainToTLS)):
		err = fmt.Errorf("--admin: %s speaks TLS; give https://%s", c.base, strings.TrimPrefix(c.base, "http://"))
	}
	return resp.StatusCode, answer, err
}

// Refusal is an error that the admin port explains itself.
type Refusal struct {
	Status int
	text   string
}

func (r *Refusal) Error() string { return r.text }

// refusal makes an error of an answer that is none.
func refusal(status int, method, path string, answer []byte) error {
	var told struct {
		Error string `json:"error"`
	}
	switch {
	case json.Unmarshal(answer, &told) == nil && told.Error != "":
		return &Refusal{status, told.Error}
	case status == http.StatusUnauthorized:
		return errors.New("the admin port wants its token; give --admin-token-file")
	case status < 400:
		return fmt.Errorf("%s %s: status %d, a redirect, which is not followed; give the final URL in --admin", method, path, status)
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed:
		return fmt.Errorf("%s %s: status %d; is this the admin port of an xpyd that can do this?", method, path, status)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(answer)), "\n")
	return fmt.Errorf("%s %s: status %d: %.200s", method, path, status, line)
}

// Change is what POST and PATCH take. Fields that are nil are left out. A 0 or an empty text that an operator gave
// goes along, so that the admin port can refuse it.
type Change struct {
	URL    string   `json:"url,omitempty"`
	Role   string   `json:"role,omitempty"`
	State  *string  `json:"state,omitempty"`
	Weight *float64 `json:"weight,omitempty"`
	GPUs   *float64 `json:"gpus,omitempty"`

	Bootstrap *int    `json:"bootstrap,omitempty"`
	Connector *string `json:"connector,omitempty"`
}

// Outcome is what has become of a backend.
type Outcome struct {
	URL     string    `json:"url"`
	Backend *Backend  `json:"backend"`
	Ranks   []Backend `json:"ranks"` // of an engine that says itself how many it has
	Leaving *Leaving  `json:"leaving"`
	KeptIn  string    `json:"kept_in"`
	Note    string    `json:"note"`
	Warning string    `json:"warning"`
}

// Add adds a backend.
func (c *Client) Add(ctx context.Context, to Change) (o Outcome, err error) {
	_, err = c.call(ctx, http.MethodPost, "/backends", to, &o)
	return o, err
}

// Patch changes the backend that id names: its URL, or host and port.
func (c *Client) Patch(ctx context.Context, id string, to Change) (o Outcome, err error) {
	_, err = c.call(ctx, http.MethodPatch, "/backends/"+url.PathEscape(id), to, &o)
	return o, err
}

// Remove removes a backend. With force nothing waits for an answer of it.
func (c *Client) Remove(ctx context.Context, id string, force bool) (o Outcome, err error) {
	path := "/backends/" + url.PathEscape(id)
	if force {
		path += "?force"
	}
	_, err = c.call(ctx, http.MethodDelete, path, nil, &o)
	return o, err
}

// Reload makes the process read its configuration again.
func (c *Client) Reload(ctx context.Context) error {
	_, err := c.call(ctx, http.MethodPost, "/reload", struct{}{}, nil)
	return err
}

// AdapterDone is what became of an adapter on one engine.
type AdapterDone struct {
	URL   string `json:"url"`
	Error string `json:"error"`
}

// Adapter loads an adapter on all engines of a model, or unloads it if path is empty. What became of it on each engine is
// no error.
func (c *Client) Adapter(ctx context.Context, name, path, model string) ([]AdapterDone, error) {
	method, at, body := http.MethodDelete, "/adapters/"+url.PathEscape(name), any(nil)
	if path != "" {
		method, body = http.MethodPut, map[string]string{"path": path, "model": model}
	} else if model != "" {
		at += "?model=" + url.QueryEscape(model)
	}
	var told struct {
		Engines []AdapterDone `json:"engines"`
	}
	_, err := c.call(ctx, method, at, body, &told)
	if len(told.Engines) > 0 { // all have refused
		err = nil
	}
	return told.Engines, err
}

// level is the log's.
type level struct {
	Level string `json:"level"`
}

// Level returns the level of the log.
func (c *Client) Level(ctx context.Context) (string, error) {
	var l level
	_, err := c.call(ctx, http.MethodGet, "/log-level", nil, &l)
	return l.Level, err
}

// SetLevel changes the level of the log.
func (c *Client) SetLevel(ctx context.Context, to string) error {
	_, err := c.call(ctx, http.MethodPut, "/log-level", level{to}, nil)
	return err
}

// Healthy asks whether the process lives, or with ready whether it serves completions. The error says
// why it does not.
func (c *Client) Healthy(ctx context.Context, ready bool) error {
	path := "/livez"
	if ready {
		path = "/readyz"
	}
	_, err := c.call(ctx, http.MethodGet, path, nil, nil)
	return err
}

// Line says what has become of the backend.
func (o Outcome) Line() string {
	rest := ""
	if l := o.Leaving; l != nil {
		rest = fmt.Sprintf("; as %s it still has %s and %s", l.Role, counted(l.InFlight, "request"), counted(l.Handles, "handle"))
	}
	all := o.Ranks
	if o.Backend != nil {
		all = []Backend{*o.Backend}
	}
	if len(all) == 0 {
		return o.URL + ": removed" + rest
	}
	var lines []string
	for _, b := range all {
		lines = append(lines, b.line())
	}
	return strings.Join(lines, "\n") + rest
}

func (b Backend) line() string {
	line := fmt.Sprintf("%s: %s, %s, weight %v", b.URL, b.Role, b.states(), b.Weight)
	if b.AdminState != "ready" && !b.Drained {
		line += fmt.Sprintf(", %s and %s left", counted(b.InFlight, "request"), counted(b.Handles, "handle"))
	}
	return line
}

// counted is "1 request", or "2 requests".
func counted(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Explain makes one line of an error of a request to c. nil stays nil.
func Explain(c *Client, err error) error {
	var ue *url.Error
	if !errors.As(err, &ue) {
		return err
	}
	if ue.Timeout() {
		return fmt.Errorf("%s does not answer in time", c.base)
	}
	told := tlsconf.Remedies{
		CA: "give that CA in --admin-ca", Name: "give one of these names in --admin",
		Plain: "give http:// in --admin", Cert: "give one that it takes in --admin-cert and --admin-key",
	}.Explain(ue.Err)
	if tlsconf.IsExplained(told) {
		return fmt.Errorf("%s: %w", c.base, told)
	}
	return fmt.Errorf("%s: %w; is xpyd running there, with this admin port?", c.base, told)
}
