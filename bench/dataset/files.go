package dataset

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
)

// DefaultLimit is the most tokens of an answer where neither the file nor a flag sets them.
const DefaultLimit = 256

// lines reads a file's lines that are not blank.
func lines(path string) ([]string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the file: %w", err)
	}
	var all []string
	in := bufio.NewScanner(strings.NewReader(string(b)))
	in.Buffer(nil, len(b)+1)
	for in.Scan() {
		if strings.TrimSpace(in.Text()) != "" {
			all = append(all, in.Text())
		}
	}
	return all, in.Err()
}

// readPrompts reads one prompt a line: plain text, or an object with "prompt" and perhaps
// "output_tokens".
func readPrompts(o Options) (*Set, error) {
	all, err := lines(o.File)
	if err != nil {
		return nil, err
	}
	set := &Set{LengthBy: ByFile}
	for i, line := range all {
		row := struct {
			Prompt string `json:"prompt"`
			Output int    `json:"output_tokens"`
		}{Prompt: line}
		if strings.HasPrefix(line, "{") {
			row.Prompt = ""
			if err := json.Unmarshal([]byte(line), &row); err != nil || row.Prompt == "" {
				return nil, fmt.Errorf("prompt %d of %s: want an object with \"prompt\" (%v)", i+1, o.File, err)
			}
		}
		set.Prompts = append(set.Prompts, Prompt{Text: row.Prompt, Limit: limit(o.OutputLen, row.Output)})
	}
	return set.take(o), nil
}

func limit(asked, file int) int {
	switch {
	case asked > 0:
		return asked
	case file > 0:
		return file
	}
	return DefaultLimit
}

// take keeps the requested number of prompts.
func (s *Set) take(o Options) *Set {
	if !o.InOrder {
		rng := rand.New(rand.NewPCG(o.Seed, 0))
		rng.Shuffle(len(s.Prompts), func(i, j int) { s.Prompts[i], s.Prompts[j] = s.Prompts[j], s.Prompts[i] })
	}
	if o.Count > 0 && o.Count < len(s.Prompts) {
		s.Prompts = s.Prompts[:o.Count]
	}
	return s
}

// The bounds of conversations, in tokens, are those of vllm bench serve.
const (
	leastTurn    = 4
	longestTurn  = 1024
	longestTurns = 2048
)

// shareGPT takes the first two turns of conversations: the prompt, and how long its answer was.
func (m *maker) shareGPT(ctx context.Context) (*Set, error) {
	b, err := os.ReadFile(m.o.File)
	if err != nil {
		return nil, fmt.Errorf("read the file: %w", err)
	}
	var all []struct {
		Conversations []struct {
			Value string `json:"value"`
		} `json:"conversations"`
	}
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("read %s: %w", m.o.File, err)
	}
	if !m.o.InOrder {
		m.generator(0).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	}
	set := &Set{LengthBy: m.by}
	for _, one := range all {
		if len(one.Conversations) < 2 {
			continue
		}
		asked, err := m.count(ctx, one.Conversations[0].Value)
		if err != nil {
			return nil, err
		}
		answered, err := m.count(ctx, one.Conversations[1].Value)
		if err != nil {
			return nil, err
		}
		// vllm bench serve counts the tokens around a prompt in the prompt and in the answer.
		asked, answered = asked+m.special, answered+m.special
		out := limit(m.o.OutputLen, answered)
		if asked < leastTurn || m.o.OutputLen == 0 && answered < leastTurn || asked > longestTurn || asked+out > longestTurns {
			continue
		}
		set.Prompts = append(set.Prompts, Prompt{Text: one.Conversations[0].Value, Tokens: asked, Limit: out})
		if len(set.Prompts) == m.o.Count {
			break
		}
	}
	return set, nil
}

// sonnet makes prompts from the lines of a poem. They begin with the first lines of the poem, as a
// common prefix; the other lines are drawn. A prompt has about InputLen tokens, and never more.
func (m *maker) sonnet(ctx context.Context) (*Set, error) {
	all, err := m.poem()
	if err != nil {
		return nil, err
	}
	const task = "Pick as many lines as you can from these poem lines:\n"
	own, err := m.count(ctx, task)
	if err != nil {
		return nil, err
	}
	poem, err := m.count(ctx, strings.Join(all, "\n"))
	if err != nil || len(all) == 0 {
		return nil, fmt.Errorf("the poem %s has no line, or its tokens cannot be counted (%v)", m.o.File, err)
	}
	average := float64(poem) / float64(len(all))
	common := max(int(math.Round(float64(m.o.PrefixLen-own)/average)), 0)
	total := max(int(math.Round(float64(m.o.InputLen-own-m.special)/average)), common+1)
	if common > len(all) {
		return nil, fmt.Errorf("the poem %s has %d lines, too few for a prefix of %d tokens", m.o.File, len(all), m.o.PrefixLen)
	}
	set := &Set{Prompts: make([]Prompt, m.o.Count), LengthBy: m.by}
	err = each(ctx, m.o.Count, func(ctx context.Context, i int) error {
		text := m.verse(uint64(i), task, all, common, total)
		n, err := m.count(ctx, text)
		for k := total; err == nil && n+m.special > m.o.InputLen && k > common+1; {
			k--
			text = m.verse(uint64(i), task, all, common, k)
			n, err = m.count(ctx, text)
		}
		set.Prompts[i] = Prompt{Text: text, Tokens: n + m.special, Limit: limit(m.o.OutputLen, 0)}
		return err
	})
	return set, err
}

func (m *maker) verse(stream uint64, task string, all []string, common, lines int) string {
	rng := m.generator(stream)
	chosen := append([]string{}, all[:common]...)
	for range lines - common {
		chosen = append(chosen, all[rng.IntN(len(all))])
	}
	return task + strings.Join(chosen, "\n")
}
