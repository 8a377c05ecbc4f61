package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
)

// testCase is one request and its expected result.
type testCase struct {
	kind
	request
	stream bool
}

// cases returns every step-th request of each kind, and at least one, without those that end an engine
// of the connector. The same seed makes the same requests.
func cases(seed uint64, step int, kv connector) []testCase {
	p := newPrompts(seed)
	var all []testCase
	for _, k := range kinds() {
		k = k.withDefaults()
		for i := 0; i < k.count; i += step {
			body := map[string]any{"model": "tiny", "temperature": 0, "return_token_ids": true}
			maps.Copy(body, k.body(p, i))
			if kv.ends(body["prompt"]) {
				continue
			}
			c := testCase{kind: k, stream: !k.whole && (i/step)%2 == 1}
			if c.stream {
				body["stream"] = true
				body["stream_options"] = streamOptions(i / step / 2)
			}
			text, err := json.Marshal(body)
			if err != nil {
				panic("BUG: body that is no JSON: " + err.Error())
			}
			c.request = request{path: k.api, body: text, id: fmt.Sprintf("e2e-%d-%d", seed, len(all))}
			all = append(all, c)
		}
	}
	return all
}

// withDefaults fills in what a kind leaves to the default.
func (k kind) withDefaults() kind {
	if k.api == "" {
		k.api = completionsPath
	}
	if k.status == 0 {
		k.status = http.StatusOK
	}
	if k.reason == "" {
		k.reason = split
	}
	return k
}

// streamOptions goes through what a client may ask for.
func streamOptions(i int) any {
	switch i % 4 {
	case 0, 3:
		return map[string]any{"include_usage": true}
	case 1:
		return map[string]any{"include_usage": true, "continuous_usage_stats": true}
	default:
		return nil
	}
}

func (c testCase) String() string {
	how := "whole"
	if c.stream {
		how = "streamed"
	}
	return fmt.Sprintf("%s %s, %s, %s", c.id, c.api, c.name, how)
}
