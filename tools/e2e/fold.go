package main

import (
	"encoding/json"
	"fmt"
)

// once has the members that are the same in each event. The texts of all others are parts that
// follow each other. A finish_reason that came twice is there twice.
var once = map[string]bool{"id": true, "object": true, "model": true, "role": true, "type": true, "system_fingerprint": true}

// fold adds an event of a stream to those before it. Texts and lists grow, and lists of members
// with an index grow by that index. Of other values the last one counts. null adds nothing.
func fold(sum, v any) any {
	if sum == nil || v == nil {
		if v == nil {
			return sum
		}
		return normal(v)
	}
	switch v := v.(type) {
	case map[string]any:
		into, ok := sum.(map[string]any)
		if !ok {
			return v
		}
		for key, member := range v {
			if s, isText := member.(string); isText && once[key] {
				into[key] = s
				continue
			}
			into[key] = fold(into[key], member)
		}
		return into
	case []any:
		into, _ := sum.([]any)
		return foldList(into, v)
	case string:
		if before, ok := sum.(string); ok {
			return before + v
		}
	}
	return v
}

// normal is the form that folding gives a single value. So one event with a list equals two events
// with its halves.
func normal(v any) any {
	if list, ok := v.([]any); ok {
		return foldList(nil, list)
	}
	return v
}

func foldList(into, list []any) []any {
	if into == nil {
		into = []any{}
	}
	for _, member := range list {
		at := -1
		if index, ok := indexOf(member); ok {
			for i, other := range into {
				if same, ok := indexOf(other); ok && same == index {
					at = i
				}
			}
		}
		if at < 0 {
			into = append(into, member)
		} else {
			into[at] = fold(into[at], member)
		}
	}
	return into
}

func indexOf(v any) (json.Number, bool) {
	m, _ := v.(map[string]any)
	n, ok := m["index"].(json.Number)
	return n, ok
}

// comparison finds where two answers differ. Numbers below a member with logprob in its name
// may differ by tolerance: float32 sums depend on what else is in an engine's batch.
type comparison struct {
	tolerance float64
	worst     float64 // largest difference that was seen, also beyond the tolerance
	diffs     []string
}

func (c *comparison) differ(at string, want, got any) {
	w, _ := json.Marshal(want)
	g, _ := json.Marshal(got)
	c.diffs = append(c.diffs, fmt.Sprintf("%s: %.300s, want %.300s", at, g, w))
}
