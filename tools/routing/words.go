package routing

import "math/rand/v2"

// These are the sizes of a token and a KV block for the simulated engines.
const (
	tokenBytes  = 4
	blockTokens = 16
)

// tokensOf is how many tokens a text has.
func tokensOf(text string) int { return (len(text) + tokenBytes - 1) / tokenBytes }

// words is text of exactly n tokens. They are words of three letters, which JSON need not escape.
func words(r *rand.Rand, tokens int) string {
	b := make([]byte, tokens*tokenBytes)
	for i := range b {
		if i%tokenBytes == tokenBytes-1 {
			b[i] = ' '
		} else {
			b[i] = 'a' + byte(r.Uint32N(26))
		}
	}
	return string(b)
}

// between is a length from least to most, each equally likely.
func between(r *rand.Rand, least, most int) int { return least + r.IntN(most-least+1) }
