package routes

import (
	"strings"
	"testing"
)

// What routes.pass may add, and what it can never open.
func TestParse(t *testing.T) {
	for entry, want := range map[string]string{
		"/v2/embed": "", "POST /generative_scoring": "", "GET /tokenizer_info": "", "/v1/audio/speech": "",
		"/sleepy":    "", // it only begins like an admin route
		"/v1/models": "is served already", "GET /version": "is served already",
		"/sleep": "operates an engine", "GET /is_sleeping": "operates an engine", "/Sleep": "operates an engine", "/sleep/": "operates an engine",
		"/reset_prefix_cache": "operates an engine", "/collective_rpc/x": "operates an engine", "/v1/load_lora_adapter": "operates an engine",
		"/invocations": "operates an engine", "GET /metrics": "operates an engine", "/fault_tolerance/apply": "operates an engine",
		"/inference/v1/abort_requests": "operates an engine", "/inference/v1/abort_requests/": "operates an engine", "/Inference/v1/abort_requests": "operates an engine",
		"/v1/responses": "is served already", "/v1/messages": "is served already", "/v1/messages/count_tokens": "is served already",
		"/v1/responses/": "takes KV handles", "/V1/messages": "takes KV handles", "/inference/v1/generate/": "takes KV handles", "/v1/Completions": "takes KV handles",
		"/v1/chat/completions/batch": "takes KV handles",
		"v2/embed":                   "must be a plain path", "": "must be a plain path", "/v2/embed?x=1": "must be a plain path", "/v2/../sleep": "must be a plain path",
		"//sleep": "must be a plain path", "/%73leep": "must be a plain path", "PUT /x": "must be a plain path", "/x y": "must be a plain path",
	} {
		r, err := Parse(entry)
		switch {
		case want == "" && (err != nil || r.Kind != Relay || r.Open || r.Repeats || r.Name != Other):
			t.Errorf("%q: %+v, %v", entry, r, err)
		case want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)):
			t.Errorf("%q: %v, want %s", entry, err, want)
		}
	}
}

// The table has what it was given, and nothing else.
func TestTable(t *testing.T) {
	table := New([]string{"/v2/embed", "GET /tokenizer_info"})
	for path, want := range map[string]Body{"/v1/embeddings": JSON, "/v1/audio/translations": Form, "/v2/embed": Either, "/tokenizer_info": None} {
		if r, ok := table.Find([]byte(path)); !ok || r.Body != want || r.Kind != Relay {
			t.Errorf("%s: %+v, %v", path, r, ok)
		}
	}
	for _, path := range []string{"/sleep", "/v1/embeddings/", "/V1/embeddings", "/v1", "", "/metrics", "/v1/embeddings%2f"} {
		if _, ok := table.Find([]byte(path)); ok {
			t.Errorf("%q is served", path)
		}
	}
	if list := table.List(); !strings.HasPrefix(list, "/v1/chat/completions, /v1/completions, ") || !strings.HasSuffix(list, ", /v2/embed, /tokenizer_info") {
		t.Errorf("the list is %q", list)
	}
}
