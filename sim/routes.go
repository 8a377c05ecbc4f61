package sim

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// route answers one request. Paths, methods and shapes are vLLM's.
func (c *core) route(ctx context.Context, x *exchange) {
	path := x.req.URL.Path
	if strings.HasPrefix(path, "/v1") && c.o.APIKey != "" && x.req.Header.Get("Authorization") != "Bearer "+c.o.APIKey {
		x.plain(http.StatusUnauthorized, `{"error":"Unauthorized"}`)
		return
	}
	if strings.HasPrefix(path, "/sim/") {
		c.control(x)
		return
	}
	methods, handle := c.endpoint(path)
	if handle == nil {
		x.plain(http.StatusNotFound, `{"detail":"Not Found"}`)
		return
	}
	if !strings.Contains(methods, x.req.Method) {
		body := []byte(`{"detail":"Method Not Allowed"}`)
		_ = x.answer(http.StatusMethodNotAllowed, "application/json", body, "allow: "+methods) // a client that has gone misses it
		return
	}
	handle(ctx, x)
}

// endpoint is the route table: the methods a path takes and what serves it.
func (c *core) endpoint(path string) (methods string, handle func(context.Context, *exchange)) {
	if c.o.Connector == ConnectorSGLang {
		if methods, handle, known := c.sglangEndpoint(path); known {
			return methods, handle
		}
	}
	switch path {
	case "/v1/chat/completions":
		return "POST", func(ctx context.Context, x *exchange) { c.countLoad(ctx, x, chatAPI{}) }
	case "/v1/completions":
		return "POST", func(ctx context.Context, x *exchange) { c.countLoad(ctx, x, completionsAPI{}) }
	case "/v1/messages":
		return "POST", func(ctx context.Context, x *exchange) { c.countLoad(ctx, x, messagesAPI{}) }
	case "/v1/responses":
		return "POST", func(ctx context.Context, x *exchange) { c.countLoad(ctx, x, responsesAPI{}) }
	case "/inference/v1/generate":
		return "POST", func(ctx context.Context, x *exchange) { c.countLoad(ctx, x, generateAPI{}) }
	case "/v1/messages/count_tokens":
		return "POST", func(_ context.Context, x *exchange) { c.countTokens(x) }
	case "/tokenize":
		return "POST", func(_ context.Context, x *exchange) { c.tokenize(x) }
	case "/detokenize":
		return "POST", func(_ context.Context, x *exchange) { c.detokenize(x) }
	case "/v1/models":
		return "GET", func(_ context.Context, x *exchange) { c.models(x) }
	case "/health":
		return "GET", func(_ context.Context, x *exchange) { x.empty() }
	case "/ping":
		return "GET, POST", func(_ context.Context, x *exchange) { x.empty() }
	case "/version":
		return "GET", func(_ context.Context, x *exchange) {
			x.json(append(appendString([]byte(`{"version":`), c.o.Version), '}'))
		}
	case "/load":
		return "GET", func(_ context.Context, x *exchange) {
			x.json(append(appendInt([]byte(`{"server_load":`), int(c.serving.Load())), '}'))
		}
	case "/metrics":
		return "GET", func(_ context.Context, x *exchange) { c.exposition(x) }
	case "/kv_event_sources":
		return "GET", func(_ context.Context, x *exchange) { x.json(c.ledger.publisher().AppendSources(nil)) }
	}
	switch {
	case c.adapters == nil:
	case path == "/v1/load_lora_adapter":
		return "POST", func(_ context.Context, x *exchange) { c.adapters.load(x) }
	case path == "/v1/unload_lora_adapter":
		return "POST", func(_ context.Context, x *exchange) { c.adapters.unload(x) }
	}
	if handle := c.alone(path); handle != nil {
		return "POST", handle
	}
	return "", nil
}

// alone is the part of the route table that one engine answers without a second.
func (c *core) alone(path string) func(context.Context, *exchange) {
	plain := func(handle func(*exchange)) func(context.Context, *exchange) {
		return func(_ context.Context, x *exchange) { handle(x) }
	}
	switch path {
	case "/v1/embeddings":
		return plain(c.embeddings)
	case "/v1/score", "/score":
		return plain(c.score)
	case "/v1/rerank", "/v2/rerank", "/rerank":
		return plain(c.rerank)
	case "/pooling":
		return plain(c.pooling)
	case "/classify":
		return plain(c.classify)
	case "/v1/audio/transcriptions", "/v1/audio/translations":
		return c.transcribe
	case "/v1/chat/completions/render":
		return plain(c.render)
	}
	return nil
}

// countLoad serves a completion request and counts it in /load meanwhile.
func (c *core) countLoad(ctx context.Context, x *exchange, shape api) {
	c.serving.Add(1)
	defer c.serving.Add(-1)
	c.complete(ctx, x, shape)
}

// The answers below are dropped silently if the client has gone, as uvicorn does.

func (x *exchange) json(b []byte) { _ = x.answer(http.StatusOK, "application/json", b) }

func (x *exchange) plain(status int, body string) {
	_ = x.answer(status, "application/json", []byte(body))
}

