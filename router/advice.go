package router

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"xpyd/router/price"
)

// adviceWindow is how far Advice looks back.
const adviceWindow = 15 * time.Minute

const trafficBuckets = 15

// traffic is the work that the engines were given, by the minute.
type traffic struct {
	mu      sync.Mutex
	buckets [trafficBuckets]bucket
}

type bucket struct {
	minute                       int64 // since the router began, plus 1; 0: not in use
	prefills, computes           int64 // legs
	prefillTokens, computeTokens int64 // estimated, uncached
	prefillBusy, computeBusy     float64
	usage                        float64 // sum of the KV usage of the decode engines at their polls
	prompt, pulled               int64   // tokens of the prompts that decode engines had, and those pulled
	polls, waiting               int64   // polls of decode engines, and those that found requests waiting
	squares                      float64 // of the seconds of each prefill
	answers, answered            int64   // streams that ended, and their tokens
}

// at is the bucket of now. mu is held.
func (t *traffic) at(now int64) *bucket {
	minute := now/int64(time.Minute) + 1
	b := &t.buckets[minute%trafficBuckets]
	if b.minute != minute {
		*b = bucket{minute: minute}
	}
	return b
}

func (t *traffic) prefilled(now int64, tokens int, busy float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.at(now)
	b.prefills++
	b.prefillTokens += int64(tokens)
	b.prefillBusy += busy
	b.squares += busy * busy
}

func (t *traffic) answered(now int64, tokens int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.at(now)
	b.answers++
	b.answered += int64(tokens)
}

func (t *traffic) computed(now int64, tokens int, busy float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.at(now)
	b.computes++
	b.computeTokens += int64(tokens)
	b.computeBusy += busy
}

// polled notes what a decode engine's metrics said.
func (t *traffic) polled(now int64, usage float64, waits bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.at(now)
	b.polls++
	b.usage += usage
	if waits {
		b.waiting++
	}
}

// sum adds up the window, and returns its length.
func (t *traffic) sum(now int64) (s bucket, window time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	minute := now/int64(time.Minute) + 1
	for _, b := range t.buckets {
		if b.minute <= minute-trafficBuckets || b.minute == 0 {
			continue
		}
		s.prefills += b.prefills
		s.computes += b.computes
		s.prefillTokens += b.prefillTokens
		s.computeTokens += b.computeTokens
		s.prefillBusy += b.prefillBusy
		s.computeBusy += b.computeBusy
		s.usage += b.usage
		s.prompt += b.prompt
		s.pulled += b.pulled
		s.polls += b.polls
		s.waiting += b.waiting
		s.squares += b.squares
		s.answers += b.answers
		s.answered += b.answered
	}
	// The current minute has only begun.
	return s, min(time.Duration(now), adviceWindow-time.Minute+time.Duration(now%int64(time.Minute)))
}

// PoolAdvice is the arithmetic of one pool.
type PoolAdvice struct {
	Backends int `json:"backends"`
	// GPUs is the number of GPUs of all its backends. A backend whose entry gives no number counts as
	// 1. It is 0 if no entry of either pool gives one.
	GPUs float64 `json:"gpus,omitempty"`
	// Load is the share of the pool that the traffic kept busy, from 0 to 1 and above; −1: not known.
	Load float64 `json:"load"`
	// The pool computed Tokens for Requests in BusySeconds. SecondsPerToken is measured.
	Requests        int64   `json:"requests"`
	Tokens          int64   `json:"tokens"`
	BusySeconds     float64 `json:"busy_seconds"`
	BusySquares     float64 `json:"busy_squares,omitempty"` // of prefill: the sum of the squares of the requests' seconds
	SecondsPerToken float64 `json:"seconds_per_token"`
	// For decode engines, by their own metrics: the mean use of the KV cache, and the share of
	// polls that found requests waiting.
	KVUsage float64 `json:"kv_usage,omitempty"`
	Waiting float64 `json:"waiting,omitempty"`
}

// Advice says how many prefill and decode backends would balance the traffic of the last
// adviceWindow.
type Advice struct {
	WindowSeconds float64    `json:"window_seconds"`
	Prefill       PoolAdvice `json:"prefill"`
	Decode        PoolAdvice `json:"decode"`
	// The balanced split is the one in which the busier pool is least busy. It has as many backends as
	// now, or as many as the same GPUs allow if prefill and decode engines have different numbers of
	// GPUs. BalancedLoad is how busy the busier pool would be. The split is 0:0 if it is not known.
	BalancedPrefill int     `json:"balanced_prefill"`
	BalancedDecode  int     `json:"balanced_decode"`
	BalancedLoad    float64 `json:"balanced_load"`
	// Short is the pool that another backend would help most: prefill, decode or none. It is none if
	// the busier pool is less than half busy, too, and unknown if a load is not known.
	Short      string  `json:"short"`
	Arithmetic string  `json:"arithmetic"`
	Reuse      Reuse   `json:"reuse"`
	Answers    Answers `json:"answers"`
	Mismatch   string  `json:"mismatch,omitempty"` // see Snapshot.Mismatch

	roleless bool // some engines have no role, so each is a backend of both pools
}

