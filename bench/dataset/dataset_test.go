package dataset

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// bytePairs is a tokenizer with two bytes a token, one token around a prompt, and words that make
// another number of tokens when they are cut.
type bytePairs struct{}

func (bytePairs) Tokenize(_ context.Context, text string, special bool) ([]int, error) {
	var ids []int
	if special {
		ids = append(ids, 0)
	}
	for len(text) > 0 {
		n := min(2, len(text))
		if text[0] == ' ' { // a blank is a token
			n = 1
		}
		id := 0
		for i := range n {
			id = id<<8 | int(text[i])
		}
		ids, text = append(ids, id), text[n:]
	}
	return ids, nil
}

func (bytePairs) Detokenize(_ context.Context, ids []int) (string, error) {
	var b strings.Builder
	for _, id := range ids {
		if id > 255 {
			b.WriteByte(byte(id >> 8))
		}
		b.WriteByte(byte(id))
	}
	return b.String(), nil
}

// none is a server without /tokenize.
type none struct{}

func (none) Tokenize(context.Context, string, bool) ([]int, error) { return nil, errors.New("404") }
func (none) Detokenize(context.Context, []int) (string, error)     { return "", errors.New("404") }

func TestRandomIsExact(t *testing.T) {
	o := Options{Kind: Random, Count: 40, InputLen: 100, OutputLen: 20, PrefixLen: 30, RangeRatio: 0.5, Seed: 3}
	set, err := New(t.Context(), o, bytePairs{})
	if err != nil {
		t.Fatal(err)
	}
	if set.LengthBy != ByTokenize || set.Inexact != 0 || len(set.Prompts) != 40 {
		t.Fatalf("%d prompts by %s, %d inexact", len(set.Prompts), set.LengthBy, set.Inexact)
	}
	first := set.Prompts[0].Text
	sizes := map[int]bool{}
	for i, p := range set.Prompts {
		ids, _ := bytePairs{}.Tokenize(t.Context(), p.Text, true)
		if len(ids) != p.Tokens {
			t.Errorf("prompt %d has %d tokens, wants %d", i, len(ids), p.Tokens)
		}
		if p.Tokens < 80 || p.Tokens > 180 || p.Limit < 10 || p.Limit > 30 {
			t.Errorf("prompt %d: %d in, %d out", i, p.Tokens, p.Limit)
		}
		if p.Text[:30] != first[:30] || i > 0 && p.Text[:80] == first[:80] {
			t.Errorf("prompt %d does not begin with the prefix, or has too much of it", i)
		}
		sizes[p.Tokens] = true
	}
	if len(sizes) < 10 {
		t.Errorf("%d lengths", len(sizes))
	}
	again, err := New(t.Context(), o, bytePairs{})
	if err != nil || !reflect.DeepEqual(again, set) {
		t.Error("the same seed makes other prompts", err)
	}
	o.Seed++
	if other, err := New(t.Context(), o, bytePairs{}); err != nil || other.Prompts[0].Text == first {
		t.Error("another seed makes the same prompts", err)
	}
}

// TestRandomRanges: as in vllm bench serve, the draw of a length excludes the server's own token, and
// never gives an answer of 0 tokens.
func TestRandomRanges(t *testing.T) {
	set, err := New(t.Context(), Options{Kind: Random, Count: 300, InputLen: 11, OutputLen: 1, RangeRatio: 0.5}, bytePairs{})
	if err != nil {
		t.Fatal(err)
	}
	in, out := map[int]int{}, map[int]int{}
	for _, p := range set.Prompts {
		in[p.Tokens]++
		out[p.Limit]++
	}
	for n := 6; n <= 16; n++ {
		if in[n] < 10 {
			t.Errorf("%d prompts of %d tokens", in[n], n)
		}
	}
	if len(in) != 11 || len(out) != 2 || out[1] < 120 || out[2] < 120 {
		t.Errorf("prompts by length %v, answers by length %v; want 6 to 16, and 1 and 2 alike", in, out)
	}
}

// TestPrefixes: each beginning has the same number of prompts, in no order.
func TestPrefixes(t *testing.T) {
	o := Options{Kind: Random, Count: 40, InputLen: 20, OutputLen: 1, PrefixLen: 30, Prefixes: 4, Seed: 1}
	set, err := New(t.Context(), o, bytePairs{})
	if err != nil {
		t.Fatal(err)
	}
	of := map[string][]int{}
	for i, p := range set.Prompts {
		of[p.Text[:40]] = append(of[p.Text[:40]], i)
	}
	if len(of) != 4 {
		t.Fatalf("%d prefixes", len(of))
	}
	for _, which := range of {
		if len(which) != 10 || which[9]-which[0] < 12 {
			t.Errorf("prompts %v have the same prefix", which)
		}
	}
	o.Prefixes = 41
	if _, err := New(t.Context(), o, bytePairs{}); err == nil {
		t.Error("41 prefixes of 40 prompts")
	}
}

