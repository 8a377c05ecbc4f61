package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// longestAnswer is the most bytes of an answer that ask reads.
const longestAnswer = 64 << 20

// ask sends a small request and reads its JSON answer into out.
func (c *Client) ask(ctx context.Context, method, path string, in, out any) (err error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	var body []byte
	if in != nil {
		if body, err = json.Marshal(in); err != nil {
			panic("BUG: a request is no JSON: " + err.Error())
		}
	}
	req, err := c.request(ctx, method, c.o.URL+path, body)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("ask for %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	b, err := io.ReadAll(io.LimitReader(resp.Body, longestAnswer))
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("ask for %s: %w", path, badStatus(resp, b[:min(len(b), longestDetail)]))
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("read the answer of %s: %w", path, err)
	}
	return nil
}

// FirstModel is the first model that the server lists.
func (c *Client) FirstModel(ctx context.Context) (string, error) {
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := c.ask(ctx, http.MethodGet, "/v1/models", nil, &list); err != nil {
		return "", err
	}
	if len(list.Data) == 0 {
		return "", errors.New("the server lists no model")
	}
	return list.Data[0].ID, nil
}

// SetModel sets the model of all requests. Call it before the first one.
func (c *Client) SetModel(name string) { c.o.Model = name }

// Tokenize returns the ids of a text's tokens. special adds the tokens that the server puts around a
// completion's prompt.
func (c *Client) Tokenize(ctx context.Context, text string, special bool) ([]int, error) {
	var out struct {
		Tokens []int `json:"tokens"`
	}
	in := map[string]any{"model": c.o.Model, "prompt": text, "add_special_tokens": special}
	if err := c.ask(ctx, http.MethodPost, "/tokenize", in, &out); err != nil {
		return nil, err
	}
	if len(out.Tokens) == 0 && text != "" {
		return nil, errors.New("/tokenize found no token in a text")
	}
	return out.Tokens, nil
}

// Detokenize returns the text of tokens.
func (c *Client) Detokenize(ctx context.Context, ids []int) (string, error) {
	var out struct {
		Prompt string `json:"prompt"`
	}
	err := c.ask(ctx, http.MethodPost, "/detokenize", map[string]any{"model": c.o.Model, "tokens": ids}, &out)
	return out.Prompt, err
}
