package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// In the check events, xpyd asks one engine where its KV events are, and listens. What it then knows of the engine's
// prefix cache, of 256 blocks, must be what is there.

const (
	eventRequests = 1000
	eventClients  = 8
	eventWait     = 20 * time.Second // for xpyd to know what the engine has
)

// cacheList is the file into which the engine writes how many blocks its prefix cache has.
func (e *engine) cacheList() string { return filepath.Join(e.fleet.runDir, e.name+".blocks") }

// listening is a run of that check.
type listening struct {
	t       *trial
	engine  *engine
	xpyd    *proxy
	prompts *prompts
}

func kvEvents(ctx context.Context, t *trial) error {
	s := plainEngine()
	s.name, s.port, s.args, s.listed = "events", 6, baseArgs(), true
	t.say("starting the engine")
	e, err := t.fleet.engine(ctx, s)
	if err != nil {
		return err
	}
	x, err := t.fleet.proxy(ctx, "--decode", e.entry(), "--decode-policy", "prefix", "--health-interval", "1s", "--health-timeout", "30s")
	if err != nil {
		return err
	}
	l := &listening{t: t, engine: e, xpyd: x, prompts: newPrompts(3)}
	if err := l.chats(ctx, eventRequests); err != nil {
		return err
	}
	if err := l.equal(ctx, fmt.Sprintf("after %d requests", eventRequests)); err != nil {
		return err
	}
	if err := l.twice(ctx); err != nil {
		return err
	}
	return l.restart(ctx)
}

// chats sends so many requests. Most of them begin as others do, and all together fill the cache many times.
func (l *listening) chats(ctx context.Context, n int) error {
	beginnings := make([][]int, 2*eventClients)
	for i := range beginnings {
		beginnings[i] = l.prompts.ids(100 + 20*i)
	}
	var bodies []string
	for i := range n {
		ids := append([]int(nil), beginnings[i%len(beginnings)]...)
		bodies = append(bodies, idsBody(append(ids, l.prompts.ids(i%97)...)))
	}
	return l.send(ctx, bodies)
}

func idsBody(ids []int) string {
	return fmt.Sprintf(`{"model":"tiny","prompt":[%s],"max_tokens":2,"temperature":0}`, strings.Trim(strings.Join(strings.Fields(fmt.Sprint(ids)), ","), "[]"))
}

// send sends requests, a few at a time.
func (l *listening) send(ctx context.Context, bodies []string) error {
	work := make(chan string)
	var wg sync.WaitGroup
	for range eventClients {
		wg.Go(func() {
			for body := range work {
				a, err := send(ctx, l.xpyd.url, request{path: completionsPath, body: []byte(body)})
				l.t.judge(err == nil && a.status == 200, "a prompt of ids: status %d, %v", a.status, err)
			}
		})
	}
	for _, body := range bodies {
		work <- body
	}
	close(work)
	wg.Wait()
	return ctx.Err()
}

// twice has prompts computed several times at once. vLLM keeps a copy of each, and evicts the copies one by one.
func (l *listening) twice(ctx context.Context) error {
	for range 5 {
		body := idsBody(l.prompts.ids(320))
		if err := l.send(ctx, []string{body, body, body, body, body, body}); err != nil {
			return err
		}
	}
	if err := l.equal(ctx, "after prompts that were computed at the same time"); err != nil {
		return err
	}
	if err := l.chats(ctx, 40); err != nil {
		return err
	}
	return l.equal(ctx, "after their evictions")
}

// restart starts the engine anew. It publishes on other ports then.
func (l *listening) restart(ctx context.Context) error {
	if err := l.engine.start(ctx); err != nil {
		return err
	}
	if err := poll(ctx, time.Minute, func() bool {
		up, err := l.xpyd.metric("xpyd_backend_up")
		return err == nil && up == 1
	}); err != nil {
		return fmt.Errorf("await the engine after its restart: %w", err)
	}
	if err := l.chats(ctx, 40); err != nil {
		return err
	}
	return l.equal(ctx, "after a restart")
}

// equal judges that xpyd knows as many blocks as the engine has.
func (l *listening) equal(ctx context.Context, when string) error {
	var known float64
	var there int
	err := poll(ctx, eventWait, func() bool {
		known, _ = l.xpyd.metric("xpyd_kv_events_blocks")
		text, err := os.ReadFile(l.engine.cacheList())
		if err != nil {
			return false
		}
		there, err = strconv.Atoi(string(text))
		return err == nil && there > 0 && int(known) == there
	})
	missed, _ := l.xpyd.metric("xpyd_kv_events_missed_total")
	l.t.say("%s the engine has %d blocks, and xpyd knows %.0f", when, there, known)
	l.t.judge(err == nil && missed == 0, "%s the engine has %d blocks in its cache, and xpyd knows %.0f; %.0f batches are missed", when, there, known, missed)
	return ctx.Err()
}
