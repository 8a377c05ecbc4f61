package cmd

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"xpyd/cmd/config"
	"xpyd/cmd/migrate"
	"xpyd/sim"
)

// start is a way to start xpyd before the same engines.
type start struct {
	name string
	// args are those of serve, before a prefill and a decode engine.
	args func(prefill, decode *url.URL) []string
	// differs has the keys whose values are others than those of a plain start.
	differs []string
}

// starts are a plain start, which comes first, and the command lines of the other routers.
func starts() []start {
	own := []string{"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}
	as := func(router string, more []string, theirs ...string) []string {
		return slices.Concat(own, []string{"--as", router}, more, []string{"--"}, theirs)
	}
	gateway := func(router string, pd ...string) func(p, d *url.URL) []string {
		return func(p, d *url.URL) []string {
			return append([]string{"--as", router, "--", "--host", "127.0.0.1", "--port", "0", "--prometheus-port", "0", "--prefill", p.String(), "none", "--decode", d.String()}, pd...)
		}
	}
	theirDefaults := []string{"decode_policy", "limits.body", "timeouts.request"}
	return []start{
		{name: "xpyd", args: func(p, d *url.URL) []string {
			return append(own, "--prefill", p.String(), "--decode", d.String())
		}},
		{"vllm-router", gateway("vllm-router", "--vllm-pd-disaggregation"), theirDefaults},
		{"sglang-router", gateway("sglang-router", "--pd-disaggregation", "--backend", "vllm"), theirDefaults},
		{"smg", gateway("smg", "--pd-disaggregation", "--backend", "vllm"), theirDefaults},
		{"toy", func(p, d *url.URL) []string {
			return as("toy", nil, "--port", "8192", "--prefiller-hosts", p.Hostname(), "--prefiller-ports", p.Port(), "--decoder-hosts", d.Hostname(), "--decoder-ports", d.Port())
		}, []string{"decode_policy", "prefill_policy"}},
		{"epd-proxy", func(p, d *url.URL) []string {
			return as("epd-proxy", nil, "--encode-servers-urls", "", "--prefill-servers-urls", p.String(), "--decode-servers-urls", d.String())
		}, []string{"decode_policy", "prefill_policy"}},
		{"llm-d-sidecar", func(p, d *url.URL) []string {
			return as("llm-d-sidecar", []string{"--prefill", p.String(), "--decode", d.String()}, "--port=8000", "--model-server-port=8200", "--secure-proxy=false")
		}, nil},
		{"production-stack", func(p, d *url.URL) []string {
			return as("production-stack", nil, "--port", "8001", "--static-backends", p.String()+","+d.String(), "--static-model-labels", "p,d",
				"--prefill-model-labels", "p", "--decode-model-labels", "d", "--routing-logic", "disaggregated_prefill_orchestrated")
		}, []string{"decode_policy", "prefill_policy"}},
	}
}

// Each router that --as takes is among the starts, and has its row in the docs.
func TestEachRouterIsTestedAndDocumented(t *testing.T) {
	var names []string
	for _, s := range starts()[1:] {
		names = append(names, s.name)
	}
	if all := migrate.Routers(); !slices.Equal(names, all) {
		t.Errorf("the starts are %q, and the routers %q", names, all)
	}
	page := readText(t, "docs/migrating.md")
	for _, name := range migrate.Routers() {
		if !strings.Contains(page, "\n| `"+name+"` | ") {
			t.Errorf("docs/migrating.md has no row for %s", name)
		}
	}
}

// A process that runs another router's command line conforms as a plain one does: xpyd verify finds all
// rows but lease ok, each request of the table gets the answer that a plain xpyd gives, and the process reloads,
// hands over and stops.
func TestConformanceOfEachStart(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	all := map[string][]string{} // the answers of each start
	t.Cleanup(func() {           // the starts have ended
		plain, ok := all["xpyd"] // not with -run for one of the others
		for name, answers := range all {
			if ok {
				expectSame(t, name, answers, plain)
			}
		}
	})
	for _, s := range starts() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			o := sim.Options{Role: sim.RolePrefill, ToolCallParser: "hermes", TokenLatency: time.Millisecond}.Fast()
			prefill := startSim(t, o)
			o.Role = sim.RoleDecode
			decode := startSim(t, o)
			p := startSelf(t, append([]string{"serve"}, s.args(parseURL(t, prefill.URL()), parseURL(t, decode.URL()))...)...)
			p.serving(1)
			p.awaitReady()
			// The row lease asks the engines alone, whatever stands before them.
			not, err := deployment{prefill, decode, "http://" + p.addr, "http://" + p.admin}.rows(t, "--skip", "lease", "--settle", patience.String())
			if err != nil {
				t.Error(err)
			}
			checkFailed(t, not, nil)
			answers := p.answers()
			mu.Lock()
			all[s.name] = answers
			mu.Unlock()
			p.reload("ok")
			second := p.handOver(1)
			if _, err := (&client{addr: p.addr}).ask(heldPrompt, 3, true); err != nil {
				t.Errorf("after the hand-over: %v", err)
			}
			p.signal(second, syscall.SIGTERM)
			p.gone()
		})
	}
}

