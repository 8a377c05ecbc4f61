package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/openai/openai-go/v3"
)

// answers returns the checks of answers that succeed.
func (c checks) answers() []one {
	return []one{
		{"models", c.models},
		{"chat and its stream", c.chatAndStream},
		{"completion and its stream", c.completionAndStream},
		{"embeddings", c.embeddings},
		{"a transcription", c.transcription},
		{"several choices", c.severalChoices},
		{"sixteen streams at once", c.manyStreams},
		{"tools that are not called", c.toolsNotCalled},
		{"a tool call", c.toolCall},
		{"a tool call in a stream", c.toolCallStreamed},
	}
}

func (c checks) models(ctx context.Context) error {
	page, err := c.client.Models.List(ctx)
	if err != nil {
		return err
	}
	if len(page.Data) != 1 {
		return fmt.Errorf("%d models, want 1", len(page.Data))
	}
	return same("model", page.Data[0].ID, model)
}

func (c checks) chatAndStream(ctx context.Context) error {
	whole, err := c.chat(ctx, asked("Why do clouds float?", 0))
	if err != nil {
		return err
	}
	p := asked("Why do clouds float?", 0) // no limit, so it ends by itself
	p.StreamOptions.IncludeUsage = openai.Bool(true)
	stream := c.client.Chat.Completions.NewStreaming(ctx, p)
	var all openai.ChatCompletionAccumulator
	chunks := 0
	for stream.Next() {
		chunks++
		if !all.AddChunk(stream.Current()) {
			return fmt.Errorf("chunk %d does not fit the ones before", chunks)
		}
	}
	if err := stream.Err(); err != nil {
		return err
	}
	if chunks < 64 || len(all.Choices) != 1 {
		return fmt.Errorf("%d chunks with %d choices, want 64 or more with one", chunks, len(all.Choices))
	}
	return errors.Join(
		same("finish_reason", whole.Choices[0].FinishReason, "stop"),
		same("completion_tokens", whole.Usage.CompletionTokens, 64),
		same("streamed text", all.Choices[0].Message.Content, whole.Choices[0].Message.Content),
		same("finish_reason of the stream", all.Choices[0].FinishReason, "stop"),
		same("completion_tokens of the stream", all.Usage.CompletionTokens, 64))
}

func (c checks) completionAndStream(ctx context.Context) error {
	p := openai.CompletionNewParams{Model: model, MaxTokens: openai.Int(16),
		Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("Once upon a time")}}
	whole, err := c.client.Completions.New(ctx, p)
	if err != nil {
		return err
	}
	p.StreamOptions.IncludeUsage = openai.Bool(true)
	stream := c.client.Completions.NewStreaming(ctx, p)
	var text strings.Builder
	var reason string
	var tokens int64
	for stream.Next() {
		chunk := stream.Current()
		for _, choice := range chunk.Choices {
			text.WriteString(choice.Text)
			reason = string(choice.FinishReason)
		}
		tokens = chunk.Usage.CompletionTokens
	}
	return errors.Join(stream.Err(),
		same("streamed text", text.String(), whole.Choices[0].Text),
		same("finish_reason", reason, "length"),
		same("completion_tokens", tokens, 16))
}

func (c checks) severalChoices(ctx context.Context) error {
	p := asked("Two, please", 4)
	p.N, p.Temperature = openai.Int(2), openai.Float(1)
	answer, err := c.chat(ctx, p)
	if err != nil {
		return err
	}
	return same("choices", len(answer.Choices), 2)
}

func (c checks) manyStreams(ctx context.Context) error {
	errs := make(chan error)
	for i := range 16 {
		go func() {
			stream := c.client.Chat.Completions.NewStreaming(ctx, asked(fmt.Sprintf("Tell story %d", i), 20))
			reason := ""
			for stream.Next() {
				for _, choice := range stream.Current().Choices {
					reason = choice.FinishReason
				}
			}
			errs <- errors.Join(stream.Err(), same("finish_reason", reason, "length"))
		}()
	}
	var all error
	for range 16 {
		all = errors.Join(all, <-errs)
	}
	return all
}
