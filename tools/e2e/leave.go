package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// faultChecks are the rows about clients that leave, engines that die and hostile requests.
// Those that end engines come last.
func faultChecks() []check {
	return []check{
		{name: "leave", run: leave},
		{name: "hostile", run: hostile},
		{name: "free", run: free},
		{name: "die", run: die},
		{name: "encode", run: encode},
	}
}

// The check leave: clients that go away in every phase of a completion must not leave blocks
// of the prefill engine pinned.

const (
	departures   = 300
	leaveAtOnce  = 16
	leaveWaiting = 24 // clients that wait for a decode engine, and as many that have one
	leaveLeast   = 20 // fewer in a phase prove nothing
	leaveFree    = 3 * time.Second
)

// phase is where a client leaves, as seen on the wire.
type phase string

const (
	phaseComputes phase = "P computes"
	phaseAnswered phase = "P has answered, xpyd does not know"
	phaseWaits    phase = "xpyd holds the handle, no D is free"
	phaseDecodes  phase = "D has the request, no event yet"
	phaseStream   phase = "in the stream"
)

// leavePhases leaves out phaseWaits where the legs start together: xpyd holds no handle, and nothing has
// begun while no decode engine is free.
func (c connector) leavePhases() []phase {
	if c.together {
		return []phase{phaseComputes, phaseAnswered, phaseDecodes, phaseStream}
	}
	return []phase{phaseComputes, phaseAnswered, phaseWaits, phaseDecodes, phaseStream}
}

// departure is a client that leaves.
type departure struct {
	id   string
	in   phase
	how  int // index of the way to leave
	ask  ask
	here bool // it left where it was meant to
}

// leaver makes the clients of one check leave.
type leaver struct {
	t    *trial
	p, d *engine
	rp   *relay
	rd   [2]*relay // both in front of d
	x    *proxy

	mu      sync.Mutex
	left    []*departure
	last    time.Time     // the last one left
	prefill time.Duration // running mean of what P took
}

func leave(ctx context.Context, t *trial) error {
	engines, err := t.fleet.all(ctx, prefillEngine(1), decodeEngine(1))
	if err != nil {
		return err
	}
	l := &leaver{t: t, p: engines[0], d: engines[1], prefill: 100 * time.Millisecond}
	books, err := openBooks(ctx, l.p, l.d)
	if err != nil {
		return err
	}
	if l.rp, err = newRelay(l.p); err != nil {
		return err
	}
	defer l.rp.close()
	for i := range l.rd {
		if l.rd[i], err = newRelay(l.d); err != nil {
			return err
		}
		defer l.rd[i].close()
	}
	// The checks come quickly, because a decode engine is taken down below. On a slow machine a
	// prefill takes longer than the default grace of 1 s. A row of the check free shows what it
	// costs to give one up.
	if l.x, err = t.fleet.proxy(ctx, "--prefill", t.fleet.opts.kv.prefill(l.rp.url, l.p), "--decode", l.rd[0].url+","+l.rd[1].url,
		"--decode-max-in-flight", fmt.Sprint(leaveWaiting), "--queue-wait", "30s", "--timeouts-prefill-abort-grace", "20s",
		"--health-interval", "1s", "--health-suspect-interval", "200ms", "--health-timeout", "10s", "--health-rise", "1", "--health-slow-start", "0s"); err != nil {
		return err
	}
	if l.crowd(ctx); l.t.enough() {
		return nil // the failures say why
	}
	if !t.fleet.opts.kv.together {
		if err := l.waiting(ctx); err != nil {
			return err
		}
	}
	return l.settle(ctx, books)
}

// crowd makes all clients leave, some at a time, except those that wait for a decode engine.
func (l *leaver) crowd(ctx context.Context) {
	todo := make(chan *departure)
	var workers sync.WaitGroup
	for range leaveAtOnce {
		workers.Go(func() {
			for d := range todo {
				if err := l.one(ctx, d); err != nil { // it could not reach the place where it was to leave
					l.t.fail("%s: %v", d.id, err)
				}
			}
		})
	}
	order := []phase{phaseComputes, phaseAnswered, phaseComputes, phaseDecodes, phaseStream, phaseAnswered, phaseDecodes, phaseStream, phaseComputes}
	here := departures - 2*leaveWaiting
	if l.t.fleet.opts.kv.together {
		here = departures
	}
	for i := range here {
		if l.t.enough() {
			break
		}
		todo <- newDeparture(i, order[i%len(order)])
	}
	close(todo)
	workers.Wait()
}

