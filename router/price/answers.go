package price

import (
	"sync"
	"time"
)

// Answers is how fast an engine makes the tokens of answers, each with the waits of its request. The zero value knows
// none.
type Answers struct {
	mu      sync.Mutex
	tokens  float64 // of the last answers; old ones count less
	seconds float64
}

const (
	answersMemory = 4096                  // tokens of the last answers that count
	usualToken    = 20 * time.Millisecond // before the first answer
	fastestToken  = time.Millisecond      // a wrong usage must not make any answer dear
	slowestToken  = time.Second
)

// Add counts an answer of so many tokens one after the other.
func (a *Answers) Add(tokens int, took time.Duration) {
	if tokens <= 0 || took <= 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if all := a.tokens + float64(tokens); all > answersMemory {
		keep := max(0, answersMemory-float64(tokens)) / max(a.tokens, 1)
		a.tokens, a.seconds = a.tokens*min(keep, 1), a.seconds*min(keep, 1)
	}
	a.tokens += float64(tokens)
	a.seconds += took.Seconds()
}

// Token is the mean time of a token.
func (a *Answers) Token() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.tokens == 0 {
		return usualToken
	}
	return min(max(time.Duration(a.seconds/a.tokens*1e9), fastestToken), slowestToken)
}
