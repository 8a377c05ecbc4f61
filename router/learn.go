package router

import (
	"time"

	"xpyd/router/price"
)

// learned is what live traffic has taught the router. It outlives snapshots, and no snapshot
// holds any of it.
type learned struct {
	pairs       Pairs
	prices      price.Prices
	prompts     [roleCount]price.PromptSize // by Role
	tokenBytes  price.TokenBytes
	mediaTokens price.MediaTokens
	chooser     chooser
	traffic     traffic
	fleets      fleets
}

// Prefilled learns from a prefill leg. own is its uncached tokens, and ahead is the tokens that its
// backend had to compute first.
func (r *Router) Prefilled(ahead, own int, took time.Duration) {
	now := r.now()
	r.learn(price.Prefill, ahead+own, took, now)
	r.traffic.prefilled(now, own, r.prices.Own(price.Prefill, own))
}

// Pulled learns from a decode leg with a handle. own is the tokens that D did not have, beside is Lease.Beside, and
// took is the time to its first event.
func (r *Router) Pulled(beside, own int, took time.Duration) {
	r.learn(price.Transfer, beside+own, took, r.now())
}

// Computed learns from a decode leg without a handle. own is its uncached tokens, ahead is the tokens
// that D was already computing, and took is the time to the first event, or below 0 if the answer came
// whole.
func (r *Router) Computed(d *Backend, ahead, own int, took time.Duration) {
	now := r.now()
	r.learn(price.Local, ahead+own, took, now)
	work := float64(own) * r.prices.PerToken(price.Local)
	d.localNanos.Add(int64(work * 1e9))
	r.traffic.computed(now, own, work)
}

// learn updates a price. If a request was spent to learn it and took less than half of it, another one soon is, because
// a single leg changes a price by half at most.
func (r *Router) learn(w price.Work, tokens int, took time.Duration, now int64) {
	if took >= 0 && r.chooser.trial.CompareAndSwap(trialOf(w), 0) && took.Seconds() < r.prices.Cost(w, float64(tokens))/2 {
		r.chooser.decided.Store(exploreShare - exploreAgain)
	}
	r.prices.Learn(w, tokens, took, now)
}

// Streaming is what a decode backend did at a moment.
type Streaming struct {
	at    int64 // by the router's clock
	local time.Duration
	batch int64 // its streams, without those that wait for their prefill or their blocks
}

// Streams is what decode backend b does now.
func (b *Backend) Streams() Streaming {
	now := b.router.now()
	return Streaming{now, b.LocalTime(), max(0, b.inflight.Load()-b.pulling.look(now).still)}
}

// StreamEnded learns from a stream with the given number of tokens, whose first event was at s on d. Its batch is
// taken for the mean of those at its beginning and its end.
func (r *Router) StreamEnded(d *Backend, s Streaming, tokens int) {
	now := d.Streams()
	r.traffic.answered(now.at, tokens)
	r.prices.StreamEnded(tokens, float64(s.batch+now.batch)/2, now.local-s.local, time.Duration(now.at-s.at))
}

// StallShare is the share of the time of a decode engine's own prefills that its running streams lose.
// It is 1 at first.
func (r *Router) StallShare() float64 { return r.prices.StallShare() }

// Prices maps the name of each work to its price, if that is known.
func (r *Router) Prices() map[string]price.Price { return r.prices.List(r.now()) }

// LocalTime is the time that a decode backend has spent on its own prefills of prompts that this
// process sent.
func (b *Backend) LocalTime() time.Duration { return time.Duration(b.localNanos.Load()) }

// ObservePrompt improves the estimate of token counts. It takes the tokens that an engine counted in a
// prompt (usage.prompt_tokens), and the size and the media of the prompt from kvparams.Request.PromptText.
func (r *Router) ObservePrompt(bytes, media, tokens int) {
	switch {
	case tokens <= 0: // not known
	case media == 0:
		r.tokenBytes.Observe(bytes, tokens)
	default:
		r.mediaTokens.Observe((float64(tokens) - float64(bytes)/r.TokenBytes()) / float64(media))
	}
}

// TokenBytes is the mean number of bytes that a token of a prompt takes in the request body.
func (r *Router) TokenBytes() float64 { return r.tokenBytes.Load() }

// MediaTokens is the mean number of tokens of an image, sound or video.
func (r *Router) MediaTokens() float64 { return r.mediaTokens.Load() }

// Answered learns from a whole answer of decode backend b, of so many tokens one after the other. took is the time since
// it had the request.
func (b *Backend) Answered(tokens int, took time.Duration) { b.answers.Add(tokens, took) }

// Generated is how many tokens of an answer b has likely made in this time.
func (b *Backend) Generated(took time.Duration) int { return int(max(0, took) / b.answers.Token()) }
