package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// forced returns the choices that force a call of weather, with the finish_reason that vLLM then
// gives.
func forced() []forcedCall {
	return []forcedCall{
		{openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: openai.String("required")}, "tool_calls"},
		{aFunction("weather"), "stop"},
	}
}

type forcedCall struct {
	choice openai.ChatCompletionToolChoiceOptionUnionParam
	reason string
}

func aFunction(name string) openai.ChatCompletionToolChoiceOptionUnionParam {
	return openai.ToolChoiceOptionFunctionToolChoice(openai.ChatCompletionNamedToolChoiceFunctionParam{Name: name})
}

// askedWeather offers a function to a chat of n tokens. 0 sets no limit.
func askedWeather(choice openai.ChatCompletionToolChoiceOptionUnionParam, tokens int64) openai.ChatCompletionNewParams {
	p := asked("Weather in Rome?", tokens)
	p.ToolChoice = choice
	p.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
		Name: "weather", Description: openai.String("of a town"),
		Parameters: openai.FunctionParameters{"type": "object", "required": []string{"town"},
			"properties": map[string]any{"town": map[string]string{"type": "string"}}},
	})}
	return p
}

func (c checks) toolsNotCalled(ctx context.Context) error {
	for _, mode := range []string{"none", "auto"} {
		answer, err := c.chat(ctx, askedWeather(openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: openai.String(mode)}, 8))
		if err != nil {
			return fmt.Errorf("tool_choice %s: %w", mode, err)
		}
		choice := answer.Choices[0]
		if err := errors.Join(same("finish_reason", choice.FinishReason, "length"), same("calls", len(choice.Message.ToolCalls), 0)); err != nil {
			return fmt.Errorf("tool_choice %s: %w", mode, err)
		}
	}
	_, err := c.chat(ctx, askedWeather(aFunction("news"), 8))
	return errors.Join(refused(err, 400, "", "BadRequestError"), tells(err, "does not match any"))
}

func (c checks) toolCall(ctx context.Context) error {
	for i, f := range forced() {
		id := fmt.Sprintf("go-tool-%d", i)
		answer, err := c.chat(ctx, askedWeather(f.choice, 200), option.WithHeader("X-Request-Id", id))
		if err != nil {
			return err
		}
		if _, err := town(answer, f.reason); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
		if err := c.onBothLegs(id); err != nil {
			return err
		}
	}
	return nil
}

func (c checks) toolCallStreamed(ctx context.Context) error {
	for i, f := range forced() {
		id := fmt.Sprintf("go-tool-stream-%d", i)
		whole, err := c.chat(ctx, askedWeather(f.choice, 0))
		if err != nil {
			return err
		}
		streamed, err := c.callInStream(ctx, f, id)
		if err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
		want, wrong := town(whole, f.reason)
		got, wrongToo := town(streamed, f.reason)
		if err := errors.Join(wrong, wrongToo, same("town", got, want), c.onBothLegs(id)); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
	}
	return nil
}

// callInStream streams a call, which comes in pieces, and returns what the SDK's accumulator makes
// of it.
func (c checks) callInStream(ctx context.Context, f forcedCall, id string) (*openai.ChatCompletion, error) {
	stream := c.client.Chat.Completions.NewStreaming(ctx, askedWeather(f.choice, 0), option.WithHeader("X-Request-Id", id))
	var all openai.ChatCompletionAccumulator
	var arguments strings.Builder
	pieces, finished := 0, ""
	for stream.Next() {
		chunk := stream.Current()
		if !all.AddChunk(chunk) {
			return nil, errors.New("a chunk does not fit the ones before")
		}
		if call, ok := all.JustFinishedToolCall(); ok {
			finished = call.Arguments
		}
		for _, call := range chunk.Choices[0].Delta.ToolCalls {
			arguments.WriteString(call.Function.Arguments)
			pieces++
		}
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	if pieces < 4 {
		return nil, fmt.Errorf("%d pieces of the call, want the name and some of the arguments", pieces)
	}
	return &all.ChatCompletion, same("finished call's arguments", finished, arguments.String())
}

// town expects one call of weather and returns its argument, which the engines make up of words.
func town(answer *openai.ChatCompletion, reason string) (string, error) {
	choice := answer.Choices[0]
	if len(choice.Message.ToolCalls) != 1 {
		return "", fmt.Errorf("%d calls, want one", len(choice.Message.ToolCalls))
	}
	call := choice.Message.ToolCalls[0]
	var arguments map[string]string
	if err := json.Unmarshal([]byte(call.Function.Arguments), &arguments); err != nil {
		return "", fmt.Errorf("read the arguments %q: %w", call.Function.Arguments, err)
	}
	return arguments["town"], errors.Join(
		same("finish_reason", choice.FinishReason, reason),
		same("name", call.Function.Name, "weather"),
		same("type", call.Type, "function"),
		same("whether there is an id", call.ID != "", true),
		same("arguments", len(arguments), 1),
		same("words of the town", len(strings.Fields(arguments["town"])), 3))
}

// onBothLegs expects that the request went through one prefill and one decode engine.
func (c checks) onBothLegs(id string) error {
	prefill, decode, err := c.legs(id)
	return errors.Join(err, same("prefill legs", prefill, 1), same("decode legs", decode, 1))
}
