package routing

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
	"xpyd/tools/process"
)

// sessionHeader names the conversation of a request to contenders that go by it.
const sessionHeader = "X-Session-ID"

// answerBound is how long a client waits for a whole answer.
const answerBound = 3 * time.Minute

// drive sends each request at its time after start, whether or not earlier ones have been
// answered, and returns when all have.
func drive(ctx context.Context, addr string, requests []request, start time.Time, sessions bool) []answer {
	transport := &http.Transport{MaxIdleConnsPerHost: 4096, DisableCompression: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: answerBound}
	answers := make([]answer, len(requests))
	var wg sync.WaitGroup
	for i := range requests {
		if !process.SleepUntil(ctx, start.Add(requests[i].at)) {
			answers[i].err = ctx.Err()
			continue
		}
		wg.Go(func() {
			a := &answers[i]
			a.sent = time.Now()
			a.err = a.ask(ctx, client, addr, &requests[i], sessions)
		})
	}
	wg.Wait()
	return answers
}

// ask sends one request and reads its answer.
func (a *answer) ask(ctx context.Context, client *http.Client, addr string, q *request, sessions bool) error {
	var header []string
	if sessions {
		header = []string{sessionHeader, q.session}
	}
	resp, err := process.Send(ctx, client, "http://"+addr+"/v1/chat/completions", q.body, header...)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
		return fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(text))
	}
	a.path = resp.Header.Get("X-Xpyd-Path")
	return a.readStream(resp.Body, q.output)
}
