// Package client is the client of a benchmark: it sends one completion, reads the stream, and
// records when the tokens came. An answer that is not whole is a failure.
package client

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// The APIs that a client speaks.
const (
	Completions = "completions"
	Chat        = "chat"
)

// Options name the server and say how the client asks it.
type Options struct {
	URL      string // base, without /v1
	API      string // Completions or Chat
	Model    string
	Header   http.Header // on each request
	Key      string      // sent as a bearer token; "" for none
	Insecure bool        // takes any certificate

	Temperature *float64 // nil leaves it to the server
	IgnoreEOS   bool
	Extra       map[string]any // further members of each body
	KeepText    bool           // answers have their texts; each event costs more CPU

	Stall   time.Duration // longest wait between two events, once the first token has come
	Timeout time.Duration // longest time of one request
}

// Client asks one server. Its methods may be called concurrently.
type Client struct {
	o    Options
	path string
	http *http.Client
}

// idleTime is shorter than that of servers (uvicorn's is 5 s). A request on a connection that the
// server is just closing would count as a failure, though the server did nothing wrong.
const idleTime = 3 * time.Second

// endTime is how long a body may take to end after [DONE].
const endTime = time.Second

// New makes a client. Nothing is sent.
func New(o Options) (*Client, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("URL %q: want http://host:port", o.URL)
	}
	o.URL = strings.TrimSuffix(strings.TrimSuffix(o.URL, "/"), "/v1")
	c := &Client{o: o}
	switch o.API {
	case Completions:
		c.path = o.URL + "/v1/completions"
	case Chat:
		c.path = o.URL + "/v1/chat/completions"
	default:
		return nil, fmt.Errorf("API %q: want %s or %s", o.API, Completions, Chat)
	}
	c.http = &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			TLSClientConfig:     &tls.Config{InsecureSkipVerify: o.Insecure},
			DisableCompression:  true,
			MaxIdleConnsPerHost: 1 << 16,
			IdleConnTimeout:     idleTime,
			DialContext:         dial,
		},
	}
	return c, nil
}

// Close ends the idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Answer is what came of one request.
type Answer struct {
	Sent   time.Time       // just before the request begins, connection included
	First  time.Time       // of the first event with a token; zero for none
	Last   time.Time       // of the last
	End    time.Time       // when the answer was over, or failed
	Gaps   []time.Duration // between events with tokens
	Prompt int             // tokens, by usage
	Output int
	Cached int
	Finish string
	Status int // 0: no head came

	Failure string // a code; "" for a whole answer
	Detail  string
	Text    string // of a whole answer, with Options.KeepText

	text    *strings.Builder // nil: not kept
	usage   usage
	counted bool
}

// Do sends a body that Body made, and reads the answer. limit is the most tokens that it may have.
func (c *Client) Do(ctx context.Context, id string, body []byte, limit int) *Answer {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	whole := time.AfterFunc(c.o.Timeout, func() { cancel(errTimeout) })
	defer whole.Stop()
	a := &Answer{Gaps: make([]time.Duration, 0, min(limit, 4096))}
	if c.o.KeepText {
		a.text = &strings.Builder{}
	}
	a.Sent = time.Now()
	err := c.exchange(ctx, cancel, a, id, body, limit)
	a.End = time.Now()
	if err != nil {
		a.Failure, a.Detail = classify(ctx, err, a.Status != 0)
	} else if a.text != nil {
		a.Text = a.text.String()
	}
	return a
}

func (c *Client) exchange(ctx context.Context, cancel context.CancelCauseFunc, a *Answer, id string, body []byte, limit int) (err error) {
	req, err := c.request(ctx, http.MethodPost, c.path, body)
	if err != nil {
		return err
	}
	req.Header.Set("X-Request-Id", id)
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	a.Status = resp.StatusCode
	if a.Status != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // the status says enough when the body breaks off
		return badStatus(resp, text)
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "text/event-stream" {
		return wrongf(FailNoStream, "Content-Type %q", resp.Header.Get("Content-Type"))
	}
	if coding := resp.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return wrongf(FailNoStream, "Content-Encoding %q, which was not asked for", coding)
	}
	stall := time.AfterFunc(c.o.Timeout, func() { cancel(errStall) })
	stall.Stop() // until the first token
	defer stall.Stop()
	s := &events{in: bufio.NewReaderSize(resp.Body, 8<<10)}
	if err := a.read(s, limit, func() { stall.Reset(c.o.Stall) }); err != nil {
		return err
	}
	stall.Reset(endTime)
	if data, _ := s.next(); data != nil { // the connection's next answer shows how this one's body ends
		return wrongf(FailEvent, "after [DONE]: %.100q", data)
	}
	return a.judge(limit)
}

func (c *Client) request(ctx context.Context, method, url string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", err)
	}
	for name, values := range c.o.Header {
		req.Header[name] = values
	}
	if c.o.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.o.Key)
	}
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}
