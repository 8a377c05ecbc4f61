package router

import "math"

// A prefill engine computes one prompt after the other, more or less. So it has less left to do
// than it has in flight. On average the prompt at the head is half done, and if prompts are long,
// that is most of a queue. Each backend therefore has the time at which it will be done. Each
// prompt moves that time on, at the measured pace of the whole pool. An engine may be slower than
// its pool, so each prompt that ends brings the time back to what is in flight. Until then all
// prompts but one count as not started.

// rateOf turns a pace into tokens per nanosecond, or 0 if it is not known. Choices multiply by it,
// because a division for each backend would take a good part of their time.
func rateOf(pace float64) float64 {
	if pace <= 0 {
		return 0
	}
	return 1 / pace
}

// backlog is the tokens that b still has to compute. While no rate is known, that is all tokens in
// flight.
func (b *Backend) backlog(now int64, rate float64) float64 {
	n := max(b.tokens.Load(), 0)
	if rate == 0 {
		return float64(n)
	}
	return remaining(float64(b.free.Load()-now)*rate, float64(n), b.inflight.Load())
}

// remaining is the number of tokens still to compute, of n tokens in that many prompts in flight,
// if the clock says todo. It is at most all of them, and at least all but an average prompt.
func remaining(todo, n float64, prompts int64) float64 {
	return min(max(todo, n-n/float64(max(prompts, 1))), n)
}

// computesAny reports whether local is not 0.
func (b *Backend) computesAny(now int64) bool { return b.computing.Load() > 0 || b.whole.Load() > now }

// local is the backlog of the prompts that decode backend b computes itself.
func (b *Backend) local(now int64, rate float64) float64 {
	if !b.computesAny(now) {
		return 0
	}
	n := float64(max(b.computing.Load(), 0))
	// An estimate that is too high adds up over answers that overlap, but no prompt is computed once its answer has ended.
	whole := min(max(float64(b.whole.Load()-now)*rate, 0), max(float64(b.tokens.Load())-n, 0))
	if n == 0 || rate == 0 {
		return n + whole
	}
	least := n - n/float64(max(b.computers.Load(), 1))
	return min(max(float64(b.free.Load()-now)*rate, least), n+whole)
}

// enqueue adds the tokens of a prompt, and returns the backlog before it. The prompt is in flight
// already.
func (b *Backend) enqueue(tokens int64) (ahead int64) {
	n := b.tokens.Add(tokens) - tokens
	pace := b.router.prices.Pace()
	if b.Role == Decode || pace <= 0 {
		return n
	}
	now := b.router.now()
	for {
		free := b.free.Load()
		n = b.tokens.Load() - tokens // those that free counts in among them
		found := remaining(float64(free-now)/pace, float64(n), b.inflight.Load()-1)
		if b.free.CompareAndSwap(free, now+int64((found+float64(tokens))*pace)) {
			return int64(math.Round(found))
		}
	}
}

// enqueueLocal adds a prompt that decode backend b computes itself. It returns what b has to
// compute before.
func (b *Backend) enqueueLocal(tokens int64, streams bool) (ahead float64) {
	pace := b.router.prices.LocalPace()
	b.localMu.Lock()
	defer b.localMu.Unlock()
	now := b.router.now()
	ahead = b.local(now, rateOf(pace))
	if tokens <= 0 {
		return ahead
	}
	end := now + int64((ahead+float64(tokens))*pace)
	if streams {
		b.computing.Add(tokens)
		b.computers.Add(1)
	} else {
		b.whole.Store(end)
	}
	b.free.Store(end)
	return ahead
}

// nextLocal notes that a prompt has just been computed, so the next one starts only now.
func (b *Backend) nextLocal() {
	b.localMu.Lock()
	defer b.localMu.Unlock()
	if n := b.computing.Load(); n > 0 {
		end := b.router.now() + int64(float64(n)*b.router.prices.LocalPace())
		b.free.Store(max(b.free.Load(), end))
	}
}

// dequeue takes the tokens of a prompt away. A prompt that was answered was the head of the queue,
// so the next one starts only now. A free or whole that has moved meanwhile stays, because it
// counts a prompt that this call does not know.
func (b *Backend) dequeue(tokens int64, o Outcome) {
	free, whole := b.free.Load(), b.whole.Load()
	n := b.tokens.Add(-tokens)
	switch {
	case n == 0:
		b.free.CompareAndSwap(free, 0)
		b.whole.CompareAndSwap(whole, 0)
	case b.Role == Prefill && o == OK:
		b.free.CompareAndSwap(free, b.router.now()+int64(float64(n)*b.router.prices.Pace()))
	}
}
