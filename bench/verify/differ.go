package verify

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"unicode/utf8"
)

// tolerance is how far log probabilities of the same token may be apart. Kernels sum in an order that
// depends on the rest of the batch, which shows in 16-bit numbers. The KV of another prompt, or other
// weights, make a larger difference.
const tolerance = 0.1

// difference says how got differs from want, or returns "". It never shows an answer's text.
func difference(want, got *answer) string {
	switch {
	case want.status != got.status:
		return fmt.Sprintf("status %d, decode alone answers %d", got.status, want.status)
	case !reflect.DeepEqual(want.refusal, got.refusal):
		return fmt.Sprintf("another error than decode alone with status %d", want.status)
	case len(want.choices) != len(got.choices):
		return fmt.Sprintf("%d choices, decode alone has %d", len(got.choices), len(want.choices))
	}
	for i := range want.choices {
		if d := want.choices[i].difference(&got.choices[i]); d != "" {
			return d
		}
	}
	if want.usage != got.usage {
		return fmt.Sprintf("usage says %d prompt and %d completion tokens, decode alone %d and %d",
			got.usage.Prompt, got.usage.Completion, want.usage.Prompt, want.usage.Completion)
	}
	return ""
}

func (c *choice) difference(got *choice) string {
	switch {
	case c.text != got.text:
		return textDifference("text", c.text, got.text)
	case c.reasoning != got.reasoning:
		return textDifference("reasoning", c.reasoning, got.reasoning)
	case !slices.Equal(c.calls, got.calls):
		return fmt.Sprintf("other tool calls: %d, decode alone makes %d", len(got.calls), len(c.calls))
	case c.finish != got.finish:
		return fmt.Sprintf("finish_reason %q, decode alone has %q", got.finish, c.finish)
	case len(c.tokens) != len(got.tokens):
		return fmt.Sprintf("log probabilities of %d tokens, decode alone has %d", len(got.tokens), len(c.tokens))
	}
	if far := c.distance(got); far > tolerance {
		return fmt.Sprintf("log probabilities differ by up to %.3f", far)
	}
	return ""
}

func textDifference(what, want, got string) string {
	at := 0
	for at < min(len(want), len(got)) && want[at] == got[at] {
		at++
	}
	return fmt.Sprintf("the %s differs from character %d of %d on", what, utf8.RuneCountInString(want[:at])+1, utf8.RuneCountInString(want))
}

// distance is the largest difference of the log probabilities of tokens that both have, up to the
// first token that differs.
func (c *choice) distance(got *choice) (far float64) {
	for i := range min(len(c.tokens), len(got.tokens)) {
		w, g := c.tokens[i], got.tokens[i]
		for text, p := range w.top {
			if q, ok := g.top[text]; ok {
				far = max(far, math.Abs(p-q))
			}
		}
		if w.text != g.text {
			return far
		}
		far = max(far, math.Abs(w.logprob-g.logprob))
	}
	return far
}

// rounding reports that two answers with log probabilities differ only because two tokens were as
// good as equal to the engine. gap is how far apart these are.
func rounding(want, got *answer) (at int, gap float64, ok bool) {
	if len(want.choices) != 1 || len(got.choices) != 1 {
		return 0, 0, false
	}
	w, g := &want.choices[0], &got.choices[0]
	for i := range min(len(w.tokens), len(g.tokens)) {
		if w.tokens[i].text == g.tokens[i].text {
			continue
		}
		other, known := w.tokens[i].top[g.tokens[i].text]
		gap = w.tokens[i].logprob - other
		return i + 1, gap, known && gap <= tolerance && w.distance(g) <= tolerance
	}
	return 0, 0, false
}