// The bootstrap port that their command lines give a prefill engine is the one that its connector uses.
func TestStartsWithABootstrapPort(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		router    string
		connector sim.Connector
		flags     []string
	}{
		{"sglang-router", sim.ConnectorSGLang, []string{"--pd-disaggregation"}},
		{"smg", sim.ConnectorSGLang, []string{"--pd-disaggregation"}},
		{"vllm-router", sim.ConnectorMooncake, []string{"--vllm-pd-disaggregation", "--kv-connector", "mooncake"}},
	} {
		t.Run(tc.router, func(t *testing.T) {
			t.Parallel()
			prefill := startEngine(t, sim.Options{Name: "p", Role: sim.RolePrefill, Connector: tc.connector})
			decode := startEngine(t, sim.Options{Name: "d", Role: sim.RoleDecode, Connector: tc.connector})
			p := startSelf(t, append([]string{"serve", "--as", tc.router, "--", "--host", "127.0.0.1", "--port", "0", "--prometheus-port", "0",
				"--prefill", prefill.URL(), strconv.Itoa(prefill.BootstrapPort()), "--decode", decode.URL()}, tc.flags...)...)
			p.serving(1)
			p.awaitReady()
			if _, err := (&client{addr: p.addr}).ask(heldPrompt, 3, true); err != nil {
				t.Error(err)
			}
			if n := p.metric(`xpyd_decisions_total{path="disaggregated"`); n != 1 {
				t.Errorf("%v requests went through both legs, want 1", n)
			}
			p.signal(p.serving(1), syscall.SIGTERM)
			p.gone()
		})
	}
}

