package price

import (
	"math"
	"sync"
	"time"
)

// Pace is how fast one engine has done a work lately. The zero value knows nothing.
type Pace struct {
	mu                           sync.Mutex
	took, tokens, fixed, samples float64 // old ones count less
	at                           int64
}

// paceHalf is the age at which a sample counts half: a minute's judgement must not wait for old ones to fade.
const paceHalf = 15 * time.Second

// paceLeast is how many legs of now tell something.
const paceLeast = 2

// Add counts a leg, or the steps of an answer: its tokens, those that it counts for beside them, and its time.
func (p *Pace) Add(tokens, fixed int, took time.Duration, now int64) {
	if tokens <= 0 || took <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fade(now)
	p.took, p.tokens, p.fixed, p.samples = p.took+took.Seconds(), p.tokens+float64(tokens), p.fixed+float64(fixed), p.samples+1
}

func (p *Pace) fade(now int64) {
	keep := math.Exp2(-float64(max(0, now-p.at)) / float64(paceHalf))
	p.took, p.tokens, p.fixed, p.samples, p.at = p.took*keep, p.tokens*keep, p.fixed*keep, p.samples*keep, now
}

// Of returns the seconds of a token, with those that legs count for, and the time of the tokens alone. Both are 0 if too few
// legs were lately.
func (p *Pace) Of(now int64) (each float64, token time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fade(now); p.samples < paceLeast {
		return 0, 0
	}
	return p.took / (p.tokens + p.fixed), time.Duration(p.took / p.tokens * 1e9)
}