// Answers is what the streams of the window say of a token. The times are measured, 0 if they are not.
type Answers struct {
	Tokens    float64 `json:"tokens"`             // of an answer, the mean
	Token     float64 `json:"token_seconds"`      // of a token of an engine's only answer
	PerStream float64 `json:"per_stream_seconds"` // more for each answer that the engine makes meanwhile
	First     float64 `json:"first_seconds"`      // of the first token, after the prefill: the mean of the transfers
}

// Values of Advice.Short, besides the names of the roles.
const (
	ShortNone    = "none"
	ShortUnknown = "unknown"
)

// Advice computes the advice when it is called.
func (s *Snapshot) Advice() Advice {
	r := s.router
	sum, window := r.traffic.sum(r.now())
	seconds := max(window.Seconds(), 1)
	x, y := len(s.prefill.backends), len(s.decode.backends)
	a := Advice{WindowSeconds: seconds, Short: ShortUnknown}
	a.Prefill = PoolAdvice{
		Backends: x, Load: -1, Requests: sum.prefills, Tokens: sum.prefillTokens,
		BusySeconds: sum.prefillBusy, SecondsPerToken: r.prices.Own(price.Prefill, 1),
	}
	a.Decode = PoolAdvice{
		Backends: y, Load: -1, Requests: sum.computes, Tokens: sum.computeTokens,
		BusySeconds: sum.computeBusy, SecondsPerToken: r.prices.PerToken(price.Local),
	}
	if x > 0 && sum.prefills > 0 {
		a.Prefill.Load = sum.prefillBusy / (float64(x) * seconds)
	}
	if sum.polls > 0 && y > 0 {
		polls := float64(sum.polls)
		a.Decode.KVUsage, a.Decode.Waiting = sum.usage/polls, float64(sum.waiting)/polls
		// Requests that wait mean a full engine, whatever filled it.
		a.Decode.Load = max(a.Decode.KVUsage, a.Decode.Waiting, sum.computeBusy/(float64(y)*seconds))
	}
	a.Prefill.BusySquares = sum.squares
	a.Answers = r.answers(sum)
	a.Reuse, a.Mismatch = s.reuse(sum), s.Mismatch()
	a.Prefill.GPUs, a.Decode.GPUs = countGPUs(s.prefill.gpus, s.decode.gpus)
	if n := len(twinsOf(s)); n > 0 {
		a.roleless = true
		a.share(n)
	} else {
		a.balance()
	}
	return a
}

// answers reads the streams of the window.
func (r *Router) answers(sum bucket) Answers {
	var a Answers
	if a.Token, a.PerStream = r.prices.Token(); sum.answers > 0 {
		a.Tokens = float64(sum.answered) / float64(sum.answers)
	}
	if a.Tokens == 0 {
		a.Token, a.PerStream = 0, 0 // what was before the window is no answer for it
	}
	if sum.prefills > 0 && r.prices.Known(price.Transfer) {
		a.First = r.prices.Cost(price.Transfer, float64(sum.prefillTokens)/float64(sum.prefills))
	}
	return a
}

// share says what engines without a role have to do. No engine need change its role for another split.
func (a *Advice) share(engines int) {
	if a.Prefill.Load < 0 && a.Decode.Load < 0 {
		a.Arithmetic = "not known yet: it needs requests that were prefilled, or the engines' metrics (routing.poll)"
		return
	}
	p, d := max(a.Prefill.Load, 0)*float64(a.Prefill.Backends), max(a.Decode.Load, 0)*float64(a.Decode.Backends)
	a.Arithmetic = fmt.Sprintf("%d engines have no role, so each request goes where it costs least and no split is to be found; "+
		"prompts computed apart are the work of %.2f engines (%s of %s), the answers, and prompts computed beside them, that of %.2f "+
		"(the highest of %s of the KV cache used, requests that waited at %s of the polls, and the time of prompts computed there, %s)",
		engines, p, showSeconds(a.Prefill.BusySeconds), showSeconds(a.WindowSeconds), d,
		showShare(a.Decode.KVUsage), showShare(a.Decode.Waiting), showSeconds(a.Decode.BusySeconds))
}

// countGPUs adds up the GPUs of both pools; 0 and 0 where none are told.
func countGPUs(prefill, decode []float64) (p, d float64) {
	told := false
	add := func(gpus []float64) (sum float64) {
		for _, n := range gpus {
			told = told || n > 0
			sum += cmp.Or(n, 1)
		}
		return sum
	}
	if p, d = add(prefill), add(decode); !told {
		return 0, 0
	}
	return p, d
}

