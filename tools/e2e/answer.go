package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"xpyd/tools/process"
	"xpyd/tools/sse"
)

// request is one request of a client.
type request struct {
	path string
	id   string // X-Request-Id
	body []byte
}

// answer is what came back, without what differs from run to run.
type answer struct {
	status   int
	header   http.Header
	content  any // the JSON; for a stream, that of all events folded into one
	cached   any // usage.prompt_tokens_details.cached_tokens: a json.Number, or nil
	problems []string
}

// client keeps no connection. An engine closes idle ones after 5 s, and one that is reused at that
// moment would look like a failure.
func client() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
}

// send sends the request and reads the whole answer. An error is about the connection.
func send(ctx context.Context, base string, c request) (answer, error) {
	res, err := process.Send(ctx, client(), base+c.path, c.body, "X-Request-Id", c.id)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	a := answer{status: res.StatusCode, header: res.Header}
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		err = a.readStream(res.Body)
	} else {
		a.content, err = decode(res.Body)
	}
	if err != nil {
		return a, fmt.Errorf("read the answer: %w", err)
	}
	a.strip()
	return a, nil
}

// decode keeps numbers as they are written.
func decode(r io.Reader) (any, error) {
	var v any
	d := json.NewDecoder(r)
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	return v, nil
}

// readStream folds the events and notes what no stream may do.
func (a *answer) readStream(r io.Reader) error {
	var all any
	dones := 0
	events := sse.NewReader(r)
	data, err := events.Next()
	for ; err == nil; data, err = events.Next() {
		if dones > 0 {
			a.problem("an event after [DONE]: %.200s", data)
		}
		if sse.Done(data) {
			dones++
		} else {
			all = a.take(all, string(data))
		}
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	if dones != 1 {
		a.problem("%d times [DONE]", dones)
	}
	a.content = all
	return nil
}

func (a *answer) take(all any, data string) any {
	v, err := decode(strings.NewReader(data))
	event, ok := v.(map[string]any)
	if err != nil || !ok {
		a.problem("an event that is no JSON object: %.200s", data)
		return all
	}
	if event["error"] != nil {
		a.problem("an error event: %.200s", data)
	}
	before, _ := all.(map[string]any)
	if id := before["id"]; id != nil && id != event["id"] {
		a.problem("an event with another id: %v, not %v", event["id"], id)
	}
	return fold(all, event)
}

func (a *answer) problem(format string, args ...any) {
	a.problems = append(a.problems, fmt.Sprintf(format, args...))
}

// strip takes out what belongs to this answer alone. It also takes out cached_tokens, which says
// how an answer was computed and not what it is.
func (a *answer) strip() {
	top, ok := a.content.(map[string]any)
	if !ok {
		return
	}
	for _, own := range []string{"id", "created", "system_fingerprint", "metrics"} {
		delete(top, own)
	}
	if usage, ok := top["usage"].(map[string]any); ok {
		if details, ok := usage["prompt_tokens_details"].(map[string]any); ok {
			a.cached = details["cached_tokens"]
		}
		delete(usage, "prompt_tokens_details")
	}
	stripToolIDs(top)
}

// stripToolIDs takes the random ids of tool calls out.
func stripToolIDs(v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, member := range v {
			if calls, ok := member.([]any); ok && key == "tool_calls" {
				for _, c := range calls {
					if c, ok := c.(map[string]any); ok {
						delete(c, "id")
					}
				}
			}
			stripToolIDs(member)
		}
	case []any:
		for _, member := range v {
			stripToolIDs(member)
		}
	}
}

// promptTokens returns usage.prompt_tokens, or 0 if the answer has no usage.
func (a *answer) promptTokens() int64 {
	top, _ := a.content.(map[string]any)
	usage, _ := top["usage"].(map[string]any)
	number, _ := usage["prompt_tokens"].(json.Number)
	n, _ := number.Int64()
	return n
}
