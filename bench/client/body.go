package client

import (
	"encoding/json"
	"maps"
)

// Body is the request for one prompt. Bodies are made before the load begins, because encoding a
// long prompt takes longer than a request may be late.
func (c *Client) Body(prompt string, limit int) []byte {
	m := map[string]any{
		"model":          c.o.Model,
		"stream":         true,
		"stream_options": map[string]any{"include_usage": true},
	}
	if c.o.API == Chat {
		m["messages"] = []map[string]any{{"role": "user", "content": prompt}}
		m["max_completion_tokens"] = limit
	} else {
		m["prompt"] = prompt
		m["max_tokens"] = limit
		// As in vllm bench serve: if a model's own penalty differs, the server computes more.
		m["repetition_penalty"] = 1.0
	}
	if c.o.Temperature != nil {
		m["temperature"] = *c.o.Temperature
	}
	if c.o.IgnoreEOS {
		m["ignore_eos"] = true
	}
	maps.Copy(m, c.o.Extra)
	body, err := json.Marshal(m)
	if err != nil {
		panic("BUG: a body of strings and numbers is no JSON: " + err.Error())
	}
	return body
}
