package router

import (
	"time"

	"xpyd/router/price"
)

// learned is what live traffic has taught. It outlives snapshots, which hold none of it.
type learned struct {
	pairs      Pairs
	prices     price.Prices
	prompts    [2]price.PromptSize // by Role
	tokenBytes price.TokenBytes
	chooser    chooser
	traffic    traffic
}

// Prefilled learns from a prefill leg: its own uncached tokens, and those that its
// backend had before it when it was sent.
func (r *Router) Prefilled(ahead, own int, took time.Duration) {
	now := r.now()
	r.prices.Learn(price.Prefill, ahead+own, took, now)
	r.traffic.prefilled(now, own, r.prices.Own(price.Prefill, own))
}

// Pulled learns from a decode leg with a handle: the tokens that D did not have, and
// the time to its first event.
func (r *Router) Pulled(tokens int, took time.Duration) {
	r.prices.Learn(price.Transfer, tokens, took, r.now())
}

// Computed learns from a decode leg without a handle: its own uncached tokens, those
// that D was computing already, and the time to the first event; below 0 where the answer
// came whole.
func (r *Router) Computed(d *Backend, ahead, own int, took time.Duration) {
	now := r.now()
	r.prices.Learn(price.Local, ahead+own, took, now)
	work := float64(own) * r.prices.PerToken(price.Local)
	d.localNanos.Add(int64(work * 1e9))
	r.traffic.computed(now, own, work)
}

// StreamEnded learns from a stream of d that had so many tokens and took so long behind
// its first event, during which d's LocalTime grew by local.
func (r *Router) StreamEnded(tokens int, local, took time.Duration) {
	r.prices.StreamEnded(tokens, local, took)
}

// StallShare is price.Prices.StallShare of what has been learned.
func (r *Router) StallShare() float64 { return r.prices.StallShare() }

// Prices lists what is known, by price.Work.
func (r *Router) Prices() map[string]price.Price { return r.prices.List(r.now()) }

// LocalTime is the time that a decode backend has spent on prefills of its own, as far
// as xpyd sent them.
func (b *Backend) LocalTime() time.Duration { return time.Duration(b.localNanos.Load()) }

// ObservePrompt feeds what an engine counted of a prompt (usage.prompt_tokens) and its
// size as in kvparams.Request.PromptBytes into the estimates of token counts.
func (r *Router) ObservePrompt(bytes, tokens int) { r.tokenBytes.Observe(bytes, tokens) }

// TokenBytes is the mean size of a prompt's token in the body of its request, in bytes.
func (r *Router) TokenBytes() float64 { return r.tokenBytes.Load() }
