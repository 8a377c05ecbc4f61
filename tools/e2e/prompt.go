package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// prompts makes texts that differ from all others in their first tokens, because an engine that has
// a prefix in its cache computes, and pulls, only the rest.
type prompts struct {
	rng *rand.Rand
	n   int
}

func newPrompts(seed uint64) *prompts {
	return &prompts{rng: rand.New(rand.NewPCG(seed, 1))}
}

// vocabulary has words of one token each in the model's vocabulary.
var vocabulary = strings.Fields("router engine token model server request queue network memory worker batch stream prompt answer metric health probe retry timeout lease handle remote local page weight layer head prefill decode block cache")

// lengths are lengths of prompts in tokens: around the edges of blocks (32 tokens), and up to
// 1,500.
var lengths = []int{1, 2, 5, 17, 31, 32, 33, 63, 64, 65, 96, 100, 127, 128, 129, 200, 255, 256, 257, 300, 333, 400, 511, 512, 513, 700, 900, 1024, 1200, 1500}

// words returns a text of about that many tokens.
func (p *prompts) words(tokens int) string {
	p.n++
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "%x", p.rng.Uint32())
	for range max(1, tokens-8) {
		_, _ = b.WriteString(" " + vocabulary[p.rng.IntN(len(vocabulary))])
	}
	return b.String()
}

// scripts returns a text of that many words in scripts of two to four bytes a character, with
// combining marks, joiners, and what JSON escapes.
func (p *prompts) scripts(words int) string {
	parts := []string{"naïve", "Ωμέγα", "привет", "日本語", "שלום", "مرحبا", "नमस्ते", "👩‍👩‍👧", "🇩🇪", "e\u0301", "𝔘𝔫𝔦", "\u200b", "\"quoted\"", "back\\slash", "tab\t", "line\nend", "\u2028", "<&>", "\x7f"}
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "%x", p.rng.Uint32())
	for range words {
		_, _ = b.WriteString(" " + parts[p.rng.IntN(len(parts))])
	}
	return b.String()
}

// firstWord is the smallest token id that is neither a special token nor a bare byte.
const firstWord = 270

// ids returns a prompt of exactly that many tokens.
func (p *prompts) ids(tokens int) []int {
	all := make([]int, tokens)
	for i := range all {
		all[i] = firstWord + p.rng.IntN(100)
	}
	return all
}