func (x *exchange) empty() { _ = x.answer(http.StatusOK, "", nil) }

func (x *exchange) fail(e *apiError) {
	_ = x.answer(e.status, "application/json", e.appendJSON(nil))
}

func (c *core) exposition(x *exchange) {
	var b bytes.Buffer
	c.metrics.appendText(&b, c.ledger.load())
	_ = x.answer(http.StatusOK, "text/plain; version=1.0.0; charset=utf-8", b.Bytes())
}

func (c *core) models(x *exchange) {
	now := int(time.Now().Unix())
	b := appendString([]byte(`{"object":"list","data":[{"id":`), c.o.Model)
	b = appendInt(append(b, `,"object":"model","created":`...), now)
	b = appendString(append(b, `,"owned_by":"vllm","root":`...), c.o.Model)
	b = appendInt(append(b, `,"parent":null,"max_model_len":`...), c.o.MaxModelLen)
	b = append(append(b, `,"permission":[{"id":"modelperm-`...), randomHex(8)...)
	b = appendInt(append(b, `","object":"model_permission","created":`...), now)
	b = append(b, `,"allow_create_engine":false,"allow_sampling":true,"allow_logprobs":true,"allow_search_indices":false,`+
		`"allow_view":true,"allow_fine_tuning":false,"organization":"*","group":null,"is_blocking":false}]}`...)
	for _, name := range c.adapters.list() {
		b = appendString(append(b, `,{"id":`...), name)
		b = appendInt(append(b, `,"object":"model","created":`...), now)
		b = appendString(append(b, `,"owned_by":"vllm","root":"/adapters","parent":`...), c.o.Model)
		b = append(b, `,"max_model_len":null,"permission":[]}`...)
	}
	x.json(append(b, "]}"...))
}

func (c *core) tokenize(x *exchange) {
	f := parseFields(x.body)
	if f.err == nil {
		model := f.text("model", true)
		text := f.text("prompt", false)
		if f.members["messages"] != nil {
			text = ChatPrompt(readMessages(f, "messages")...)
		} else if f.members["prompt"] == nil {
			f.missing("prompt")
		}
		if f.err == nil && model != "" && model != c.o.Model {
			f.err = unknownModel(model, c.o.Model)
		}
		if f.err == nil {
			x.json(c.appendTokenized(nil, text, f.boolean("return_token_strs", true)))
			return
		}
	}
	x.fail(f.err)
}

func (c *core) appendTokenized(b []byte, text string, strs bool) []byte {
	b = appendInt(append(b, `{"count":`...), tokenCount(text))
	b = appendInt(append(b, `,"max_model_len":`...), c.o.MaxModelLen)
	b = appendInts(append(b, `,"tokens":`...), encode(text))
	if !strs {
		return append(b, `,"token_strs":null}`...)
	}
	return append(appendEach(append(b, `,"token_strs":[`...), pieces(text)), "]}"...)
}

func (c *core) detokenize(x *exchange) {
	f := parseFields(x.body)
	if f.err == nil {
		ids := f.integers("tokens")
		if model := f.text("model", true); f.err == nil && model != "" && model != c.o.Model {
			f.err = unknownModel(model, c.o.Model)
		}
		if f.err == nil {
			x.json(append(appendString([]byte(`{"prompt":`), decode(ids)), '}'))
			return
		}
	}
	x.fail(f.err)
}

// adapters are the LoRA adapters that an incarnation of an engine has loaded. Any path has one.
type adapters struct {
	mu    sync.Mutex
	names []string
}

func (a *adapters) has(name string) bool {
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Contains(a.names, name)
}

func (a *adapters) list() []string {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.names)
}

// load answers as vLLM does with VLLM_ALLOW_RUNTIME_LORA_UPDATING.
func (a *adapters) load(x *exchange) {
	f := parseFields(x.body)
	name, path := f.text("lora_name", false), f.text("lora_path", false)
	switch {
	case f.err != nil:
		x.fail(f.err)
	case name == "" || path == "":
		x.fail(badRequest("lora_name", "Both 'lora_name' and 'lora_path' must be provided."))
	case a.has(name):
		x.fail(badRequest("lora_name", "The lora adapter '%s' has already been loaded. If you want to load the adapter in place, set 'load_inplace' to True.", name))
	default:
		a.mu.Lock()
		a.names = append(a.names, name)
		a.mu.Unlock()
		_ = x.answer(200, "", []byte("Success: LoRA adapter '"+name+"' added successfully."))
	}
}

func (a *adapters) unload(x *exchange) {
	f := parseFields(x.body)
	name := f.text("lora_name", false)
	switch {
	case f.err != nil:
		x.fail(f.err)
	case !a.has(name):
		x.fail(&apiError{status: 404, kind: "NotFoundError", message: "The lora adapter '" + name + "' cannot be found."})
	default:
		a.mu.Lock()
		a.names = slices.DeleteFunc(a.names, func(n string) bool { return n == name })
		a.mu.Unlock()
		_ = x.answer(200, "", []byte("Success: LoRA adapter '"+name+"' removed successfully."))
	}
}
