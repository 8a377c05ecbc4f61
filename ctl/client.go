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

	"xpyd/tlsconf"
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
	return &Client{base, token, &http.Client{Transport: transport, Timeout: callTime}}, nil
}

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
	var text io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return 0, err
		}
		text = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, text)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, mostAnswer))
	if err != nil {
		return resp.StatusCode, fmt.Errorf("%s %s: %w", method, c.base+path, err)
	}
	if resp.StatusCode >= 300 {
		return resp.StatusCode, refusal(resp.StatusCode, method, path, answer)
	}
	if v == nil {
		return resp.StatusCode, nil
	}
	if err := json.Unmarshal(answer, v); err != nil {
		return resp.StatusCode, fmt.Errorf("%s %s: no answer of xpyd's admin port: %w", method, c.base+path, err)
	}
	return resp.StatusCode, nil
}

// refusal makes an error of an answer that is none.
func refusal(status int, method, path string, answer []byte) error {
	var told struct {
		Error string `json:"error"`
	}
	switch {
	case json.Unmarshal(answer, &told) == nil && told.Error != "":
		return errors.New(told.Error)
	case status == http.StatusUnauthorized:
		return errors.New("the admin port wants its token; give --admin-token-file")
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed:
		return fmt.Errorf("%s %s: status %d; is this the admin port of an xpyd that can do this?", method, path, status)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(answer)), "\n")
	return fmt.Errorf("%s %s: status %d: %.200s", method, path, status, line)
}

// Change is what POST and PATCH take. Empty fields are left out.
type Change struct {
	URL    string  `json:"url,omitempty"`
	Role   string  `json:"role,omitempty"`
	State  string  `json:"state,omitempty"`
	Weight float64 `json:"weight,omitempty"`
	GPUs   float64 `json:"gpus,omitempty"`

	Bootstrap int    `json:"bootstrap,omitempty"`
	Connector string `json:"connector,omitempty"`
}

// Outcome is what has become of a backend.
type Outcome struct {
	URL     string    `json:"url"`
	Backend *Backend  `json:"backend"`
	Ranks   []Backend `json:"ranks"`  // of an engine that says itself how many it has
	Absent  bool      `json:"absent"` // it is a rank that its engine does not have now
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
		rest = fmt.Sprintf("; as %s it still has %d requests and %d handles", l.Role, l.InFlight, l.Handles)
	}
	all := o.Ranks
	if o.Backend != nil {
		all = []Backend{*o.Backend}
	}
	if o.Absent {
		return o.URL + ": its engine does not have this rank now; the change is for when it has" + rest
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
		line += fmt.Sprintf(", %d requests and %d handles left", b.InFlight, b.Handles)
	}
	return line
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
	return fmt.Errorf("%s: %w; is xpyd running there, with this admin port?", c.base, tlsconf.Explain(ue.Err))
}
