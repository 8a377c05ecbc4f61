package routing

import "math/rand/v2"

// What the simulated engines take for a token and a KV block.
const (
	tokenBytes  = 4
	blockTokens = 16
)

// tokensOf is how many tokens a text has.
func tokensOf(text string) int { return (len(text) + tokenBytes - 1) / tokenBytes }

// words is text of exactly so many tokens: words of three letters, which JSON need not
// escape.
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

// between is a length from least to most, all alike.
func between(r *rand.Rand, least, most int) int { return least + r.IntN(most-least+1) }