func TestWithoutTokenizer(t *testing.T) {
	set, err := New(t.Context(), Options{Kind: Random, Count: 3, InputLen: 10, OutputLen: 2}, none{})
	if err != nil {
		t.Fatal(err)
	}
	if set.LengthBy != ByBytes || len(set.Prompts[0].Text) != 40 || set.Prompts[0].Tokens != 10 {
		t.Errorf("by %s, %d bytes for %d tokens", set.LengthBy, len(set.Prompts[0].Text), set.Prompts[0].Tokens)
	}
}

func TestInterruptedMaking(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := New(ctx, Options{Kind: Random, Count: 3, InputLen: 10, OutputLen: 2}, none{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPromptsFile(t *testing.T) {
	path := file(t, "plain words\n\n{\"prompt\": \"an object\", \"output_tokens\": 9}\n")
	set, err := New(t.Context(), Options{Kind: Prompts, File: path, Count: 10}, none{})
	if err != nil || len(set.Prompts) != 2 {
		t.Fatal(set, err)
	}
	limits := map[string]int{}
	for _, p := range set.Prompts {
		limits[p.Text] = p.Limit
	}
	if !reflect.DeepEqual(limits, map[string]int{"plain words": DefaultLimit, "an object": 9}) {
		t.Error(limits)
	}
	if set, err = New(t.Context(), Options{Kind: Prompts, File: path, Count: 1, OutputLen: 5}, none{}); err != nil || len(set.Prompts) != 1 || set.Prompts[0].Limit != 5 {
		t.Error(set, err)
	}
	if set, err = New(t.Context(), Options{Kind: Prompts, File: path, InOrder: true, Seed: 3}, none{}); err != nil || set.Prompts[0].Text != "plain words" {
		t.Error(set, err)
	}
	for _, bad := range []string{"", "{\"text\": \"x\"}\n", "{no json\n"} {
		if _, err := New(t.Context(), Options{Kind: Prompts, File: file(t, bad)}, none{}); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestShareGPT(t *testing.T) {
	turn := func(n int) string { return strings.Repeat("ab", n) }
	path := file(t, `[{"conversations":[{"value":"`+turn(10)+`"},{"value":"`+turn(20)+`"}]},
		{"conversations":[{"value":"alone"}]},
		{"conversations":[{"value":"`+turn(2)+`"},{"value":"`+turn(20)+`"}]},
		{"conversations":[{"value":"`+turn(1025)+`"},{"value":"`+turn(20)+`"}]}]`)
	set, err := New(t.Context(), Options{Kind: ShareGPT, File: path, Count: 10}, bytePairs{})
	if err != nil || len(set.Prompts) != 1 {
		t.Fatal(set, err)
	}
	if p := set.Prompts[0]; p.Tokens != 11 || p.Limit != 21 {
		t.Errorf("%d in, %d out", p.Tokens, p.Limit)
	}
}

func TestSonnet(t *testing.T) {
	poem := strings.Repeat("a line of ten tokens\nand another of them\n", 20)
	set, err := New(t.Context(), Options{Kind: Sonnet, File: file(t, poem), Count: 20, InputLen: 200, OutputLen: 6, PrefixLen: 80}, bytePairs{})
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range set.Prompts {
		if p.Tokens > 200 || p.Tokens < 170 || p.Limit != 6 || p.Text[:100] != set.Prompts[0].Text[:100] {
			t.Errorf("prompt %d: %d in, %d out", i, p.Tokens, p.Limit)
		}
	}
}

// TestTrace: times and lengths are the file's, and equal hash ids are equal beginnings.
func TestTrace(t *testing.T) {
	path := file(t, `{"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [1, 2, 3]}
{"timestamp": 250, "input_length": 1100, "output_length": 6, "hash_ids": [1, 9, 4]}
{"timestamp": 250, "input_length": 10, "output_length": 7, "hash_ids": [8]}
`)
	set, err := New(t.Context(), Options{Kind: Trace, File: path}, bytePairs{})
	if err != nil || len(set.Prompts) != 3 || set.Inexact != 0 {
		t.Fatal(set, err)
	}
	a, b := set.Prompts[0], set.Prompts[1]
	if a.Due != 0 || b.Due != 250*time.Millisecond || a.Tokens != 1100 || b.Limit != 6 {
		t.Errorf("%v %v, %d in, %d out", a.Due, b.Due, a.Tokens, b.Limit)
	}
	if same := common(a.Text, b.Text); same < 500 || same > 1100 {
		t.Errorf("%d bytes in common", same)
	}
	bad := file(t, "{\"timestamp\": 5, \"input_length\": 10, \"output_length\": 5}\n{\"timestamp\": 4, \"input_length\": 10, \"output_length\": 5}\n")
	if _, err := New(t.Context(), Options{Kind: Trace, File: bad}, bytePairs{}); err == nil {
		t.Error("a trace that goes back in time was taken")
	}
}

func common(a, b string) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

func TestValidate(t *testing.T) {
	for _, o := range []Options{
		{Kind: "hf"}, {Kind: Random, File: "x", InputLen: 1, OutputLen: 1}, {Kind: Random, InputLen: 1}, {Kind: Random, OutputLen: 1},
		{Kind: ShareGPT}, {Kind: Random, InputLen: 1, OutputLen: 1, RangeRatio: 1},
	} {
		if err := o.Validate(); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}
