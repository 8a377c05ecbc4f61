package reload

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"xpyd/tools/completion"
	"xpyd/tools/probe"
)

// idBegin begins the ids of clients' requests. The time since the start of the run follows, in
// nanoseconds.
const idBegin = "reload-"

// beginOf returns when the client sent its request. ok is false if the id is not a client's.
func (r *run) beginOf(id string) (begun time.Time, ok bool) {
	rest, ok := strings.CutPrefix(id, idBegin)
	if !ok {
		return begun, false
	}
	ns, _, _ := strings.Cut(rest, "-")
	n, err := strconv.ParseInt(ns, 10, 64)
	return r.began.Add(time.Duration(n)), err == nil
}

// client sends one request after the other until ctx ends. The last one also ends well.
func (r *run) client(ctx context.Context, i int) {
	random := rand.New(rand.NewPCG(r.o.Seed, uint64(i)+1))
	c := &http.Client{Transport: &http.Transport{}, Timeout: completion.Patience}
	defer c.CloseIdleConnections()
	for n := 0; probe.SleepUntil(ctx, time.Now().Add(time.Duration(random.IntN(100))*time.Millisecond)); n++ {
		q := drawRequest(random, i, n)
		if err := r.ask(c, q); err != nil {
			r.findings.add("an error at a client", "%v", err)
		}
	}
}

// request is one completion.
type request struct {
	suffix string // of its id
	prompt string
	stream bool
	tokens int
	leave  time.Duration // after which the client leaves; 0 if it stays
	early  bool          // it leaves while its prefill is computed
}

// drawRequest draws one request. In one of eight the client leaves, and one stream in ten
// lasts for seconds and so for several reloads. There are few prompts, so that the proxy's memory
// of them fills early.
func drawRequest(random *rand.Rand, i, n int) request {
	q := request{suffix: fmt.Sprintf("%d-%d", i, n), stream: random.IntN(2) == 0, tokens: 1 + random.IntN(6)}
	q.prompt = fmt.Sprintf("prompt %d %s", random.IntN(256), strings.Repeat(" lorem ipsum dolor", 40))
	if q.stream && random.IntN(10) == 0 {
		q.tokens = 60
	}
	switch random.IntN(16) {
	case 0:
		q.leave = time.Duration(1+random.IntN(40)) * time.Millisecond
	case 1:
		q.early = true
	}
	return q
}

// ask sends the request and checks its answer.
func (r *run) ask(c *http.Client, q request) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if q.leave > 0 {
		defer time.AfterFunc(q.leave, cancel).Stop()
	}
	body := fmt.Sprintf(`{"model":%q,"prompt":%q,"max_tokens":%d,"temperature":0,"stream":%v}`, completion.Model, q.prompt, q.tokens, q.stream)
	id := fmt.Sprintf("%s%d-%s", idBegin, time.Since(r.began).Nanoseconds(), q.suffix)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+r.proxy.addr+"/v1/completions", strings.NewReader(body))
	if err != nil {
		return fmt.Errorf("ask the proxy: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Request-Id", id)
	if q.early {
		r.leaving.Store(id, cancel)
		defer r.leaving.Delete(id)
	}
	begin := time.Now()
	if err = answered(c, req, q, id); err != nil {
		err = fmt.Errorf("%s, %d tokens, streamed: %v, after %v: %w", id, q.tokens, q.stream, time.Since(begin).Round(time.Millisecond), err)
	}
	switch {
	case ctx.Err() != nil:
		r.tally.gone.Add(1)
		return nil
	case err == nil:
		r.tally.complete.Add(1)
	}
	return err
}

func answered(c *http.Client, req *http.Request, q request, id string) error {
	resp, err := c.Do(req)
	if err != nil {
		return fmt.Errorf("ask the proxy: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return fmt.Errorf("read an answer, %d bytes so far: %w", len(text), err)
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("status %d: %.300s", resp.StatusCode, text)
	case !q.stream && bytes.Count(text, []byte(id)) != 1:
		return fmt.Errorf("wrong answer: %.300s", text)
	case q.stream && (bytes.Count(text, []byte(id)) != q.tokens || !bytes.HasSuffix(text, []byte("data: [DONE]\n\n"))):
		return fmt.Errorf("wrong stream of %d bytes, for %d tokens", len(text), q.tokens)
	}
	return nil
}
