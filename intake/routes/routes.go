// Package routes is the table of the paths that the data port serves, and what each of them takes. The
// paths are exact. There is no catch-all, because vLLM's own server has admin and development routes,
// and its API key does not cover all of them.
package routes

import (
	"errors"
	"slices"
	"strings"
)

// Kind is what xpyd does with a request.
type Kind uint8

const (
	// Relay sends it to one engine that serves the model, and passes the answer on.
	Relay Kind = iota
	Chat
	Completions
	Messages // Anthropic's API
	Responses
	Generate // token ids in and out
	Models   // answered from what the engines list
	Live
	Ready
	Whole // the path * of OPTIONS, which asks about the server as a whole
)

// Body is the media type that a route takes.
type Body uint8

const (
	None Body = iota // it is a GET
	JSON
	Form   // multipart/form-data
	Either // JSON or a form, for routes that xpyd does not know
)

// Route is one row of the table.
type Route struct {
	Path string
	Kind Kind
	Body Body
	Open bool // served without a key
	// APIKey: the route is in Anthropic's API, whose clients may show their key in X-Api-Key.
	APIKey bool

	// What follows is about Relay.

	// Light: it costs no GPU time, and so no tokens. It has 30 s.
	Light bool
	// Repeats: the request may go to a second engine even if a first may have worked on it, because it
	// computes an answer and changes nothing.
	Repeats bool
	// Name is the route's name in metrics: the path, or Other for the routes of routes.pass.
	Name string
}

// Methods returns the methods that the route answers, as Allow lists them.
func (r Route) Methods() string {
	switch {
	case r.Kind == Whole:
		return "GET, HEAD, POST, OPTIONS"
	case r.Body == None:
		return "GET, HEAD, OPTIONS"
	}
	return "POST, OPTIONS"
}

// Other is the name in metrics of all routes that an operator has added.
const Other = "other"

// own are the routes that are always served, in the order in which they are listed.
var own = [...]Route{
	{Path: "/v1/chat/completions", Kind: Chat, Body: JSON},
	{Path: "/v1/completions", Kind: Completions, Body: JSON},
	{Path: "/v1/messages", Kind: Messages, Body: JSON, APIKey: true},
	{Path: "/v1/responses", Kind: Responses, Body: JSON},
	{Path: "/inference/v1/generate", Kind: Generate, Body: JSON},
	{Path: "/v1/models", Kind: Models, APIKey: true},
	{Path: "/v1/embeddings", Body: JSON, Repeats: true},
	{Path: "/v1/score", Body: JSON, Repeats: true},
	{Path: "/score", Body: JSON, Repeats: true},
	{Path: "/v1/rerank", Body: JSON, Repeats: true},
	{Path: "/v2/rerank", Body: JSON, Repeats: true},
	{Path: "/rerank", Body: JSON, Repeats: true},
	{Path: "/pooling", Body: JSON, Repeats: true},
	{Path: "/classify", Body: JSON, Repeats: true},
	{Path: "/v1/audio/transcriptions", Body: Form, Repeats: true},
	{Path: "/v1/audio/translations", Body: Form, Repeats: true},
	{Path: "/v1/chat/completions/render", Body: JSON, Light: true, Repeats: true},
	{Path: "/v1/messages/count_tokens", Body: JSON, APIKey: true, Light: true, Repeats: true},
	{Path: "/tokenize", Body: JSON, Light: true, Repeats: true},
	{Path: "/detokenize", Body: JSON, Light: true, Repeats: true},
	{Path: "/version", Light: true, Repeats: true},
	{Path: "/livez", Kind: Live, Open: true},
	{Path: "/readyz", Kind: Ready, Open: true},
	{Path: "/health", Kind: Ready, Open: true},
}

// never are vLLM's routes that operate an engine. No client may reach one of them, or a path below it.
// /invocations is another name for the whole API, and would bypass the checks of each route.
var never = [...]string{
	"/abort_requests", "/collective_rpc", "/docs", "/fault_tolerance", "/finish_weight_update", "/get_world_size",
	"/inference/v1/abort_requests", "/init_weight_transfer_engine", "/invocations", "/is_paused", "/is_scaling_elastic_ep", "/is_sleeping", "/kv_event_sources", "/load",
	"/metrics", "/openapi.json", "/pause", "/redoc", "/release_kv_cache_memory", "/reset_encoder_cache", "/reset_mm_cache",
	"/reset_prefix_cache", "/resume", "/scale_elastic_ep", "/server_info", "/shutdown_weight_transfer_engine", "/sleep",
	"/start_draft_weight_update", "/start_profile", "/start_weight_update", "/stop_profile", "/update_weight_version", "/update_weights",
	"/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/wake_up", "/weight_checker", "/weight_info",
}

