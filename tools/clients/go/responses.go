package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/responses"
)

// responses returns the checks of the responses API.
func (c checks) responses() []one {
	return []one{
		{"a response and its stream", c.responseAndStream},
		{"a response that calls a function", c.responseCalls},
		{"responses that are refused", c.responsesRefused},
		{"a response is tried again", c.responseRetried},
		{"a response left half way", c.responseLeft},
		{"a response that times out while the prompt is computed", c.responseTimedOut},
		{"a response that breaks off", c.responseBroken},
	}
}

// respond returns a request for a response of n tokens. 0 sets no limit.
func respond(text string, n int64) responses.ResponseNewParams {
	p := responses.ResponseNewParams{Model: model, Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(text)}}
	if n > 0 {
		p.MaxOutputTokens = openai.Int(n)
	}
	return p
}

type responseStream = ssestream.Stream[responses.ResponseStreamEventUnion]

// told is what the events of a response's stream have said.
type told struct {
	text, arguments string
	pieces, events  int
	final           responses.Response // of the last event
}

// listen reads a stream to its end.
func listen(stream *responseStream) (told, error) {
	var t told
	for stream.Next() {
		e := stream.Current()
		if e.SequenceNumber != int64(t.events) {
			return t, fmt.Errorf("event %d has the number %d", t.events, e.SequenceNumber)
		}
		t.events++
		switch e.Type {
		case "response.output_text.delta":
			t.text += e.Delta
		case "response.function_call_arguments.delta":
			t.arguments += e.Delta
			t.pieces++
		case "response.completed":
			t.final = e.Response
		}
	}
	return t, stream.Err()
}

func (c checks) responseAndStream(ctx context.Context) error {
	whole, err := c.client.Responses.New(ctx, respond("Tell me", 12), option.WithHeader("X-Request-Id", "go-response"))
	if err != nil {
		return err
	}
	t, err := listen(c.client.Responses.NewStreaming(ctx, respond("Tell me", 12), option.WithHeader("X-Request-Id", "go-response-stream")))
	return errors.Join(err,
		same("status", string(whole.Status), "incomplete"), same("output_tokens", whole.Usage.OutputTokens, 12),
		same("words", len(strings.Fields(whole.OutputText())), 12),
		same("streamed text", t.text, whole.OutputText()), same("final text", t.final.OutputText(), whole.OutputText()),
		same("status of the stream", string(t.final.Status), "incomplete"),
		c.onBothLegs("go-response"), c.onBothLegs("go-response-stream"))
}

// callingFunction offers weather, and forces a call of it.
func callingFunction(choice responses.ResponseNewParamsToolChoiceUnion) responses.ResponseNewParams {
	p := respond("Weather in Rome?", 0)
	p.ToolChoice = choice
	p.Tools = []responses.ToolUnionParam{responses.ToolParamOfFunction("weather", map[string]any{"type": "object", "required": []string{"town"},
		"properties": map[string]any{"town": map[string]string{"type": "string"}}, "additionalProperties": false}, true)}
	return p
}

func namedFunction(name string) responses.ResponseNewParamsToolChoiceUnion {
	return responses.ResponseNewParamsToolChoiceUnion{OfFunctionTool: &responses.ToolChoiceFunctionParam{Name: name}}
}

func (c checks) responseCalls(ctx context.Context) error {
	required := responses.ResponseNewParamsToolChoiceUnion{OfToolChoiceMode: openai.Opt(responses.ToolChoiceOptionsRequired)}
	for i, choice := range []responses.ResponseNewParamsToolChoiceUnion{required, namedFunction("weather")} {
		id := fmt.Sprintf("go-call-%d", i)
		whole, err := c.client.Responses.New(ctx, callingFunction(choice), option.WithHeader("X-Request-Id", id))
		if err != nil {
			return err
		}
		t, err := listen(c.client.Responses.NewStreaming(ctx, callingFunction(choice), option.WithHeader("X-Request-Id", id+"-stream")))
		if err != nil {
			return err
		}
		want, wrong := calledTown(*whole)
		got, wrongToo := calledTown(t.final)
		if t.pieces < 4 {
			return fmt.Errorf("%d pieces of the arguments", t.pieces)
		}
		if err := errors.Join(wrong, wrongToo, same("town", got, want), same("accumulated arguments", t.final.Output[0].Arguments.OfString, t.arguments),
			c.onBothLegs(id), c.onBothLegs(id+"-stream")); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
	}
	_, err := c.client.Responses.New(ctx, callingFunction(namedFunction("news")))
	return errors.Join(refused(err, 400, "", ""), tells(err, "tool_choice"))
}

