package verify

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
)

// longest is how much of one answer is read, in bytes.
const longest = 16 << 20

// call is one request.
type call struct {
	base, path, key, id string
	body                []byte
}

// text is the JSON of a body.
func text(body map[string]any) []byte {
	b, err := json.Marshal(body)
	if err != nil {
		panic("BUG: a body that is no JSON: " + err.Error())
	}
	return b
}

func (r *run) request(ctx context.Context, c call) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+c.path, bytes.NewReader(c.body))
	if err != nil {
		return nil, fmt.Errorf("request %s: %w", c.base, err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Id", c.id)
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	return req, nil
}

// send sends a request and reads the whole answer. An error means that no whole answer came.
func (r *run) send(ctx context.Context, c call) (*answer, error) {
	req, err := r.request(ctx, c)
	if err != nil {
		return nil, err
	}
	resp, err := r.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	a := &answer{asked: c.id, status: resp.StatusCode, header: resp.Header}
	in := bufio.NewReader(io.LimitReader(resp.Body, longest))
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == "text/event-stream" {
		err = a.readStream(in)
	} else {
		err = a.readWhole(in)
	}
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s (status %d): %w", c.base+c.path, a.status, err)
	}
	return a, nil
}

// readWhole reads one JSON value, after which nothing may follow.
func (a *answer) readWhole(in io.Reader) error {
	d := json.NewDecoder(in)
	var c chunk
	if err := d.Decode(&c); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON")
	}
	a.refusal = c.Error
	a.take(&c)
	return nil
}

// readStream reads events up to [DONE], which must come once and last.
func (a *answer) readStream(in *bufio.Reader) error {
	for done := false; ; {
		data, err := nextEvent(in)
		switch {
		case errors.Is(err, io.EOF) && done:
			return nil
		case errors.Is(err, io.EOF):
			return errors.New("the stream ended without [DONE]")
		case err != nil:
			return err
		case done:
			return errors.New("an event after [DONE]")
		case data == "[DONE]":
			done = true
			continue
		}
		var c chunk
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			return fmt.Errorf("read an event: %w", err)
		}
		if c.Error != nil {
			return fmt.Errorf("an error event: %s", c.Error.Message)
		}
		a.take(&c)
	}
}

// nextEvent returns the data of the next event. io.EOF is a clean end.
func nextEvent(in *bufio.Reader) (string, error) {
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			if errors.Is(err, io.EOF) && line != "" {
				err = io.ErrUnexpectedEOF
			}
			return "", err
		}
		if data, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), "data:"); ok {
			return strings.TrimPrefix(data, " "), nil
		}
	}
}

// fetch returns the body of a GET that is answered with 200. Engines get their key, and the admin port
// its own token.
func (r *run) fetch(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("request %s: %w", url, err)
	}
	key := r.EngineKey
	if r.Admin != "" && strings.HasPrefix(url, r.Admin+"/") {
		key = r.AdminToken
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	return r.bytes(req)
}

// bytes returns the body of an answer with status 200.
func (r *run) bytes(req *http.Request) ([]byte, error) {
	resp, err := r.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(resp.Body, longest))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: status %d", req.Method, req.URL.Path, resp.StatusCode)
	}
	return b, err
}
