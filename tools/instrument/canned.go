package instrument

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// Pace is how a canned server streams.
type Pace struct {
	First    time.Duration // from a request to its first token
	Interval time.Duration // between two tokens
}

// Canned is a server whose streams cost as little as they can, so that the machine is left to the
// load generator. It computes nothing: each answer has as many equal tokens as it was asked for.
type Canned struct {
	pace     Pace
	listener net.Listener
}

// ServeCanned serves on a free port of loopback until ctx ends, and first tells its URL to out.
func ServeCanned(ctx context.Context, pace Pace, out io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("serve canned streams: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	if _, err := fmt.Fprintf(out, "{\"url\":\"http://%s\"}\n", l.Addr()); err != nil {
		return fmt.Errorf("tell where canned streams are served: %w", err)
	}
	c := &Canned{pace: pace, listener: l}
	for {
		conn, err := l.Accept()
		if err != nil && ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("serve canned streams: %w", err)
		}
		go c.serve(conn)
	}
}

// serve answers the requests of a connection until it ends.
func (c *Canned) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	in := bufio.NewReaderSize(conn, 16<<10)
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, err := io.ReadAll(req.Body)
		if err == nil {
			err = c.answer(conn, req, body)
		}
		if err != nil {
			return
		}
	}
}

// asked is what a canned server looks at in a request.
type asked struct {
	Prompt  string `json:"prompt"`
	Limit   int    `json:"max_tokens"`
	Chat    int    `json:"max_completion_tokens"`
	Content []struct {
		Content any `json:"content"`
	} `json:"messages"`
}

const (
	cannedModels = `{"object":"list","data":[{"id":"canned","object":"model","root":"canned","max_model_len":1000000}]}`
	cannedHead   = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
	textEvent    = `{"id":"cmpl-6f1c2a7be0","object":"text_completion","created":1763800000,"model":"canned","choices":[{"index":0,"text":" token","logprobs":null,"finish_reason":null,"stop_reason":null,"token_ids":null}],"usage":null}`
	chatEvent    = `{"id":"chatcmpl-6f1c2a7be0","object":"chat.completion.chunk","created":1763800000,"model":"canned","choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null,"token_ids":null}],"usage":null}`
)

var errTold = errors.New("the answer was the connection's last")

func (c *Canned) answer(conn net.Conn, req *http.Request, body []byte) error {
	if req.URL.Path == "/v1/models" {
		_, err := fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(cannedModels), cannedModels)
		return err
	}
	if req.URL.Path == "/health" {
		_, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		return err
	}
	var a asked
	if req.Method != http.MethodPost || json.Unmarshal(body, &a) != nil || a.Limit+a.Chat < 1 {
		_, _ = io.WriteString(conn, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		return errTold
	}
	token, tokens := textEvent, a.Limit
	if len(a.Content) > 0 {
		token, tokens = chatEvent, a.Chat
	}
	if _, err := io.WriteString(conn, cannedHead); err != nil {
		return err
	}
	return c.stream(conn, token, tokens, max(len(a.Prompt)/4, 1))
}

// stream sends the tokens at the pace, one write each, then the usage, [DONE] and the end.
func (c *Canned) stream(conn net.Conn, token string, tokens, prompt int) error {
	whole := chunkOf(token)
	due := time.Now().Add(c.pace.First)
	for i := range tokens {
		time.Sleep(time.Until(due))
		due = due.Add(c.pace.Interval)
		if i == tokens-1 {
			whole = chunkOf(string(bytes.Replace([]byte(token), []byte(`"finish_reason":null`), []byte(`"finish_reason":"length"`), 1)))
		}
		if _, err := conn.Write(whole); err != nil {
			return err
		}
	}
	usage := fmt.Sprintf(`{"id":"cmpl-6f1c2a7be0","object":"text_completion","created":1763800000,"model":"canned","choices":[],"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}}`, prompt, prompt+tokens, tokens)
	_, err := conn.Write(append(append(chunkOf(usage), chunkOf("[DONE]")...), "0\r\n\r\n"...))
	return err
}

// chunkOf is an event as a chunk of a body.
func chunkOf(data string) []byte {
	return fmt.Appendf(nil, "%x\r\ndata: %s\n\n\r\n", len(data)+8, data)
}
