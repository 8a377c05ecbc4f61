package cmd

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"xpyd/sim"
)

// client uses one connection at a time, and never retries a request.
type client struct {
	addr string
	kept bool // keeps its connection as long as the server does
	conn *connection
}

type connection struct {
	net.Conn
	*bufio.Reader
}

// ask sends one completion and returns an error unless the answer is whole.
func (c *client) ask(prompt string, tokens int, stream bool) (closing bool, err error) {
	if c.conn == nil {
		if c.conn, err = dial(c.addr); err != nil {
			return false, err
		}
	}
	resp, err := c.conn.send(prompt, tokens, stream, !c.kept)
	if err == nil {
		err = wholeAnswer(resp, prompt, tokens, stream)
		closing = resp.Close
	}
	if err != nil || closing || !c.kept {
		c.close()
	}
	return closing, err
}

func (c *client) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

func completionBody(prompt string, tokens int, stream bool) string {
	return fmt.Sprintf(`{"model":"sim","prompt":%q,"max_tokens":%d,"stream":%v}`, prompt, tokens, stream)
}

// send writes one request and reads the head of its answer.
func (c *connection) send(prompt string, tokens int, stream, last bool) (*http.Response, error) {
	_ = c.SetDeadline(time.Now().Add(patience)) // a kept connection carries many requests
	req, err := http.NewRequest(http.MethodPost, "http://x/v1/completions", strings.NewReader(completionBody(prompt, tokens, stream)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Close = last
	if err := req.Write(c); err != nil {
		return nil, fmt.Errorf("send: %w", err)
	}
	resp, err := http.ReadResponse(c.Reader, req)
	if err != nil {
		return nil, fmt.Errorf("receive: %w", err)
	}
	return resp, nil
}

// wholeAnswer reads the body to its end.
func wholeAnswer(resp *http.Response, prompt string, tokens int, stream bool) error {
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("read: %w after %s", err, body[max(0, len(body)-400):])
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d: %s", resp.StatusCode, body)
	}
	var text strings.Builder
	for _, part := range strings.Split(string(body), "\n") {
		var answer struct{ Choices []struct{ Text string } }
		if json.Unmarshal([]byte(strings.TrimPrefix(part, "data: ")), &answer) == nil && len(answer.Choices) == 1 {
			text.WriteString(answer.Choices[0].Text)
		}
	}
	if stream && !strings.HasSuffix(string(body), "data: [DONE]\n\n") {
		return errors.New("a stream without [DONE]")
	}
	if want := sim.Text(prompt, tokens); text.String() != want {
		return fmt.Errorf("text %q, want %q", text.String(), want)
	}
	return nil
}
