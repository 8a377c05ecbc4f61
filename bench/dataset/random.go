package dataset

import (
	"context"
	"math"
	"math/rand/v2"
	"strings"
)

// random makes prompts of words without sense. Each prompt has a generator of its own, so it does
// not depend on the order in which they are made.
func (m *maker) random(ctx context.Context) (*Set, error) {
	prefix, err := m.prefix(ctx)
	if err != nil {
		return nil, err
	}
	set := &Set{Prompts: make([]Prompt, m.o.Count), LengthBy: m.by}
	exact := make([]bool, m.o.Count)
	err = each(ctx, m.o.Count, func(ctx context.Context, i int) (err error) {
		rng := m.generator(uint64(i))
		p := &set.Prompts[i]
		p.Tokens = m.o.PrefixLen + around(rng, m.o.InputLen, m.o.RangeRatio)
		p.Limit = max(around(rng, m.o.OutputLen, m.o.RangeRatio), 1)
		p.Text, exact[i], err = m.fit(ctx, rng, prefix, p.Tokens)
		return err
	})
	for _, ok := range exact {
		if !ok {
			set.Inexact++
		}
	}
	return set, err
}

// prefixStream is the generator of what all prompts have in common; those of prompts are counted
// from 0.
const prefixStream = math.MaxUint64

// prefix is what all prompts begin with.
func (m *maker) prefix(ctx context.Context) (string, error) {
	if m.o.PrefixLen == 0 {
		return "", nil
	}
	text, _, err := m.fit(ctx, m.generator(prefixStream), "", m.o.PrefixLen+m.special)
	return strings.TrimSuffix(text, " "), err
}

func (m *maker) generator(stream uint64) *rand.Rand {
	return rand.New(rand.NewPCG(m.o.Seed, stream))
}

// around draws from the whole numbers of mean ± ratio, both ends included.
func around(rng *rand.Rand, mean int, ratio float64) int {
	low := int(math.Floor(float64(mean) * (1 - ratio)))
	high := int(math.Ceil(float64(mean) * (1 + ratio)))
	return low + rng.IntN(high-low+1)
}
