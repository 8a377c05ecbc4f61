package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"xpyd/cmd/config"
	"xpyd/cmd/daemon"
	"xpyd/router"
	"xpyd/sim"
	"xpyd/tools/process"
	"xpyd/tools/sse"
)

// rig is xpyd over a simulated pair of engines, in this process.
type rig struct {
	addr     string        // of xpyd
	patience time.Duration // bounds one check
	hook     atomic.Pointer[func(sim.Event)]
	close    func()
}

// idPrefix begins the ids of the checks' requests. xpyd's own have others.
const idPrefix = "front-"

func startRig() (*rig, error) {
	r := &rig{patience: patience}
	hook := func(e sim.Event) {
		if f := r.hook.Load(); f != nil && strings.HasPrefix(e.RequestID, idPrefix) {
			(*f)(e)
		}
	}
	// A prompt of a few tokens takes no time, one of thousands takes far longer than a check, and neither
	// waits for the other.
	p, err := sim.Start(sim.Options{Name: "prefill", Role: sim.RolePrefill, PrefillTokensPerSecond: 200, MaxBatchedTokens: -1, Hook: hook})
	if err != nil {
		return nil, err
	}
	d, err := sim.Start(sim.Options{Name: "decode", Role: sim.RoleDecode, TokenLatency: 20 * time.Millisecond, Hook: hook})
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	cfg := config.Default()
	cfg.Listen, cfg.Admin = "127.0.0.1:0", ""
	cfg.Router.Prefill, cfg.Router.Decode = router.MustEntries(p.URL()), router.MustEntries(d.URL())
	x, err := daemon.Start(cfg, "front", zerolog.Nop())
	if err != nil {
		return nil, errors.Join(err, p.Close(), d.Close())
	}
	r.addr = x.Addr
	r.close = func() { _ = errors.Join(x.Shutdown(), p.Close(), d.Close()) }
	return r, nil
}

// trial is one check under way.
type trial struct {
	ctx    context.Context
	url    string
	id     string
	phases chan sim.Event // of the check's request
	read   chan struct{}  // an event was read; the engine writes the next one after that
	free   chan struct{}  // closed: the engine waits for nobody
}

type check struct {
	name string
	run  func(*trial) error
}

func checks() []check {
	return []check{
		{"EVENTS", eventByEvent},
		{"LEAVES THE PREFILL", leavesPrefill},
		{"LEAVES THE STREAM", leavesStream},
		{"2 MiB BODY", largeBody},
	}
}

// check runs one check through addr.
func (r *rig) check(ctx context.Context, c check, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	t := &trial{ctx: ctx, url: "http://" + addr, id: idPrefix + strings.ToLower(strings.ReplaceAll(c.name, " ", "-")),
		phases: make(chan sim.Event, 1000), read: make(chan struct{}), free: make(chan struct{})}
	hook := func(e sim.Event) {
		if !strings.HasPrefix(e.RequestID, t.id) {
			return
		}
		if e.Phase != sim.PhaseStreamEvent {
			t.phases <- e
			return
		}
		select {
		case <-t.read:
		case <-t.free:
		case <-ctx.Done():
		}
	}
	r.hook.Store(&hook)
	defer r.hook.Store(nil)
	return c.run(t)
}

// send sends a streamed completion with a client of its own.
func (t *trial) send(ctx context.Context, prompt string, tokens int, padding string) (*http.Response, error) {
	body := fmt.Sprintf(`{"model":"sim","prompt":%q,"max_tokens":%d,"stream":true%s}`, prompt, tokens, padding)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := process.Send(ctx, client, t.url+"/v1/completions", []byte(body), "X-Request-Id", t.id)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		return nil, errors.Join(fmt.Errorf("status %d: %s", resp.StatusCode, said), resp.Body.Close())
	}
	return resp, nil
}

// await waits until the engine has reached the phase.
func (t *trial) await(phase sim.Phase) error {
	for {
		select {
		case e := <-t.phases:
			if e.Phase == phase {
				return nil
			}
		case <-t.ctx.Done():
			return fmt.Errorf("no engine saw %s", phase)
		}
	}
}

// eventByEvent has the engine write each event only after the client has read the one before. So a
// proxy that holds an event back holds up all of them.
func eventByEvent(t *trial) error {
	const tokens = 12
	resp, err := t.send(t.ctx, "event by event", tokens, "")
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	events := sse.NewReader(resp.Body)
	for n := 0; ; n++ {
		data, err := events.Next()
		if err != nil {
			return fmt.Errorf("event %d did not come, while the engine waited for it to be read: %w", n, err)
		}
		if sse.Done(data) {
			if n < tokens {
				return fmt.Errorf("%d events for %d tokens", n, tokens)
			}
			return nil
		}
		select {
		case t.read <- struct{}{}:
		case <-t.ctx.Done():
			return fmt.Errorf("event %d: the engine has written no more", n)
		}
	}
}

// leavesPrefill has a client leave while it has no byte of its answer.
func leavesPrefill(t *trial) error {
	ctx, leave := context.WithCancel(t.ctx)
	defer leave()
	sent := make(chan error, 1)
	go func() {
		resp, err := t.send(ctx, strings.Repeat("long ", 10000), 5, "")
		if err == nil {
			err = errors.Join(errors.New("the answer came before the client had left"), resp.Body.Close())
		}
		sent <- err
	}()
	if err := t.await(sim.PhasePrefillStart); err != nil {
		return err
	}
	leave()
	if err := <-sent; !errors.Is(err, context.Canceled) {
		return err
	}
	return t.await(sim.PhaseAborted)
}

// leavesStream has a client leave after the third event of many.
func leavesStream(t *trial) error {
	ctx, leave := context.WithCancel(t.ctx)
	defer leave()
	resp, err := t.send(ctx, "a client that leaves", 20000, "")
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	close(t.free)
	events := sse.NewReader(resp.Body)
	for range 3 {
		if _, err := events.Next(); err != nil {
			return err
		}
	}
	leave()
	return t.await(sim.PhaseAborted)
}

// largeBody sends more than nginx takes without being told to.
func largeBody(t *trial) error {
	close(t.free)
	resp, err := t.send(t.ctx, "a large body", 3, strings.Repeat(" ", 2<<20))
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	said, err := io.ReadAll(resp.Body)
	if err == nil && !strings.HasSuffix(string(said), "data: [DONE]\n\n") {
		err = errors.New("the stream has no end")
	}
	return err
}
