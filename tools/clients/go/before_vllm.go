package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

// real drives real vLLM engines: a pair with a small model, and one with an embedding model among the
// decode engines. What they say is nonsense, but it is the same each time, and a forced call has the form
// that its schema asks for.
type real struct{ checks }

const (
	tiny = "tiny"
	long = "Tell story 22" // to which it says some 700 tokens
)

func (r real) all() []one {
	return []one{
		{"chat and its stream", r.chatStream},
		{"a response and its stream", r.responseStream},
		{"a response that calls a function", r.responseCall},
		{"responses that are refused", r.refusals},
		{"embeddings", r.vectors},
		{"a response left half way", r.left},
		{"a response that times out", r.late},
		{"retries a 429", r.tooMany},
	}
}

// sure makes answers the same each time.
func sure(text string, tokens int64) responses.ResponseNewParams {
	p := respond(text, tokens)
	p.Model, p.Temperature = tiny, openai.Float(0)
	return p
}

// series is the sum of the series of a metric that have the label.
func series(url, name, label string) (float64, error) {
	text, err := call(url+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for _, m := range regexp.MustCompile(`(?m)^`+name+`(?:\{[^}]*`+label+`[^}]*\})? (\S+)$`).FindAllSubmatch(text, -1) {
		n, err := strconv.ParseFloat(string(m[1]), 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// onBoth expects that all n completions of run go through a prefill and a decode engine.
func (r real) onBoth(n float64, run func() error) error {
	taken := func() (all, both float64, err error) {
		all, wrong := series(r.admin, "xpyd_decisions_total", "")
		both, wrongToo := series(r.admin, "xpyd_decisions_total", `path="disaggregated"`)
		return all, both, errors.Join(wrong, wrongToo)
	}
	before, beforeBoth, err := taken()
	if err := errors.Join(err, run()); err != nil {
		return err
	}
	// A completion may be counted after the client has its answer.
	err = errors.Join(err, wait("the decisions are counted", func() (bool, error) { all, _, err := taken(); return all >= before+n, err }))
	after, afterBoth, wrong := taken()
	return errors.Join(err, wrong, same("completions", after-before, n), same("completions on both legs", afterBoth-beforeBoth, n))
}

// free expects that no engine has a request or a block in use, well before a lease of 30 s ends.
func (r real) free() error {
	return wait("every block free and every engine idle", func() (bool, error) {
		for _, url := range r.engines() {
			for _, name := range []string{"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"} {
				if n, err := series(url, name, ""); err != nil || n != 0 {
					return false, err
				}
			}
		}
		return true, nil
	})
}

func (r real) chatStream(ctx context.Context) error {
	p := asked("Why do clouds float?", 12)
	p.Model, p.Temperature = tiny, openai.Float(0)
	return r.onBoth(2, func() error {
		whole, err := r.chat(ctx, p)
		if err != nil {
			return err
		}
		var all openai.ChatCompletionAccumulator
		stream := r.client.Chat.Completions.NewStreaming(ctx, p)
		for stream.Next() {
			all.AddChunk(stream.Current())
		}
		if err := stream.Err(); err != nil {
			return err
		}
		return errors.Join(same("streamed text", all.Choices[0].Message.Content, whole.Choices[0].Message.Content),
			same("completion_tokens", whole.Usage.CompletionTokens, 12))
	})
}

func (r real) responseStream(ctx context.Context) error {
	return r.onBoth(2, func() error {
		whole, err := r.client.Responses.New(ctx, sure("Tell me", 12))
		if err != nil {
			return err
		}
		t, err := listen(r.client.Responses.NewStreaming(ctx, sure("Tell me", 12)))
		return errors.Join(err, same("status", string(whole.Status), "incomplete"), same("output_tokens", whole.Usage.OutputTokens, 12),
			same("streamed text", t.text, whole.OutputText()), same("final text", t.final.OutputText(), whole.OutputText()),
			same("status of the stream", string(t.final.Status), "incomplete"))
	})
}

func (r real) responseCall(ctx context.Context) error {
	required := responses.ResponseNewParamsToolChoiceUnion{OfToolChoiceMode: openai.Opt(responses.ToolChoiceOptionsRequired)}
	for _, choice := range []responses.ResponseNewParamsToolChoiceUnion{required, namedFunction("look_up")} {
		p := sure("Which page?", 200)
		p.ToolChoice, p.ParallelToolCalls = choice, openai.Bool(false)
		p.Tools = []responses.ToolUnionParam{responses.ToolParamOfFunction("look_up", map[string]any{"type": "object", "required": []string{"page"},
			"properties":           map[string]any{"page": map[string]any{"type": "integer", "minimum": 1, "maximum": 9}},
			"additionalProperties": false}, true)}
		if err := r.onBoth(2, func() error {
			whole, err := r.client.Responses.New(ctx, p)
			if err != nil {
				return err
			}
			t, err := listen(r.client.Responses.NewStreaming(ctx, p))
			if err != nil {
				return err
			}
			want, wrong := lookedUp(*whole)
			got, wrongToo := lookedUp(t.final)
			return errors.Join(wrong, wrongToo, same("page", got, want), same("accumulated arguments", t.final.Output[0].Arguments.OfString, t.arguments))
		}); err != nil {
			return err
		}
	}
	return nil
}

// lookedUp expects one call of look_up and returns its page.
func lookedUp(r responses.Response) (int, error) {
	if len(r.Output) != 1 || r.Output[0].Type != "function_call" {
		return 0, fmt.Errorf("output %s, want one call", r.RawJSON())
	}
	call := r.Output[0].AsFunctionCall()
	var arguments struct{ Page int }
	if err := json.Unmarshal([]byte(call.Arguments), &arguments); err != nil || arguments.Page < 1 || arguments.Page > 9 {
		return 0, fmt.Errorf("arguments %q: %w", call.Arguments, errors.Join(err, errors.New("want a page from 1 to 9")))
	}
	return arguments.Page, errors.Join(same("status", string(r.Status), "completed"), same("name", call.Name, "look_up"))
}

func (r real) refusals(ctx context.Context) error {
	_, own := r.client.Responses.New(ctx, sure("hi", 8), option.WithJSONSet("kv_transfer_params", map[string]int{"a": 1}))
	_, previous := r.client.Responses.New(ctx, sure("hi", 8), option.WithJSONSet("previous_response_id", "resp_none"))
	_, key := r.client.Responses.New(ctx, sure("hi", 8), option.WithAPIKey("sk-wrong"))
	_, tokens := r.client.Responses.New(ctx, sure("hi", 3000))
	unknown := sure("hi", 8)
	unknown.Model = "none"
	_, name := r.client.Responses.New(ctx, unknown)
	return errors.Join(
		refused(own, 400, "unsupported_parameter", "invalid_request_error"), refused(previous, 404, "", ""),
		refused(key, 401, "invalid_api_key", "authentication_error"), refused(tokens, 400, "", ""), refused(name, 404, "", ""), r.free())
}

func (r real) vectors(ctx context.Context) error {
	embed := func(model string, texts ...string) (*openai.CreateEmbeddingResponse, error) {
		return r.client.Embeddings.New(ctx, openai.EmbeddingNewParams{Model: model, Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: texts}})
	}
	both, err := embed("embedder", "up", "down")
	if err != nil {
		return err
	}
	alone, err := embed("embedder", "down")
	if err != nil {
		return err
	}
	if len(both.Data) != 2 || len(both.Data[0].Embedding) != 64 || both.Data[0].Embedding[0] == both.Data[1].Embedding[0] ||
		math.Abs(both.Data[1].Embedding[0]-alone.Data[0].Embedding[0]) > 1e-4 {
		return fmt.Errorf("vectors %v and %v", both.Data, alone.Data)
	}
	_, unknown := embed("none", "hi")
	return refused(unknown, 404, "", "")
}

func (r real) left(ctx context.Context) error {
	stream := r.client.Responses.NewStreaming(ctx, sure(long, 1500))
	for range 8 {
		if !stream.Next() {
			return fmt.Errorf("the stream ended early: %w", errors.Join(stream.Err(), stream.Close()))
		}
	}
	return errors.Join(stream.Close(), r.free())
}

func (r real) late(ctx context.Context) error {
	_, err := r.client.Responses.New(ctx, sure(long, 1500), option.WithMaxRetries(0), option.WithRequestTimeout(300*time.Millisecond))
	if !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("got %w, want a deadline exceeded", errors.Join(err, errors.New("(above)")))
	}
	return r.free()
}

// tooMany holds as many streams as one client may have, until xpyd has refused one request more. The
// SDK's second attempt succeeds.
func (r real) tooMany(ctx context.Context) error {
	refusals := func() (float64, error) { return series(r.admin, "xpyd_request_errors_total", `code="client_limit"`) }
	held, err := r.hold(ctx)
	if err != nil {
		return err
	}
	before, err := refusals()
	if err != nil {
		return err
	}
	mended := make(chan error, 1)
	go func() {
		err := wait("a refusal", func() (bool, error) { n, err := refusals(); return n > before, err })
		for _, stream := range held {
			_ = stream.Close() // to leave is the point
		}
		mended <- err
	}()
	begun := time.Now()
	// A machine that stalls may need some more attempts than two.
	answer, err := r.client.Responses.New(ctx, sure("Try again", 12), option.WithMaxRetries(8))
	took := time.Since(begun)
	if err := errors.Join(err, <-mended); err != nil {
		return err
	}
	now, err := refusals()
	if n := now - before; err != nil || n < 1 || took.Seconds() < n {
		return fmt.Errorf("%g refusals in %v, want each attempt at least the second later that Retry-After asks for: %w", n, took, errors.Join(err, errors.New("(above)")))
	}
	return errors.Join(same("status", string(answer.Status), "incomplete"), r.free())
}

// hold opens streams until there are as many as one client may have.
func (r real) hold(ctx context.Context) ([]*chatStream, error) {
	var held []*chatStream
	for len(held) < 12 {
		p := asked(fmt.Sprintf("Hold %d", len(held)), 2000)
		p.Model = tiny
		stream := r.client.Chat.Completions.NewStreaming(ctx, p, option.WithJSONSet("ignore_eos", true), option.WithMaxRetries(0))
		if err := stream.Err(); err != nil {
			return held, refused(err, 429, "client_limit", "")
		}
		held = append(held, stream)
	}
	return held, errors.New("12 streams at once")
}
