package dataset

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
)

// maker makes prompts of a given length.
type maker struct {
	o         Options
	tokenizer Tokenizer
	by        string // ByTokenize or ByBytes
	special   int    // tokens that the server puts around a prompt
}

// probe finds out whether the server counts tokens, and how many it adds to a prompt.
func (m *maker) probe(ctx context.Context) error {
	const text = "the quick brown fox"
	plain, err := m.tokenizer.Tokenize(ctx, text, false)
	if err == nil {
		_, err = m.tokenizer.Detokenize(ctx, plain)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		m.by = ByBytes
		return nil
	}
	all, err := m.tokenizer.Tokenize(ctx, text, true)
	if err != nil {
		return fmt.Errorf("count the tokens around a prompt: %w", err)
	}
	m.special = max(len(all)-len(plain), 0)
	return nil
}

// attempts is how often a text is cut and counted again. A cut may split a word into parts that
// make another number of tokens.
const attempts = 8

// fit makes a text of n tokens that begins with start, and reports whether it has exactly n. The n
// include the tokens that the server adds.
func (m *maker) fit(ctx context.Context, rng *rand.Rand, start string, n int) (text string, exact bool, err error) {
	n = max(n-m.special, 1)
	if m.by == ByBytes {
		text = addWords(rng, start, n*BytesPerToken)
		return text[:n*BytesPerToken], true, nil
	}
	text = addWords(rng, start, n*6)
	for range attempts {
		ids, err := m.tokenizer.Tokenize(ctx, text, false)
		if err != nil {
			return "", false, fmt.Errorf("cut a prompt: %w", err)
		}
		switch {
		case len(ids) == n:
			return text, true, nil
		case len(ids) < n:
			text = addWords(rng, text, len(text)+(n-len(ids))*6)
		default:
			if text, err = m.tokenizer.Detokenize(ctx, ids[:n]); err != nil {
				return "", false, fmt.Errorf("cut a prompt: %w", err)
			}
		}
	}
	return text, false, nil
}

// addWords adds words to text until it has at least size bytes.
func addWords(rng *rand.Rand, text string, size int) string {
	var b strings.Builder
	b.WriteString(text)
	for b.Len() < size {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(words[rng.IntN(len(words))])
	}
	return b.String()
}

// count is the number of tokens in a text.
func (m *maker) count(ctx context.Context, text string) (int, error) {
	if m.by == ByBytes {
		return (len(text) + BytesPerToken - 1) / BytesPerToken, nil
	}
	ids, err := m.tokenizer.Tokenize(ctx, text, false)
	return len(ids), err
}

// askers is how many prompts are made at once.
const askers = 16

// each calls do for 0 to n-1, some at once, and returns the first error.
func each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(askers, n) {
		wg.Go(func() {
			for i := range next {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	wg.Wait()
	return context.Cause(ctx)
}
