package monitoring

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"xpyd/tools/process"
)

// requests are of every kind that some panel shows: streamed and whole, with usage and without, with one
// leg and two, refused, broken off, and for a route that one engine answers.
func requests(i int) (path, body string) {
	prompt := strings.Repeat(fmt.Sprintf("words of conversation %d ", i%7), 20+i%60)
	chat := func(text, more string) (string, string) {
		return "/v1/chat/completions", fmt.Sprintf(`{"model":"sim","max_tokens":12,"messages":[{"role":"user","content":%q}]%s}`, text, more)
	}
	switch i % 10 {
	case 0:
		return chat(prompt, "")
	case 1:
		return chat(prompt, `,"n":2`)
	case 2:
		return "/v1/completions", fmt.Sprintf(`{"model":"sim","prompt":%q,"max_tokens":12,"stream":true,"stream_options":{"include_usage":true}}`, prompt)
	case 3:
		if i%20 == 3 {
			return chat(prompt+"[[D:status=500]]", "")
		}
		return chat(prompt+"[[D:error-done@4]]", `,"stream":true`)
	case 4:
		return "/tokenize", `{"model":"sim","prompt":"words"}`
	case 5:
		return "/v1/chat/completions", `{"model":"no-such-model","messages":[{"role":"user","content":"words"}]}`
	}
	return chat(prompt, `,"stream":true`)
}

// load keeps some clients busy until ctx ends. What they are answered is for the metrics to tell.
func load(ctx context.Context, proxies []string) (wait func()) {
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // the certificate is its own
	var clients sync.WaitGroup
	for n := range 8 {
		clients.Go(func() {
			for i := n; ctx.Err() == nil; i += 3 {
				path, body := requests(i)
				request(ctx, client, proxies[n%len(proxies)]+path, body, i)
				select {
				case <-ctx.Done():
				case <-time.After(100 * time.Millisecond):
				}
			}
		})
	}
	return func() { clients.Wait(); client.CloseIdleConnections() }
}

func request(ctx context.Context, client *http.Client, url, body string, i int) {
	resp, err := process.Send(ctx, client, url, []byte(body), "Authorization", "Bearer "+[]string{teamKey, batchKey}[i%2],
		"Traceparent", fmt.Sprintf("00-4bf92f3577b34da6a3ce%012x-00f067aa0ba902b7-01", i+1))
	if err != nil {
		return
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, resp.Body)
}