func newDeparture(i int, in phase) *departure {
	d := &departure{id: fmt.Sprintf("leave-%03d", i), in: in, how: i % len(waysToLeave()), ask: ask{chat: rand.IntN(2) == 0, stream: rand.IntN(2) == 0, tokens: 1 + rand.IntN(100)}}
	size := 50 + rand.IntN(300)
	switch in {
	case phaseComputes:
		size = 1000 + rand.IntN(500)
	case phaseStream:
		d.ask.stream, d.ask.tokens = true, 400
	}
	d.ask.prompt = randomPrompt(size)
	return d
}

// waysToLeave returns a plain close, a reset, and half a close by a client that reads on.
func waysToLeave() []func(*visit) {
	return []func(*visit){
		func(v *visit) { v.close() },
		func(v *visit) {
			_ = v.conn.(*net.TCPConn).SetLinger(0)
			v.close()
		},
		func(v *visit) { _ = v.conn.(*net.TCPConn).CloseWrite() },
	}
}

// one is a client that comes, leaves in its phase, and is gone a moment later.
func (l *leaver) one(ctx context.Context, d *departure) error {
	var holds, late []*hold // late ones are not waited for
	switch d.in {
	case phaseAnswered:
		holds = append(holds, l.rp.hold(stepAnswer, d.id))
		if l.t.fleet.opts.kv.together { // or D, which has the request too, would answer it to its end
			late = append(late, l.rd[0].hold(stepRequest, d.id), l.rd[1].hold(stepRequest, d.id))
		}
	case phaseDecodes:
		s := step(rand.IntN(2)) // D has not seen the request, or has its answer ready
		holds = append(holds, l.rd[0].hold(s, d.id), l.rd[1].hold(s, d.id))
	}
	v, err := call(ctx, l.x.url, d.ask.path(), d.id, d.ask.body(nil))
	if err != nil {
		return err
	}
	defer v.close()
	if err := l.reach(ctx, d, v, holds); err != nil {
		return fmt.Errorf("%s, which is to leave when %s: %w", d.id, d.in, err)
	}
	at := time.Now()
	waysToLeave()[d.how](v)
	pause := rand.N(300 * time.Millisecond)
	if d.in == phaseDecodes {
		pause += 200 * time.Millisecond // so that the client is known to be gone before D's answer comes
	}
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	}
	for _, h := range append(holds, late...) {
		h.let()
	}
	if d.in == phaseComputes {
		d.here = l.computedAt(d.id, at)
	}
	l.gone(at, d)
	return nil
}

// gone notes clients that have left at that time.
func (l *leaver) gone(at time.Time, all ...*departure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left = append(l.left, all...)
	if at.After(l.last) {
		l.last = at
	}
}

// reach waits until the client is where it must leave.
func (l *leaver) reach(ctx context.Context, d *departure, v *visit, holds []*hold) error {
	switch d.in {
	case phaseStream:
		d.here = true
		return v.events(1 + rand.IntN(5))
	case phaseComputes:
		return l.whileComputing(ctx, d.id)
	}
	start := time.Now()
	if err := awaitAny(ctx, holds[0], holds[len(holds)-1]); err != nil {
		return err
	}
	d.here = true
	if d.in == phaseAnswered {
		l.mu.Lock()
		l.prefill = (3*l.prefill + time.Since(start)) / 4
		l.mu.Unlock()
	}
	return nil
}

// whileComputing waits for a random part of what P takes.
func (l *leaver) whileComputing(ctx context.Context, id string) error {
	if err := poll(ctx, stepTime, func() bool { return len(l.rp.times(stepRequest, id)) > 0 }); err != nil {
		return errors.New("its prefill did not begin")
	}
	l.mu.Lock()
	part := rand.N(l.prefill)
	l.mu.Unlock()
	select {
	case <-time.After(part):
	case <-ctx.Done():
	}
	return nil
}

// computedAt reports that P had the request at that time and had not answered it.
func (l *leaver) computedAt(id string, at time.Time) bool {
	answered := l.rp.times(stepAnswer, id)
	return len(answered) == 0 || answered[0].After(at)
}
