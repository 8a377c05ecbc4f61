package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"time"

	"xpyd/tools/sse"
)

// visit is one request of a client that may leave at any moment. It has a connection of its own.
type visit struct {
	conn net.Conn
	in   *bufio.Reader
	res  *http.Response
}

// visitTime bounds a visit, which may last until engines are started again. stepTime bounds a
// single step of one. Both are far longer than needed.
const (
	visitTime = checkTime
	stepTime  = time.Minute
)

// call writes a request and returns without waiting for its answer. id is X-Request-Id; more
// are further header fields.
func call(ctx context.Context, url, path, id string, body []byte, more ...string) (*visit, error) {
	addr := strings.TrimPrefix(url, "http://")
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", addr, err)
	}
	_ = conn.SetDeadline(time.Now().Add(visitTime)) // fails on a closed connection only
	fields := append([]string{"Host: " + addr, "Content-Type: application/json", "X-Request-Id: " + id, fmt.Sprint("Content-Length: ", len(body))}, more...)
	head := "POST " + path + " HTTP/1.1\r\n" + strings.Join(fields, "\r\n") + "\r\n\r\n"
	if _, err := conn.Write(append([]byte(head), body...)); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("call %s: %w", addr, err)
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() }) // nobody waits for an answer once the run is to end
	return &visit{conn: conn, in: bufio.NewReader(conn)}, nil
}

// close is how a client leaves. Later calls do nothing.
func (v *visit) close() { _ = v.conn.Close() }

// head waits for the status line and the header.
func (v *visit) head() (status int, err error) {
	if v.res, err = http.ReadResponse(v.in, nil); err != nil {
		return 0, fmt.Errorf("read the head of an answer: %w", err)
	}
	return v.res.StatusCode, nil
}

// whole reads the answer to its end. An error after some of the body means that the transfer broke
// off. What came is returned with it.
func (v *visit) whole() (status int, body []byte, err error) {
	if status, err = v.head(); err != nil {
		return 0, nil, err
	}
	body, err = io.ReadAll(v.res.Body)
	return status, body, err
}

// events waits until n events of a stream have come.
func (v *visit) events(n int) error {
	if _, err := v.head(); err != nil {
		return err
	}
	events := sse.NewReader(v.res.Body)
	for range n {
		if _, err := events.Next(); err != nil {
			return err
		}
	}
	return nil
}

// ask is a request whose answer is wanted. It is greedy, and never ends by chance.
type ask struct {
	chat   bool
	stream bool
	prompt []int  // token ids; for the chat API one word each
	tokens int    // of the answer
	salt   string // with another one no cache has the prompt; the answer is the same
}

// promptWords are one token each after a space, in the vocabulary of the model that
// scripts/real-vllm makes.
var promptWords = strings.Fields("router engine token model server request queue network memory worker batch stream prompt answer lease handle page weight layer head")

// randomPrompt returns a prompt that no engine has in its prefix cache.
func randomPrompt(tokens int) []int {
	p := make([]int, tokens)
	for i := range p {
		p[i] = 10 + rand.IntN(400) // no special token
	}
	return p
}

func (a ask) path() string {
	if a.chat {
		return "/v1/chat/completions"
	}
	return "/v1/completions"
}

// body returns the request's JSON. Extra members replace those of the same name.
func (a ask) body(extra map[string]any) []byte {
	m := map[string]any{"model": "tiny", "temperature": 0, "max_tokens": a.tokens, "ignore_eos": true}
	if a.stream {
		m["stream"] = true
	}
	if a.salt != "" {
		m["cache_salt"] = a.salt
	}
	if a.chat {
		words := make([]string, len(a.prompt))
		for i, t := range a.prompt {
			words[i] = promptWords[t%len(promptWords)]
		}
		m["messages"] = []any{map[string]any{"role": "user", "content": strings.Join(words, " ")}}
	} else {
		m["prompt"] = a.prompt
	}
	for k, v := range extra {
		m[k] = v
	}
	text, err := json.Marshal(m)
	if err != nil {
		panic("BUG: request that is no JSON: " + err.Error())
	}
	return text
}
