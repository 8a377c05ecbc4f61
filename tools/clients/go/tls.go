package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// options are those of a client that trusts the run's CA.
func (r rig) options() []option.RequestOption {
	return []option.RequestOption{option.WithBaseURL(r.url + "/v1"), option.WithAPIKey(r.key),
		option.WithHTTPClient(&http.Client{Transport: r.trusting})}
}

// tls returns the checks of TLS itself. All others use it, at the address in the certificate.
func (c checks) tls() []one {
	return []one{
		{"a certificate for another name", c.otherName},
		{"a certificate of an unknown CA", c.unknownCA},
		{"without TLS", c.plain},
	}
}

func (c checks) otherName(ctx context.Context) error {
	_, err := c.chat(ctx, asked("hi", 8), option.WithBaseURL(strings.Replace(c.url, "127.0.0.1", "localhost", 1)+"/v1"), option.WithMaxRetries(0))
	var wrong x509.HostnameError
	if !errors.As(err, &wrong) {
		return fmt.Errorf("got %w, want a HostnameError", errors.Join(err, errors.New("(above)")))
	}
	return nil
}

func (c checks) unknownCA(ctx context.Context) error {
	_, err := c.chat(ctx, asked("hi", 8), option.WithHTTPClient(&http.Client{}), option.WithMaxRetries(0))
	var wrong x509.UnknownAuthorityError
	if !errors.As(err, &wrong) {
		return fmt.Errorf("got %w, want an UnknownAuthorityError", errors.Join(err, errors.New("(above)")))
	}
	return nil
}

func (c checks) plain(ctx context.Context) error {
	plain := openai.NewClient(option.WithBaseURL(c.victim+"/v1"), option.WithAPIKey(c.key))
	whole, err := plain.Chat.Completions.New(ctx, asked("Over plain HTTP", 16))
	if err != nil {
		return err
	}
	stream := plain.Chat.Completions.NewStreaming(ctx, asked("Over plain HTTP", 16))
	var all openai.ChatCompletionAccumulator
	for stream.Next() {
		all.AddChunk(stream.Current())
	}
	if err := stream.Err(); err != nil || len(all.Choices) != 1 {
		return fmt.Errorf("%d choices, and %w", len(all.Choices), errors.Join(err, errors.New("the error above, if any")))
	}
	return same("streamed text", all.Choices[0].Message.Content, whole.Choices[0].Message.Content)
}