// handles are vLLM's routes that take kv_transfer_params. A handle that a client makes up can hang or kill
// a decode engine, or name a host of the client's choice. Those that xpyd serves itself are here because a
// server may read their paths in other forms too.
var handles = [...]string{"/cohere/v2/chat", "/inference/v1/generate", "/v1/chat/completions", "/v1/chat/completions/batch", "/v1/completions",
	"/v1/messages", "/v1/responses"}

// Table finds routes. It never changes.
type Table struct {
	byPath map[string]Route
	list   string
}

// New makes the table of xpyd's own routes and of those in pass, which Parse has accepted.
func New(pass []string) *Table {
	t := &Table{byPath: map[string]Route{}}
	for _, r := range own {
		t.add(r)
	}
	for _, entry := range pass {
		if r, err := Parse(entry); err == nil {
			t.add(r)
		}
	}
	return t
}

func (t *Table) add(r Route) {
	if r.Name == "" {
		r.Name = r.Path
	}
	t.byPath[r.Path] = r
	if t.list != "" {
		t.list += ", "
	}
	t.list += r.Path
}

// Find compares the raw path. It decodes nothing and resolves no ".." or "//".
func (t *Table) Find(path []byte) (Route, bool) {
	r, ok := t.byPath[string(path)]
	return r, ok
}

// List returns all paths, for the answer to an unknown one.
func (t *Table) List() string { return t.list }

// Methods are those of the route of a path, or of the whole server if there is no such route.
func (t *Table) Methods(path []byte) string {
	r, ok := t.Find(path)
	if !ok {
		r.Kind = Whole
	}
	return r.Methods()
}

// Paths returns xpyd's own paths in the order of the table.
func Paths() (paths []string) {
	for _, r := range own {
		paths = append(paths, r.Path)
	}
	return paths
}

// Names returns the names in metrics of all routes that are relayed.
func Names() (names []string) {
	for _, r := range own {
		if r.Kind == Relay {
			names = append(names, r.Path)
		}
	}
	return append(names, Other)
}

// Parse reads an entry of routes.pass. It is the path of a POST, or "GET " and the path of a GET. The
// error says what to do about it.
func Parse(entry string) (Route, error) {
	path, get := strings.CutPrefix(entry, "GET ")
	if !get {
		path = strings.TrimPrefix(entry, "POST ")
	}
	r := Route{Path: path, Body: Either, Name: Other}
	if get {
		r.Body, r.Light = None, true
	}
	switch {
	case !strings.HasPrefix(path, "/") || strings.ContainsFunc(path, outsidePath) || strings.Contains(path, "//") || strings.Contains(path, "/."):
		return r, errors.New("must be a plain path such as /v2/embed, or GET and a path")
	case slices.ContainsFunc(own[:], func(o Route) bool { return o.Path == path }):
		return r, errors.New("is served already; leave it out")
	case slices.ContainsFunc(never[:], func(n string) bool { return within(path, n) }):
		return r, errors.New("operates an engine, which no client may do; ask the engine itself")
	case slices.ContainsFunc(handles[:], func(h string) bool { return strings.EqualFold(strings.TrimRight(path, "/"), h) }):
		return r, errors.New("takes KV handles, which only xpyd may send; ask the engine itself")
	}
	return r, nil
}

// outsidePath reports whether a path must not contain c. Paths are compared byte by byte. An engine might
// resolve a dot segment, a doubled slash or an escape, and then serve another route than the one named.
func outsidePath(c rune) bool {
	return c <= ' ' || c >= 0x7f || strings.ContainsRune(`?#%\:*"<>`, c)
}

// within reports whether path is root or below it, as a server may read them.
func within(path, root string) bool {
	path = strings.TrimRight(path, "/")
	return strings.EqualFold(path, root) || len(path) > len(root) && path[len(root)] == '/' && strings.EqualFold(path[:len(root)], root)
}
