package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
)

// breaks returns the checks of clients that leave, and of streams that break off.
func (c checks) breaks() []one {
	return []one{
		{"a stream left half way", c.leftHalfWay},
		{"a call that times out while the prompt is computed", c.timedOut},
		{"a stream that breaks off", c.brokenStreams},
		{"an answer that breaks off is tried again", func(ctx context.Context) error {
			return c.finished(ctx, "Short [[decode-0:die]]", "length")
		}},
		{"xpyd dies in mid stream", c.proxyDies},
		{"engines die in mid stream and come back", c.enginesDie},
	}
}

func (c checks) leftHalfWay(ctx context.Context) error {
	stream, err := longStory(ctx, c.client, "A long story")
	if err != nil {
		return err
	}
	return errors.Join(stream.Close(), c.nothingHeld())
}

func (c checks) timedOut(ctx context.Context) error {
	return c.gaveUp("go-hasty", func(id string, n int) error {
		_, err := c.chat(ctx, asked(fmt.Sprint(n, strings.Repeat(" word", 16000)), 8), option.WithMaxRetries(0),
			option.WithRequestTimeout(300*time.Millisecond), option.WithHeader("X-Request-Id", id))
		return err
	})
}

// gaveUp expects that ask gives up while the prompt is computed, after which no leg is left. If this machine
// stalls, the engine may not have the request by then, or the client may find its answer. Then ask has another
// try, with a prompt of which nothing is cached.
func (c checks) gaveUp(name string, ask func(id string, n int) error) error {
	const tries = 3
	for n := 1; ; n++ {
		id := fmt.Sprint(name, "-", n)
		err := ask(id, n)
		if n < tries && err == nil {
			continue
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("got %w, want a deadline exceeded", errors.Join(err, errors.New("(above)")))
		}
		if err := c.nothingHeld(); err != nil {
			return err
		}
		prefill, decode, err := c.legs(id)
		if n < tries && err == nil && prefill+decode == 0 {
			continue
		}
		return errors.Join(err, same("prefill legs", prefill, 1), same("decode legs", decode, 0))
	}
}

// brokeOff expects the SDK's stream error, with that code in its event.
func brokeOff(err error, code string) error {
	var e *ssestream.StreamError
	if !errors.As(err, &e) || !strings.Contains(string(e.Event.Data), `"code":`+code) {
		return fmt.Errorf("got %w, want a StreamError with code %s", errors.Join(err, errors.New("(above)")), code)
	}
	return nil
}

func (c checks) brokenStreams(ctx context.Context) error {
	for _, marker := range []string{"[[D:die@6]]", "[[D:die@6:rst]]", "[[D:cut@6]]", "[[D:error-done@6]]"} {
		stream, err := longStory(ctx, c.client, marker)
		if err != nil {
			return err
		}
		// The proxy sends one error event of its own, in place of the engine's if there was one.
		if err := brokeOff(rest(stream), `"decode_failed"`); err != nil {
			return fmt.Errorf("%s: %w", marker, err)
		}
	}
	return c.nothingHeld()
}

func (c checks) proxyDies(ctx context.Context) error {
	client := openai.NewClient(option.WithBaseURL(c.victim+"/v1"), option.WithAPIKey(c.key), option.WithMaxRetries(0))
	stream, err := longStory(ctx, client, "A long story")
	if err != nil {
		return err
	}
	if err := syscall.Kill(c.victimPID, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill xpyd: %w", err)
	}
	if err := rest(stream); !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, syscall.ECONNRESET) {
		return fmt.Errorf("got %w, want an unexpected EOF or a reset", errors.Join(err, errors.New("(above)")))
	}
	_, err = client.Chat.Completions.New(ctx, asked("Still there?", 8))
	if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ECONNRESET) { // its backlog is reset
		return fmt.Errorf("got %w, want a refused connection or a reset", errors.Join(err, errors.New("(above)")))
	}
	return c.nothingHeld()
}

func (c checks) enginesDie(ctx context.Context) error {
	stream, err := longStory(ctx, c.client, "A long story")
	if err != nil {
		return err
	}
	for _, url := range c.decode {
		if _, err := call(url+"/sim/restart", []byte("{}")); err != nil {
			return err
		}
	}
	return errors.Join(brokeOff(rest(stream), `"decode_failed"`), c.finished(ctx, "Again", "length"))
}
