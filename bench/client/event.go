package client

import (
	"bytes"
	"encoding/json"
)

// event has the members of an event that the client looks at, for both APIs.
type event struct {
	Choices []choice        `json:"choices"`
	Usage   *usage          `json:"usage"`
	Error   json.RawMessage `json:"error"`
	Object  string          `json:"object"`  // "error" in error events of older servers
	Message string          `json:"message"` // of such an event
}

type choice struct {
	Text   string  `json:"text"` // of a completion; a chat has a delta
	Delta  delta   `json:"delta"`
	Finish *string `json:"finish_reason"`
}

type delta struct {
	Role             string          `json:"role"`
	Content          string          `json:"content"`
	Reasoning        string          `json:"reasoning"`
	ReasoningContent string          `json:"reasoning_content"`
	Refusal          string          `json:"refusal"`
	ToolCalls        json.RawMessage `json:"tool_calls"`
}

type usage struct {
	Prompt  int `json:"prompt_tokens"`
	Output  int `json:"completion_tokens"`
	Details *struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// plain reports that an event carries a token and nothing else, as nearly all do. It costs a quarter
// of decoding the event, and may miss some. It searches for text with quotes. JSON escapes quotes
// within strings, so no token's text looks like that.
func plain(data []byte) bool {
	if at := bytes.Index(data, []byte(`"usage"`)); at >= 0 && !bytes.HasPrefix(data[at:], []byte(`"usage":null`)) {
		return false
	}
	return bytes.Contains(data, []byte(`"choices":[{`)) && bytes.Contains(data, []byte(`"finish_reason":null`)) &&
		!bytes.Contains(data, []byte(`"error"`)) && !bytes.Contains(data, []byte(`"role"`)) &&
		json.Valid(data)
}

// failed is the error in the event; "" for none.
func (e *event) failed() string {
	if len(e.Error) > 0 && !bytes.Equal(e.Error, []byte("null")) {
		return string(e.Error)
	}
	if e.Object == "error" {
		return e.Message
	}
	return ""
}

// carriesToken reports whether the event carries a token. A token's text may be empty (a part of a
// character), and so may the text of an answer that ends at once. The chat's opening event has a role
// and nothing else, and carries no token: servers send it before they compute.
func (e *event) carriesToken() bool {
	if len(e.Choices) == 0 {
		return false
	}
	for i := range e.Choices {
		c := &e.Choices[i]
		d := &c.Delta
		if d.Role == "" || c.Finish != nil || d.text() {
			return true
		}
	}
	return false
}

func (d *delta) text() bool {
	calls := len(d.ToolCalls) > 0 && !bytes.Equal(d.ToolCalls, []byte("null")) && !bytes.Equal(d.ToolCalls, []byte("[]"))
	return d.Content != "" || d.Reasoning != "" || d.ReasoningContent != "" || d.Refusal != "" || calls
}

// text is the first choice's, as vllm bench serve keeps it: the content of a chat, and no reasoning.
func (e *event) text() string {
	if len(e.Choices) == 0 {
		return ""
	}
	return e.Choices[0].Text + e.Choices[0].Delta.Content
}

// finish is the first choice's finish_reason; "" for none.
func (e *event) finish() string {
	for i := range e.Choices {
		if f := e.Choices[i].Finish; f != nil {
			return *f
		}
	}
	return ""
}
