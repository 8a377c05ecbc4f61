package verify

import (
	"net/http"
	"slices"
)

// chunk is a whole answer, or an event of a stream.
type chunk struct {
	ID      string
	Choices []part
	Usage   *usage
	Error   *refusal
}

// part is the share of one choice in a chunk.
type part struct {
	Index          int
	Text           string
	Message, Delta *message
	Finish         string `json:"finish_reason"`
	Logprobs       *logprobs
	TokenIDs       []int `json:"token_ids"`
}

type message struct {
	Content, Reasoning string
	OldReasoning       string     `json:"reasoning_content"` // its name before 0.30
	ToolCalls          []toolCall `json:"tool_calls"`
}

type toolCall struct {
	Index    int
	Function function
}

type function struct{ Name, Arguments string }

type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
}

// refusal is the error object of an answer whose status is not 200.
type refusal struct {
	Message, Type string
	Param         any
	Code          any
}

// logprobs has the members of both APIs.
type logprobs struct {
	Tokens []string
	Values []*float64           `json:"token_logprobs"`
	Top    []map[string]float64 `json:"top_logprobs"`

	Content []struct {
		Token   string
		Logprob float64
		Top     []struct {
			Token   string
			Logprob float64
		} `json:"top_logprobs"`
	}
}

// token is one token of an answer with log probabilities.
type token struct {
	text    string
	logprob float64
	top     map[string]float64
}

// answer is a whole answer, streamed or not.
type answer struct {
	asked   string // X-Request-Id of the request
	status  int
	header  http.Header
	id      string
	choices []choice
	usage   usage
	refusal *refusal
}

// choice is one of the answer's choices, in the order of their indexes.
type choice struct {
	index           int
	text, reasoning string
	finish          string
	calls           []function
	tokens          []token
	ids             []int
}

// take adds a chunk.
func (a *answer) take(c *chunk) {
	if c.ID != "" {
		a.id = c.ID
	}
	if c.Usage != nil {
		a.usage = *c.Usage
	}
	for i := range c.Choices {
		a.choice(c.Choices[i].Index).take(&c.Choices[i])
	}
}

func (a *answer) choice(index int) *choice {
	at, found := slices.BinarySearchFunc(a.choices, index, func(c choice, i int) int { return c.index - i })
	if !found {
		a.choices = slices.Insert(a.choices, at, choice{index: index})
	}
	return &a.choices[at]
}

func (c *choice) take(p *part) {
	c.text += p.Text
	c.ids = append(c.ids, p.TokenIDs...)
	if p.Finish != "" {
		c.finish = p.Finish
	}
	for _, m := range []*message{p.Message, p.Delta} {
		if m == nil {
			continue
		}
		c.text += m.Content
		c.reasoning += m.Reasoning + m.OldReasoning
		for i, t := range m.ToolCalls {
			at := t.Index
			if p.Message != nil {
				at = i // whole answers do not number their calls
			}
			c.call(at, t.Function)
		}
	}
	if p.Logprobs != nil {
		c.tokens = append(c.tokens, p.Logprobs.list()...)
	}
}

// call adds a part of the index-th tool call.
func (c *choice) call(index int, f function) {
	for len(c.calls) <= index {
		c.calls = append(c.calls, function{})
	}
	c.calls[index].Name += f.Name
	c.calls[index].Arguments += f.Arguments
}

func (l *logprobs) list() (all []token) {
	for _, t := range l.Content {
		top := map[string]float64{}
		for _, o := range t.Top {
			top[o.Token] = o.Logprob
		}
		all = append(all, token{t.Token, t.Logprob, top})
	}
	for i, text := range l.Tokens {
		t := token{text: text}
		if i < len(l.Values) && l.Values[i] != nil {
			t.logprob = *l.Values[i]
		}
		if i < len(l.Top) {
			t.top = l.Top[i]
		}
		all = append(all, t)
	}
	return all
}