// The configuration of each router's command line is that of a plain start, but for what the router
// itself does otherwise.
func TestConfigurationOfEachStart(t *testing.T) {
	p, d := parseURL(t, "http://127.0.0.1:8100"), parseURL(t, "http://127.0.0.1:8200")
	var plain config.Config
	for _, s := range starts() {
		cmd := newServeCmd()
		if err := cmd.ParseFlags(s.args(p, d)); err != nil {
			t.Fatal(err)
		}
		load, err := loader(cmd, cmd.Flags().Args(), nil, false)
		if err != nil {
			t.Fatal(err)
		}
		c, err := load(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		if s.name == "xpyd" {
			plain = c
		}
		differs := config.ChangedKeys(c, plain)
		if slices.Sort(differs); !slices.Equal(differs, s.differs) {
			t.Errorf("%s: %q differ from those of a plain start, want %q", s.name, differs, s.differs)
		}
	}
}

// exchange is a request that conforms to an API or breaks one of its rules, and what every xpyd answers.
type exchange struct {
	method, path, body string
	header             [2]string
	status             int
	want               string // is in the answer's head or body
}

const (
	chatBody      = `{"model":"sim","messages":[{"role":"user","content":"one two three"}],"max_tokens":4`
	messagesBody  = `{"model":"sim","messages":[{"role":"user","content":"one two three"}],"max_tokens":4`
	responsesBody = `{"model":"sim","input":"one two three","max_output_tokens":4`
	plainBody     = `{"model":"sim","prompt":"one two three","max_tokens":4`
	bothLegs      = "X-Xpyd-Path: disaggregated"
)

// exchanges have each API whole and streamed, a relayed route of each form, the pages, and a refusal of
// each kind.
func exchanges() []exchange {
	post, get := http.MethodPost, http.MethodGet
	all := []exchange{
		{method: post, path: "/v1/completions", body: plainBody + `,"n":2}`, status: 200, want: "X-Xpyd-Reason: n"},
		{method: post, path: "/inference/v1/generate", body: `{"model":"sim","token_ids":[1,2,3],"sampling_params":{"max_tokens":4}}`, status: 200, want: bothLegs},
		{method: post, path: "/v1/embeddings", body: `{"model":"sim","input":"a"}`, status: 200, want: `"embedding"`},
		{method: post, path: "/v1/rerank", body: `{"model":"sim","query":"a","documents":["b"]}`, status: 200, want: `"relevance_score"`},
		{method: post, path: "/tokenize", body: `{"model":"sim","prompt":"a b"}`, status: 200, want: `"tokens"`},
		{method: post, path: "/v1/messages/count_tokens", body: `{"model":"sim","messages":[{"role":"user","content":"a"}]}`, status: 200, want: `"input_tokens"`},
		{method: get, path: "/v1/models", status: 200, want: `"sim"`},
		{method: get, path: "/version", status: 200, want: `"version"`},
		{method: get, path: "/livez", status: 200},
		{method: get, path: "/readyz", status: 200},
		{method: get, path: "/health", status: 200},
		{method: http.MethodOptions, path: "/v1/completions", status: 204, want: "Allow: POST, OPTIONS"},
		{method: get, path: "/v1/completions", status: 405, want: "Allow: POST, OPTIONS"},
		{method: post, path: "/v1/load_lora_adapter", body: "{}", status: 404, want: "unknown_route"},
		{method: get, path: "/metrics", status: 404, want: "unknown_route"},
		{method: post, path: "/v1/completions", body: plainBody, status: 400, want: "invalid_json"},
		{method: post, path: "/v1/completions", body: plainBody + `,"kv_transfer_params":{"do_remote_prefill":true}}`, status: 400},
		{method: post, path: "/v1/completions", body: `{"model":"none","prompt":"a"}`, status: 404},
		{method: post, path: "/v1/completions", body: `{"model":"sim","prompt":"a","max_tokens":0}`, status: 400},
		{method: post, path: "/v1/completions", body: plainBody + "}", header: [2]string{"Content-Type", "text/plain"}, status: 415},
		{method: post, path: "/v1/messages", body: "{", status: 400, want: `"type":"error"`},
	}
	for path, body := range map[string]string{"/v1/completions": plainBody, "/v1/chat/completions": chatBody, "/v1/messages": messagesBody, "/v1/responses": responsesBody} {
		all = append(all, exchange{method: post, path: path, body: body + "}", status: 200, want: bothLegs},
			exchange{method: post, path: path, body: body + `,"stream":true}`, status: 200, want: bothLegs})
	}
	slices.SortFunc(all, func(a, b exchange) int {
		return strings.Compare(a.method+a.path+a.body+a.header[0], b.method+b.path+b.body+b.header[0])
	})
	return all
}

// answers sends all exchanges and returns the answers as text, without what differs from one request to
// the next.
func (p *process) answers() (all []string) {
	p.t.Helper()
	varies := regexp.MustCompile(`"id":"[^"]*"|"created(_at)?":[0-9.]+|"completed_at":[0-9.]+|"request_id":"[^"]*"|"item_id":"[^"]*"|"system_fingerprint":"[^"]*"`)
	for _, x := range exchanges() {
		status, answer := p.exchange(x)
		about := fmt.Sprintf("%s %s %s", x.method, x.path, x.body)
		if status != x.status || !strings.Contains(answer, x.want) {
			p.t.Errorf("%s: %d, want %d and %s:\n%s", about, status, x.status, x.want, answer)
		}
		all = append(all, fmt.Sprintf("%s\n%d\n%s", about, status, varies.ReplaceAllString(answer, "*")))
	}
	return all
}

// exchange sends one request. It returns the fields of the answer that do not vary, and its body.
func (p *process) exchange(x exchange) (status int, answer string) {
	p.t.Helper()
	req, err := http.NewRequest(x.method, "http://"+p.addr+x.path, strings.NewReader(x.body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if x.header[0] != "" {
		req.Header.Set(x.header[0], x.header[1])
	}
	resp, err := fresh.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Errorf("%s %s: %v", x.method, x.path, err)
	}
	var head strings.Builder
	if err := resp.Header.WriteSubset(&head, map[string]bool{"Date": true, "X-Request-Id": true, "Request-Id": true, "Server-Timing": true, "Content-Length": true}); err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, head.String() + string(body)
}

func expectSame(t *testing.T, name string, answers, plain []string) {
	t.Helper()
	for i := range min(len(answers), len(plain)) {
		if answers[i] != plain[i] {
			t.Errorf("%s answers\n%s\nand a plain xpyd\n%s", name, answers[i], plain[i])
		}
	}
	if len(answers) != len(plain) {
		t.Errorf("%s has %d answers, and a plain xpyd %d", name, len(answers), len(plain))
	}
}

func parseURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
