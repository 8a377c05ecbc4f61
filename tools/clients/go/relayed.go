package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/openai/openai-go/v3"
)

func (c checks) embeddings(ctx context.Context) error {
	both, err := c.client.Embeddings.New(ctx, openai.EmbeddingNewParams{
		Model: model, Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"up", "down"}}})
	if err != nil {
		return err
	}
	if len(both.Data) != 2 || len(both.Data[0].Embedding) != 8 || both.Data[0].Embedding[0] == both.Data[1].Embedding[0] {
		return fmt.Errorf("vectors %v", both.Data)
	}
	_, unknown := c.client.Embeddings.New(ctx, openai.EmbeddingNewParams{
		Model: "none", Input: openai.EmbeddingNewParamsInputUnion{OfString: openai.String("hi")}})
	return errors.Join(refused(unknown, 404, "", "NotFoundError"), tells(unknown, "`none` does not exist"))
}

func (c checks) transcription(ctx context.Context) error {
	sound := func() *bytes.Reader { return bytes.NewReader(bytes.Repeat([]byte("RIFF"), 50000)) }
	heard, err := c.client.Audio.Transcriptions.New(ctx, openai.AudioTranscriptionNewParams{
		Model: model, File: openai.File(sound(), "a.wav", "audio/wav")})
	if err != nil {
		return err
	}
	translated, err := c.client.Audio.Translations.New(ctx, openai.AudioTranslationNewParams{
		Model: model, File: openai.File(sound(), "a.wav", "audio/wav")})
	if err != nil {
		return err
	}
	if n := len(strings.Fields(heard.Text)); n != 4 {
		return fmt.Errorf("%d words, want 4: %q", n, heard.Text)
	}
	return same("the translation", translated.Text, heard.Text)
}
