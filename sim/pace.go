package sim

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// pace is an engine's time, which prompts and answers share. A prompt is computed in chunks of
// max_num_batched_tokens. Each chunk is part of one decode step and makes it longer. Meanwhile the
// time of the decode steps does not advance.
type pace struct {
	streams atomic.Int64 // answers that are being written
	context atomic.Int64 // tokens of their prompts
	epoch   time.Time

	mu    sync.Mutex
	spent time.Duration // on chunks that have ended
	since time.Time     // when the running chunk began; zero if there is none
	until time.Time     // when it will end
}

func newPace() *pace { return &pace{epoch: time.Now()} }

// join counts an answer in that is being written. The answer calls leave at its end.
func (p *pace) join(promptTokens int) (leave func()) {
	p.streams.Add(1)
	p.context.Add(int64(promptTokens))
	return func() {
		p.streams.Add(-1)
		p.context.Add(-int64(promptTokens))
	}
}

func (p *pace) beginChunk(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = time.Now()
	p.until = p.since.Add(d)
}

func (p *pace) endChunk() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spent += time.Since(p.since)
	p.since = time.Time{}
}

// read returns the time that decode steps have had, and how long the running chunk will give them
// none.
func (p *pace) read() (reading, stands time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.since.IsZero() {
		return now.Sub(p.epoch) - p.spent, 0
	}
	return p.since.Sub(p.epoch) - p.spent, max(0, p.until.Sub(now))
}

// now returns the first value of read.
func (p *pace) now() time.Duration {
	reading, _ := p.read()
	return reading
}

// spend takes d. If this engine computes one prompt after the other, it takes d in chunks, and r
// must have the turn. Running answers get one step between two chunks. spend returns false if ctx
// ended first.
func (c *core) spend(ctx context.Context, d time.Duration) bool {
	if !c.o.takesTurns() {
		return c.pause(ctx, d)
	}
	chunk := max(c.o.prefillTime(c.o.MaxBatchedTokens), 1)
	for d > 0 {
		c.pace.beginChunk(min(d, chunk))
		ok := c.pause(ctx, min(d, chunk))
		c.pace.endChunk()
		if !ok {
			return false
		}
		d -= chunk
		if d > 0 && c.pace.streams.Load() > 0 && !c.pause(ctx, c.stepTime()) {
			return false
		}
	}
	return c.pause(ctx, 0)
}

// awaitStep waits until the decode steps have had target, which is a value of the pace. It returns
// false if ctx ended first.
func (c *core) awaitStep(ctx context.Context, target time.Duration) bool {
	for {
		reading, stands := c.pace.read()
		left := target - reading
		if left <= 0 {
			return c.pause(ctx, 0)
		}
		if !c.pause(ctx, left+stands) {
			return false
		}
	}
}
