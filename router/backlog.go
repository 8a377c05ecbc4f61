package router

import "math"

// A prefill engine computes one prompt after the other, more or less. So what it has in
// flight is not what it has yet to do: the prompt at the head is half done, on the average,
// and where prompts are long that is most of a queue. Each backend therefore has the time
// at which it will be done, moved on by each prompt at the pace that is measured of the
// whole pool. An engine may be slower than that: it is brought back to what is in flight by
// each prompt that ends, and all prompts but one are taken to be untouched until then.

// pace is how many nanoseconds a token of a prefill takes; 0: not known yet.
func (p *prices) pace() float64 { return p.own(PrefillWork, 1) * 1e9 }

// backlog is the tokens that b has yet to compute: all that are in flight while no pace is
// known, or where the backend holds prompts in place of computing them.
func (b *Backend) backlog(now int64, pace float64) float64 {
	n := b.tokens.Load()
	if n <= 0 || pace <= 0 || b.Role == Decode {
		return float64(max(n, 0))
	}
	return left(b.free.Load(), now, n, b.inflight.Load(), pace)
}

// left is what is still to be computed until free, of n tokens of so many prompts in flight:
// no more than all, and no less than the mean of all but one.
func left(free, now, n, prompts int64, pace float64) float64 {
	least := float64(n) * (1 - 1/float64(max(prompts, 1)))
	return min(max(float64(free-now)/pace, least), float64(n))
}

// localPace is how many nanoseconds a token takes that decode computes itself; 0: not known.
func (p *prices) localPace() float64 { return p.one(LocalWork) * 1e9 }

// local is backlog for the prompts that b, of decode, computes itself.
func (b *Backend) local(now int64, pace float64) float64 {
	n, whole := float64(max(b.computing.Load(), 0)), 0.0
	if pace > 0 {
		whole = max(float64(b.whole.Load()-now)/pace, 0)
	}
	if n == 0 || pace <= 0 {
		return n + whole
	}
	least := n * (1 - 1/float64(max(b.computers.Load(), 1)))
	return min(max(float64(b.free.Load()-now)/pace, least), n+whole)
}

// enqueue counts the tokens in, and returns the backlog that they found. The prompt is in
// flight already.
func (b *Backend) enqueue(tokens int64) (ahead int64) {
	n := b.tokens.Add(tokens) - tokens
	pace := b.router.prices.pace()
	if b.Role == Decode || pace <= 0 {
		return n
	}
	now := b.router.now()
	for {
		free := b.free.Load()
		found := left(free, now, n, b.inflight.Load()-1, pace)
		if b.free.CompareAndSwap(free, now+int64((found+float64(tokens))*pace)) {
			return int64(math.Round(found))
		}
	}
}

// dequeue counts the tokens of a prompt out. One that was answered was the head of the queue:
// what stood behind it begins only now.
func (b *Backend) dequeue(tokens int64, o Outcome) {
	n := b.tokens.Add(-tokens)
	switch {
	case n == 0:
		b.free.Store(0)
		b.whole.Store(0)
	case b.Role == Prefill && o == OK:
		b.free.Store(b.router.now() + int64(float64(n)*b.router.prices.pace()))
	}
}