// each is how many GPUs a backend of the pool has on average; 1 where none are told.
func (p *PoolAdvice) each() float64 {
	if p.GPUs == 0 || p.Backends == 0 {
		return 1
	}
	return p.GPUs / float64(p.Backends)
}

// splits are the numbers of prefill and decode backends that the GPUs of both pools allow.
func (a *Advice) splits() (all [][2]int) {
	pEach, dEach := a.Prefill.each(), a.Decode.each()
	gpus := float64(a.Prefill.Backends)*pEach + float64(a.Decode.Backends)*dEach
	const slack = 1e-9 // of thirds of a GPU
	for k := 1; float64(k)*pEach <= gpus+slack; k++ {
		if rest := int((gpus-float64(k)*pEach)/dEach + slack); rest >= 1 {
			all = append(all, [2]int{k, rest})
		}
	}
	return all
}

// shortFrom is the load from which a pool may be called short.
const shortFrom = 0.5

// balance finds the split. Each pool keeps at least one backend.
func (a *Advice) balance() {
	x, y := a.Prefill.Backends, a.Decode.Backends
	if a.Prefill.Load < 0 || a.Decode.Load < 0 {
		a.Arithmetic = "not known yet: it needs requests that were prefilled, " +
			"and the decode engines' metrics (routing.poll)"
		return
	}
	p, d := a.Prefill.Load*float64(x), a.Decode.Load*float64(y)
	a.BalancedPrefill, a.BalancedDecode = x, y
	a.BalancedLoad = max(a.Prefill.Load, a.Decode.Load)
	now := a.BalancedLoad
	for _, n := range a.splits() {
		if load := max(p/float64(n[0]), d/float64(n[1])); load < a.BalancedLoad {
			a.BalancedPrefill, a.BalancedDecode, a.BalancedLoad = n[0], n[1], load
		}
	}
	a.Short = ShortNone
	// Neither a tenth less nor a load that slows no request is a reason to move an engine.
	if now >= shortFrom && a.BalancedLoad < 0.9*now {
		a.Short = map[bool]string{true: Prefill.String(), false: Decode.String()}[a.BalancedPrefill > x]
	}
	a.Arithmetic = fmt.Sprintf("prefill: %s, %s of %d x %s, is %s; "+
		"decode: the highest of %s of the KV cache used, requests that waited at %s of the polls, "+
		"and prompts computed there: %s, %s of %d x %s, is %s; "+
		"that is the work of %.2f prefill and %.2f decode engines: %d:%d would be %s busy, %d:%d is %s",
		a.Prefill.tokens(), showSeconds(a.Prefill.BusySeconds), x,
		showSeconds(a.WindowSeconds), showShare(a.Prefill.Load),
		showShare(a.Decode.KVUsage), showShare(a.Decode.Waiting),
		a.Decode.tokens(), showSeconds(a.Decode.BusySeconds), y,
		showSeconds(a.WindowSeconds), showShare(a.Decode.BusySeconds/(float64(max(y, 1))*a.WindowSeconds)),
		p, d, a.BalancedPrefill, a.BalancedDecode, showShare(a.BalancedLoad), x, y, showShare(now))
	if a.Prefill.each() != a.Decode.each() {
		a.Arithmetic += fmt.Sprintf("; of %.4g GPUs, with %.3g for a prefill engine and %.3g for a decode engine", a.Prefill.GPUs+a.Decode.GPUs, a.Prefill.each(), a.Decode.each())
	}
}

// tokens says how many there were, and what each takes now. The busy time uses the price at the time of
// each.
func (p *PoolAdvice) tokens() string {
	if p.SecondsPerToken <= 0 {
		return fmt.Sprintf("%d tokens at a price that is not measured yet", p.Tokens)
	}
	return fmt.Sprintf("%d tokens at now %s each", p.Tokens, showSeconds(p.SecondsPerToken))
}

// showSeconds writes a time with at most three digits, in a unit that puts them before the point
// or right after it.
func showSeconds(s float64) string {
	switch {
	case s >= 100 || s <= 0:
		return fmt.Sprintf("%.0f s", s)
	case s >= 1:
		return fmt.Sprintf("%.3g s", s)
	case s >= 1e-3:
		return fmt.Sprintf("%.3g ms", s*1e3)
	}
	return fmt.Sprintf("%.3g µs", s*1e6)
}

// showShare writes a share as a percentage. A small one is not rounded to nothing.
func showShare(share float64) string {
	percent := share * 100
	switch {
	case percent >= 10 || percent <= 0:
		return fmt.Sprintf("%.0f %%", percent)
	case percent >= 0.1:
		return fmt.Sprintf("%.2g %%", percent)
	}
	return "under 0.1 %"
}
