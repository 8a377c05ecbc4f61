package dataset

import (
	"context"
	"math"
	"math/rand/v2"
	"strings"
)

// random makes prompts of meaningless words. Each prompt has a generator of its own, so the order in
// which they are made does not matter. As in vllm bench serve, a prompt's length includes the tokens
// that the server puts around it, the draw excludes them, and no answer has 0 tokens.
func (m *maker) random(ctx context.Context) (*Set, error) {
	prefixes, err := m.prefixes(ctx)
	if err != nil {
		return nil, err
	}
	of := m.generator(orderStream).Perm(m.o.Count)
	set := &Set{Prompts: make([]Prompt, m.o.Count), LengthBy: m.by}
	exact := make([]bool, m.o.Count)
	err = each(ctx, m.o.Count, func(ctx context.Context, i int) (err error) {
		rng := m.generator(uint64(i))
		p := &set.Prompts[i]
		p.Tokens = m.o.PrefixLen + m.special + around(rng, max(m.o.InputLen-m.special, 0), m.o.RangeRatio, 0)
		p.Limit = around(rng, m.o.OutputLen, m.o.outputRatio(), 1)
		p.Text, exact[i], err = m.fit(ctx, rng, prefixes[of[i]%len(prefixes)], p.Tokens)
		return err
	})
	for _, ok := range exact {
		if !ok {
			set.Inexact++
		}
	}
	return set, err
}

// Streams of generators. Prompts count theirs from 0. Prefixes count theirs down from the end, and
// orderStream deals the prefixes out to the prompts.
const (
	prefixStream = math.MaxUint64
	orderStream  = 1 << 63
)

// prefixes makes the beginnings that prompts share.
func (m *maker) prefixes(ctx context.Context) ([]string, error) {
	all := make([]string, max(m.o.Prefixes, 1))
	if m.o.PrefixLen == 0 {
		return all, nil
	}
	err := each(ctx, len(all), func(ctx context.Context, i int) error {
		text, _, err := m.fit(ctx, m.generator(prefixStream-uint64(i)), "", m.o.PrefixLen+m.special)
		all[i] = strings.TrimSuffix(text, " ")
		return err
	})
	return all, err
}

func (m *maker) generator(stream uint64) *rand.Rand {
	return rand.New(rand.NewPCG(m.o.Seed, stream))
}

// around draws a whole number from mean ± ratio, both ends included, and not below least.
func around(rng *rand.Rand, mean int, ratio float64, least int) int {
	low := max(int(math.Floor(float64(mean)*(1-ratio))), least)
	high := max(int(math.Ceil(float64(mean)*(1+ratio))), least)
	return low + rng.IntN(high-low+1)
}
