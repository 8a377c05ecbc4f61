package bench

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"

	"xpyd/sim"
)

// benchModel is what the engines of every run serve.
const benchModel = "sim"

// call is one completion request and the text of its right answer.
type call struct {
	chat, stream bool
	prompt       string
	tokens       int
}

// styles are adversarial texts that some answers contain. Bytes that look like the end of a stream
// must not end one.
var styles = [...]string{"", "", "", "", "", "", "[[text:done]]", "[[text:finish]]", "[[text:utf8]]", "[[text:escape]]"}

// randomCall makes a request whose prompt no other request has, so that blocks of another one
// cannot give its text.
func randomCall(r *rand.Rand, id string) call {
	c := call{chat: r.IntN(2) == 0, stream: r.IntN(2) == 0, tokens: 6 + r.IntN(18)}
	filler := strings.Repeat("lorem ipsum dolor sit amet ", 2+r.IntN(100))
	c.prompt = id + " " + styles[r.IntN(len(styles))] + " " + filler
	return c
}

func (c call) path() string {
	if c.chat {
		return "/v1/chat/completions"
	}
	return "/v1/completions"
}

func (c call) body() []byte {
	prompt, err := json.Marshal(c.prompt)
	if err != nil {
		panic("BUG: a string that cannot be JSON: " + err.Error())
	}
	input := `"prompt":` + string(prompt)
	if c.chat {
		input = `"messages":[{"role":"user","content":` + string(prompt) + `}]`
	}
	return fmt.Appendf(nil, `{"model":%q,%s,"max_tokens":%d,"temperature":0,"stream":%v}`, benchModel, input, c.tokens, c.stream)
}

// want returns the text that every engine answers with.
func (c call) want() string {
	if c.chat {
		return sim.Text(sim.ChatPrompt(sim.Message{Role: "user", Content: c.prompt}), c.tokens)
	}
	return sim.Text(c.prompt, c.tokens)
}

// check compares a complete body with the right answer.
func (c call) check(body []byte) error {
	text, err := c.text(body)
	if err != nil {
		return err
	}
	if want := c.want(); text != want {
		at := 0
		for at < min(len(text), len(want)) && text[at] == want[at] {
			at++
		}
		return fmt.Errorf("wrong text: %d bytes of %d, different from byte %d on", len(text), len(want), at)
	}
	return nil
}

// chunk is an event or a whole answer of either API.
type chunk struct {
	Choices []struct {
		Text    string
		Delta   struct{ Content string }
		Message struct{ Content string }
		Finish  *string `json:"finish_reason"`
	}
	Error json.RawMessage
}

// text joins the text of a whole answer. A stream without its proper end is an error.
func (c call) text(body []byte) (string, error) {
	var out strings.Builder
	finished := false
	add := func(raw string) error {
		var ch chunk
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
	if !c.stream {
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
