// Package completion has what every load of the tools is made of: one completion request, the text
// of its right answer, and the ways in which a client leaves it.
package completion

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"

	"xpyd/sim"
)

// LegSuffix is the length of what the proxy appends to the client's id for an attempt: "-" and 8
// hex digits.
const LegSuffix = 9

// Model is what the engines of every run serve.
const Model = "sim"

// Call is one completion request and the text of its right answer.
type Call struct {
	Chat, Stream bool
	Prompt       string
	Tokens       int
}

// Style draws "", or a mark that makes an engine's text adversarial: bytes that look like the end of
// a stream must not end one.
func Style(r *rand.Rand) string {
	styles := [...]string{"", "", "", "", "", "", "[[text:done]]", "[[text:finish]]", "[[text:utf8]]", "[[text:escape]]"}
	return styles[r.IntN(len(styles))]
}

// Random makes a request with a prompt of its own, so that the blocks of another request cannot give
// its text.
func Random(r *rand.Rand, id string) Call {
	c := Call{Chat: r.IntN(2) == 0, Stream: r.IntN(2) == 0, Tokens: 6 + r.IntN(18)}
	filler := strings.Repeat("lorem ipsum dolor sit amet ", 2+r.IntN(100))
	c.Prompt = id + " " + Style(r) + " " + filler
	return c
}

// Path is where the request goes.
func (c Call) Path() string {
	if c.Chat {
		return "/v1/chat/completions"
	}
	return "/v1/completions"
}

// Body is the request as JSON.
func (c Call) Body() []byte {
	prompt, err := json.Marshal(c.Prompt)
	if err != nil {
		panic("BUG: a string that cannot be JSON: " + err.Error())
	}
	input := `"prompt":` + string(prompt)
	if c.Chat {
		input = `"messages":[{"role":"user","content":` + string(prompt) + `}]`
	}
	return fmt.Appendf(nil, `{"model":%q,%s,"max_tokens":%d,"temperature":0,"stream":%v}`, Model, input, c.Tokens, c.Stream)
}

// Head is the head of the request, for a body of that length. fields are whole lines.
func (c Call) Head(length int, fields string) []byte {
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n", c.Path(), length, fields)
}

// Want returns the text that every engine answers with.
func (c Call) Want() string {
	if c.Chat {
		return sim.Text(sim.ChatPrompt(sim.Message{Role: "user", Content: c.Prompt}), c.Tokens)
	}
	return sim.Text(c.Prompt, c.Tokens)
}

// Check compares a complete body with the right answer.
func (c Call) Check(body []byte) error {
	text, err := c.text(body)
	if err != nil {
		return err
	}
	if want := c.Want(); text != want {
		at := 0
		for at < min(len(text), len(want)) && text[at] == want[at] {
			at++
		}
		return fmt.Errorf("wrong text: %d bytes of %d, different from byte %d on", len(text), len(want), at)
	}
	return nil
}

// Chunk is an event or a whole answer of either API.
type Chunk struct {
	Choices []struct {
		Text    string
		Delta   struct{ Content string }
		Message struct{ Content string }
		Finish  *string `json:"finish_reason"`
	}
	Error json.RawMessage
}

// text joins the text of a whole answer. A stream without its proper end is an error.
func (c Call) text(body []byte) (string, error) {
	var out strings.Builder
	finished := false
	add := func(raw string) error {
		var ch Chunk
		if err := json.Unmarshal([]byte(raw), &ch); err != nil {
			return fmt.Errorf("answer is no JSON: %w", err)
		}
		if ch.Error != nil {
			return fmt.Errorf("answer of status 200 holds an error: %s", ch.Error)
		}
		for _, choice := range ch.Choices {
			out.WriteString(choice.Text + choice.Delta.Content + choice.Message.Content)
			finished = finished || choice.Finish != nil
		}
		return nil
	}
	if !c.Stream {
		err := add(string(body))
		return out.String(), err
	}
	events, done := strings.CutSuffix(string(body), "data: [DONE]\n\n")
	if !done {
		return "", fmt.Errorf("stream of %d bytes ended cleanly without [DONE]", len(body))
	}
	for ev := range strings.SplitSeq(strings.TrimSuffix(events, "\n\n"), "\n\n") {
		if err := add(strings.TrimPrefix(ev, "data: ")); err != nil {
			return "", err
		}
	}
	if !finished {
		return "", fmt.Errorf("stream ended without a finish_reason")
	}
	return out.String(), nil
}
