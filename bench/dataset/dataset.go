// Package dataset makes the prompts of a benchmark, from random words with an exact number of tokens
// or from files. All are made before the load begins.
package dataset

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// The kinds of datasets.
const (
	Random   = "random"   // meaningless words
	Prompts  = "prompts"  // a file with one prompt a line
	Sonnet   = "sonnet"   // lines of a poem; all prompts share the first ones
	ShareGPT = "sharegpt" // the first turns of conversations in a file
	Trace    = "trace"    // lengths and times of a recorded load
)

// Kinds lists the kinds.
func Kinds() []string { return []string{Random, Prompts, Sonnet, ShareGPT, Trace} }

// How the lengths of prompts are known.
const (
	ByTokenize = "tokenize" // the server counted them
	ByBytes    = "bytes"    // four bytes count as a token, because the server does not count them at /tokenize
	ByFile     = "file"     // no length was requested
)

// BytesPerToken is the length of a token where the server does not count tokens.
const BytesPerToken = 4

// Options say which prompts are wanted.
type Options struct {
	Kind        string
	File        string
	Count       int
	InputLen    int           // tokens; excludes the prefix for Random, includes it for Sonnet
	OutputLen   int           // 0: what the file says
	PrefixLen   int           // tokens that all prompts begin with
	Prefixes    int           // of Random: different beginnings of PrefixLen tokens, each for the same number of prompts; 0 is 1
	RangeRatio  float64       // lengths are drawn evenly from ±this share
	OutputRatio *float64      // the same for answers; nil: RangeRatio
	BlockLen    int           // of Trace: tokens that a hash id stands for; 0 is 512
	Tick        time.Duration // of Trace: the unit of its times; 0 is a millisecond
	InOrder     bool          // keeps the order of the file; otherwise the seed shuffles its prompts
	Seed        uint64
}

// Validate reports the first invalid option.
func (o Options) Validate() error {
	switch o.Kind {
	case Random:
		if o.File != "" {
			return errors.New("dataset random takes no file")
		}
		if o.OutputLen < 1 || o.PrefixLen < 0 || o.PrefixLen+int(math.Floor(float64(o.InputLen)*(1-o.RangeRatio))) < 1 {
			return fmt.Errorf("%d+%d tokens in and %d out: want at least 1 of each", o.PrefixLen, o.InputLen, o.OutputLen)
		}
		if o.Prefixes < 0 || o.Count > 0 && o.Prefixes > o.Count {
			return fmt.Errorf("%d prefixes of %d prompts: want at least a prompt of each", o.Prefixes, o.Count)
		}
	case Sonnet: // has its own poem without a file
	case Prompts, ShareGPT, Trace:
		if o.File == "" {
			return fmt.Errorf("dataset %s needs a file", o.Kind)
		}
	default:
		return fmt.Errorf("dataset %q: want one of %v", o.Kind, Kinds())
	}
	for _, ratio := range []float64{o.RangeRatio, o.outputRatio()} {
		if !(ratio >= 0 && ratio < 1) {
			return fmt.Errorf("range ratio %v: want at least 0 and less than 1", ratio)
		}
	}
	return nil
}

func (o *Options) outputRatio() float64 {
	if o.OutputRatio != nil {
		return *o.OutputRatio
	}
	return o.RangeRatio
}

// Tokenizer counts tokens as the server does.
type Tokenizer interface {
	// Tokenize returns the ids of a text's tokens. special adds those around a prompt.
	Tokenize(ctx context.Context, text string, special bool) ([]int, error)
	Detokenize(ctx context.Context, ids []int) (string, error)
}

// Prompt is what one request asks.
type Prompt struct {
	Text   string
	Tokens int           // 0: not known
	Limit  int           // tokens of the answer
	Due    time.Duration // of a trace: when the request is due
}

// Set is the prompts of a run.
type Set struct {
	Prompts  []Prompt
	LengthBy string
	Inexact  int // prompts that could not be cut to the requested length
}

// New makes the prompts.
func New(ctx context.Context, o Options, t Tokenizer) (*Set, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	m := &maker{o: o, tokenizer: t, by: ByTokenize}
	if err := m.probe(ctx); err != nil {
		return nil, err
	}
	var set *Set
	var err error
	switch o.Kind {
	case Random:
		set, err = m.random(ctx)
	case Prompts:
		set, err = readPrompts(o)
	case Sonnet:
		set, err = m.sonnet(ctx)
	case ShareGPT:
		set, err = m.shareGPT(ctx)
	case Trace:
		set, err = m.trace(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("dataset %s: %w", o.Kind, err)
	}
	if len(set.Prompts) == 0 {
		return nil, fmt.Errorf("dataset %s: no prompt in %s", o.Kind, o.File)
	}
	return set, nil
}