// calledTown expects one call of weather and returns its argument, which the engines make up of words.
func calledTown(r responses.Response) (string, error) {
	if len(r.Output) != 1 || r.Output[0].Type != "function_call" {
		return "", fmt.Errorf("output %s, want one call", r.RawJSON())
	}
	call := r.Output[0].AsFunctionCall()
	var arguments map[string]string
	if err := json.Unmarshal([]byte(call.Arguments), &arguments); err != nil {
		return "", fmt.Errorf("read the arguments %q: %w", call.Arguments, err)
	}
	return arguments["town"], errors.Join(same("status", string(r.Status), "completed"), same("name", call.Name, "weather"),
		same("whether there is an id", call.CallID != "", true), same("words of the town", len(strings.Fields(arguments["town"])), 3))
}

func (c checks) responsesRefused(ctx context.Context) error {
	_, own := c.client.Responses.New(ctx, respond("hi", 8), option.WithJSONSet("kv_transfer_params", map[string]int{"a": 1}))
	_, background := c.client.Responses.New(ctx, respond("hi", 8), option.WithJSONSet("background", true))
	_, previous := c.client.Responses.New(ctx, respond("hi", 8), option.WithJSONSet("previous_response_id", "resp_none"))
	_, key := c.client.Responses.New(ctx, respond("hi", 8), option.WithAPIKey("sk-wrong"))
	unknown := respond("hi", 8)
	unknown.Model = "none"
	_, name := c.client.Responses.New(ctx, unknown)
	return errors.Join(
		refused(own, 400, "unsupported_parameter", "invalid_request_error"), refused(background, 400, "unsupported_parameter", ""),
		refused(previous, 404, "", ""), refused(key, 401, "invalid_api_key", "authentication_error"), refused(name, 404, "", ""))
}

func (c checks) responseRetried(ctx context.Context) error {
	err := c.retriedWith(429, "go-response-429", func(id string) error {
		answer, err := c.client.Responses.New(ctx, respond("Try again", 12), option.WithHeader("X-Request-Id", id))
		if err != nil {
			return err
		}
		return same("status", string(answer.Status), "incomplete")
	})
	return errors.Join(err, c.retriedWith(503, "go-response-503", func(id string) error {
		t, err := listen(c.client.Responses.NewStreaming(ctx, respond("Try again", 12), option.WithHeader("X-Request-Id", id)))
		return errors.Join(err, same("status", string(t.final.Status), "incomplete"))
	}))
}

func (c checks) responseLeft(ctx context.Context) error {
	stream := c.client.Responses.NewStreaming(ctx, respond("A long story", 1000))
	for range 8 {
		if !stream.Next() {
			return fmt.Errorf("the stream ended early: %w", errors.Join(stream.Err(), stream.Close()))
		}
	}
	return errors.Join(stream.Close(), c.nothingHeld())
}

func (c checks) responseTimedOut(ctx context.Context) error {
	return c.gaveUp("go-hasty-response", func(id string, n int) error {
		_, err := c.client.Responses.New(ctx, respond(fmt.Sprint(n, strings.Repeat(" tell", 16000)), 8), option.WithMaxRetries(0),
			option.WithRequestTimeout(300*time.Millisecond), option.WithHeader("X-Request-Id", id))
		return err
	})
}

func (c checks) responseBroken(ctx context.Context) error {
	for _, marker := range []string{"[[D:die@8]]", "[[D:cut@8]]", "[[D:error-done@8]]"} {
		t, err := listen(c.client.Responses.NewStreaming(ctx, respond(marker, 100)))
		if err := brokeOff(err, `"decode_failed"`); err != nil || t.events < 6 {
			return fmt.Errorf("%s, after %d events: %w", marker, t.events, errors.Join(err, errors.New("(above)")))
		}
	}
	return c.nothingHeld()
}
