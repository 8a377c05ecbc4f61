package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// errors returns the checks of error answers and of what the SDK retries.
func (c checks) errors() []one {
	return []one{
		{"bad requests", c.badRequests},
		{"wrong key, model and route", c.wrong},
		{"too much at once", c.tooMuch},
		{"retries a 429", func(ctx context.Context) error { return c.retried(ctx, 429, "go-429") }},
		{"retries a 503", func(ctx context.Context) error { return c.retried(ctx, 503, "go-503") }},
		{"no retry after two burnt prefills", c.burnt},
	}
}

func (c checks) badRequests(ctx context.Context) error {
	_, own := c.chat(ctx, asked("hi", 8), option.WithJSONSet("kv_transfer_params", map[string]int{"a": 1}))
	negative := asked("hi", 8)
	negative.Temperature = openai.Float(-1)
	_, engines := c.chat(ctx, negative)
	_, long := c.chat(ctx, asked(strings.Repeat("word ", 40000), 8))
	return errors.Join(
		refused(own, 400, "unsupported_parameter", "invalid_request_error"),
		refused(engines, 400, "", "BadRequestError"),
		refused(long, 400, "", "BadRequestError"), tells(long, "maximum context length"))
}

func (c checks) wrong(ctx context.Context) error {
	_, key := c.chat(ctx, asked("hi", 8), option.WithAPIKey("sk-wrong"))
	unknown := asked("hi", 8)
	unknown.Model = "none"
	_, name := c.chat(ctx, unknown)
	_, route := c.client.Moderations.New(ctx, openai.ModerationNewParams{
		Model: model, Input: openai.ModerationNewParamsInputUnion{OfString: openai.String("hi")}})
	return errors.Join(
		refused(key, 401, "invalid_api_key", "authentication_error"),
		refused(name, 404, "", "NotFoundError"), tells(name, "`none` does not exist"),
		refused(route, 404, "unknown_route", ""))
}

func (c checks) tooMuch(ctx context.Context) error {
	var all error
	for i := range 20 {
		stream, err := longStory(ctx, c.client, fmt.Sprintf("Hold %d", i))
		if err != nil {
			return err
		}
		defer func() { _ = stream.Close() }() // closed here in case the check ends early
	}
	_, err := c.chat(ctx, asked("one more", 8), option.WithMaxRetries(0))
	all = refused(err, 429, "client_limit", "rate_limit_error")
	var e *openai.Error
	if errors.As(err, &e) {
		all = errors.Join(all, same("Retry-After", e.Response.Header.Get("Retry-After"), "1"))
	}
	return all
}

func (c checks) retried(ctx context.Context, status int, id string) error {
	return c.retriedWith(status, id, func(id string) error {
		return c.finished(ctx, "Try again", "length", option.WithHeader("X-Request-Id", id))
	})
}

// retriedWith keeps the engines busy until xpyd has reported that. ask succeeds at the SDK's second
// attempt, or at its third if this machine stalls.
func (c checks) retriedWith(status int, id string, ask func(id string) error) error {
	if err := c.nothingHeld(); err != nil { // streams of the check before this one
		return err
	}
	before, err := c.refusals()
	if err != nil {
		return err
	}
	if err := c.fault(fmt.Sprintf("status=%d", status)); err != nil {
		return err
	}
	mended := make(chan error, 1)
	go func() {
		err := wait("a first attempt", func() (bool, error) { n, err := c.refusals(); return n > before, err })
		mended <- errors.Join(err, c.fault(""))
	}()
	begun := time.Now()
	err = ask(id)
	took := time.Since(begun)
	if err := errors.Join(err, <-mended); err != nil {
		return err
	}
	now, err := c.refusals()
	n := now - before + 1
	if err != nil || n < 2 || n > 3 || took < time.Duration(n-1)*time.Second {
		return fmt.Errorf("%d attempts in %v, want two, and each the second later that Retry-After asks for: %w", n, took, errors.Join(err, errors.New("(above)")))
	}
	prefill, decode, err := c.legs(id)
	if err != nil || prefill != decode || prefill != 2*n-1 && prefill != 2*n {
		return fmt.Errorf("%d prefill, %d decode legs in %d attempts, want two rounds that fail, then one: %w", prefill, decode, n, errors.Join(err, errors.New("(above)")))
	}
	return nil
}

// counted expects that many refusals since before, and that many prefill and decode legs.
func (c checks) counted(before, refusals int, id string, rounds int) error {
	now, err := c.refusals()
	if err != nil {
		return err
	}
	prefill, decode, err := c.legs(id)
	return errors.Join(err, same("refusals", now-before, refusals),
		same("prefill legs", prefill, rounds), same("decode legs", decode, rounds))
}

func (c checks) burnt(ctx context.Context) error {
	before, err := c.refusals()
	if err != nil {
		return err
	}
	_, err = c.chat(ctx, asked("[[D:rst]]", 8), option.WithHeader("X-Request-Id", "go-burnt"))
	return errors.Join(refused(err, 502, "decode_failed", "server_error"), c.counted(before, 1, "go-burnt", 2), c.nothingHeld())
}
