// Command xpyd-openai-check drives xpyd with the official Go SDK and checks what its user sees.
// tools/clients builds and calls it. For each check it prints one line of JSON: {"check": name,
// "failure": text or null}.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
)

const model = "sim"

// checks drives one xpyd with one client.
type checks struct {
	rig
	client openai.Client
}

// one is a check and its name.
type one struct {
	name string
	run  func(context.Context) error
}

func main() {
	r, err := newRig()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	c := checks{rig: r, client: openai.NewClient(r.options()...)}
	all := slices.Concat(c.tls(), c.answers(), c.responses(), c.errors(), c.breaks())
	if os.Getenv("CLIENTS_ENGINES") == "vllm" {
		all = real{c}.all()
	}
	for _, check := range all {
		line := struct {
			Check   string  `json:"check"`
			Failure *string `json:"failure"`
		}{Check: check.name}
		if err := check.run(context.Background()); err != nil {
			text := err.Error()
			line.Failure = &text
		}
		if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func messages(text string) []openai.ChatCompletionMessageParamUnion {
	return []openai.ChatCompletionMessageParamUnion{openai.SystemMessage("Be brief."), openai.UserMessage(text)}
}

// asked returns a chat completion of n tokens. 0 sets no limit.
func asked(text string, tokens int64) openai.ChatCompletionNewParams {
	p := openai.ChatCompletionNewParams{Model: model, Messages: messages(text)}
	if tokens > 0 {
		p.MaxTokens = openai.Int(tokens)
	}
	return p
}

func (c checks) chat(ctx context.Context, p openai.ChatCompletionNewParams, o ...option.RequestOption) (*openai.ChatCompletion, error) {
	return c.client.Chat.Completions.New(ctx, p, o...)
}

// finished makes a chat completion and expects its finish_reason.
func (c checks) finished(ctx context.Context, text, reason string, o ...option.RequestOption) error {
	answer, err := c.chat(ctx, asked(text, 8), o...)
	if err != nil {
		return err
	}
	return same("finish_reason", answer.Choices[0].FinishReason, reason)
}

type chatStream = ssestream.Stream[openai.ChatCompletionChunk]

// longStory streams a chat completion and returns after five events.
func longStory(ctx context.Context, client openai.Client, text string) (*chatStream, error) {
	stream := client.Chat.Completions.NewStreaming(ctx, asked(text, 1000), option.WithMaxRetries(0))
	for range 5 {
		if !stream.Next() {
			return nil, fmt.Errorf("the stream ended early: %w", errors.Join(stream.Err(), stream.Close()))
		}
	}
	return stream, nil
}

// rest reads a stream to its end and returns its error.
func rest(stream *chatStream) error {
	for stream.Next() {
	}
	return stream.Err()
}

func same[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s: %v, want %v", what, got, want)
	}
	return nil
}

// refused expects the SDK's error with that status and the code or type given. "" accepts any.
func refused(err error, status int, code, kind string) error {
	var e *openai.Error
	switch {
	case !errors.As(err, &e):
		return fmt.Errorf("got %w, want an openai.Error", errors.Join(err, errors.New("(above)")))
	case e.StatusCode != status, code != "" && e.Code != code, kind != "" && e.Type != kind:
		return fmt.Errorf("status %d, code %s, type %s, want %d %s %s", e.StatusCode, e.Code, e.Type, status, code, kind)
	}
	return nil
}

// tells expects text in the message of the SDK's error.
func tells(err error, text string) error {
	var e *openai.Error
	if !errors.As(err, &e) || !strings.Contains(e.Message, text) {
		return fmt.Errorf("got %w, want a message with %q", errors.Join(err, errors.New("(above)")), text)
	}
	return nil
}
