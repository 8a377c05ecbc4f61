package proxy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"xpyd/admin"
	"xpyd/admin/desk"
	"xpyd/kvparams"
	"xpyd/netio"
	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

// rig is a proxy over simulated engines, all in this process, on real sockets.
type rig struct {
	t       *testing.T
	prefill []*sim.Engine
	decode  []*sim.Engine
	encode  []*sim.Engine
	server  *proxy.Server
	url     string
	token   string // of the admin port
	pprof   bool   // it serves profiles
	desk    *desk.Desk
	storage string // where engines of ConnectorShared keep KV
	forgets bool   // see sim.Connector.Forgets
	logs    *logBuffer
	served  chan error
	client  *http.Client
}

// rigOptions change the usual rig: one prefill and one decode engine at test speed.
type rigOptions struct {
	prefill, decode int // engines; −1 for no prefill
	encode          int
	encoders        []string // further encode backends, which are no simulated engines
	engine          func(o *sim.Options)
	config          func(c *proxy.Config)
	router          func(c *router.Config)
	dialect         kvparams.Dialect
	log             func(w io.Writer) io.Writer // between the proxy and rig.logs
	before          func(r *rig)                // the first client can connect
}

type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func newRig(t *testing.T, o rigOptions) *rig {
	t.Helper()
	together(t)
	r := &rig{t: t, storage: t.TempDir(), logs: &logBuffer{}, served: make(chan error, 1), client: &http.Client{Transport: &http.Transport{}}}
	pools := router.DefaultConfig()
	pools.PrefillPolicy = fromEnv(t, "XPYD_PREFILL_POLICY", router.Policies(), "round_robin")
	pools.DecodePolicy = fromEnv(t, "XPYD_DECODE_POLICY", router.Policies(), "round_robin")
	pools.PD.Mode = fromEnv(t, "XPYD_PD_MODE", router.PDModes(), router.PDAlways)
	pools.Routing.Poll = 0 // for the tests that want it
	for i := range max(o.prefill, 1) {
		if o.prefill >= 0 {
			r.prefill = append(r.prefill, r.engine(o, sim.RolePrefill, i))
			pools.Prefill = append(pools.Prefill, router.MustEntries(entryOf(r.prefill[i]))...)
		}
	}
	for i := range max(o.decode, 1) {
		r.decode = append(r.decode, r.engine(o, sim.RoleDecode, i))
		pools.Decode = append(pools.Decode, router.MustEntries(entryOf(r.decode[i]))...)
	}
	pools.Encode = router.MustEntries(o.encoders...)
	for i := range o.encode {
		r.encode = append(r.encode, r.engine(o, sim.RoleEncode, i))
		pools.Encode = append(pools.Encode, router.MustEntries(r.encode[i].URL())...)
	}
	if o.router != nil {
		o.router(&pools)
	}
	cfg := proxy.DefaultConfig()
	cfg.Timeouts.Drain = 5 * time.Second
	cfg.Timeouts.Dial = 10 * time.Second // a busy machine may take more than the usual 1 s
	cfg.Warmup = false                   // its requests would be counted among the clients'
	if o.config != nil {
		o.config(&cfg)
	}
	r.token, r.pprof = cfg.AdminToken, cfg.Pprof
	rt, err := router.New(pools, cfg.DecodeOnly.MaxShare, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	var log io.Writer = r.logs
	if o.log != nil {
		log = o.log(log)
	}
	if r.server, err = proxy.New(cfg, rt, o.dialect, "test", zerolog.New(log)); err != nil {
		t.Fatal(err)
	}
	r.desk = desk.New("test", time.Now)
	r.server.OnEnd(r.desk.Ended)
	r.server.TrustChecks() // until a test asks for more
	ln, err := netio.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.url = "http://" + ln.Addr().String()
	if o.before != nil {
		o.before(r)
	}
	go func() { r.served <- r.server.Serve(ln) }()
	t.Cleanup(r.stop)
	r.await("up", func() bool { return up(rt.Snapshot()) == len(r.prefill)+len(r.decode)+len(r.encode)+len(o.encoders) })
	return r
}

// up is how many engines answered their last check.
func up(s *router.Snapshot) (n int) {
	for _, role := range router.Roles() {
		for _, m := range s.Members(role) {
			if m.State() == router.Up && (m.Twin() == nil || role == router.Decode) {
				n++
			}
		}
	}
	return n
}

// fromEnv is usual, unless the fault matrix runs its tests with another policy or pd.mode
// (tools/faults -with NAME). Tests that depend on one set it.
func fromEnv(t *testing.T, variable string, known []string, usual string) string {
	t.Helper()
	value, given := os.LookupEnv(variable)
	if !given {
		return usual
	}
	if !slices.Contains(known, value) {
		t.Fatalf("%s: %q is none of %q", variable, value, known)
	}
	return value
}

// until makes one request after the other, numbered, until one has met what the test is about. A
// random policy takes its time. There are at least two requests.
func (r *rig) until(met func() bool, request func(i int)) {
	r.t.Helper()
	for i := range 40 {
		if request(i); i > 0 && met() {
			return
		}
	}
	r.t.Fatal("no request met the fault: the test proves nothing")
}

// inTurn is the rigOptions.router of tests that count on the order of the backends.
func inTurn(c *router.Config) {
	c.PrefillPolicy, c.DecodePolicy = "round_robin", "round_robin"
}

func (r *rig) engine(o rigOptions, role sim.Role, i int) *sim.Engine {
	opts := sim.Options{Name: fmt.Sprintf("%s-%d", role, i), Role: role}
	if o.dialect != nil && slices.Contains(sim.Connectors(), sim.Connector(o.dialect.Name())) {
		opts.Connector, opts.Storage = sim.Connector(o.dialect.Name()), r.storage
		if r.forgets = opts.Connector.Forgets(); r.forgets {
			opts.Lease = 3 * time.Second
		}
	}
	if o.engine != nil {
		o.engine(&opts)
	}
	e, err := sim.Start(opts.Fast())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = e.Close() })
	return e
}

// entryOf is the engine's entry in a pool.
func entryOf(e *sim.Engine) string {
	if port := e.BootstrapPort(); port > 0 {
		return fmt.Sprintf("%s bootstrap=%d", e.URL(), port)
	}
	return e.URL()
}

// stop shuts the proxy down. Nothing may be held after that.
func (r *rig) stop() {
	r.client.CloseIdleConnections()
	if err := r.server.Shutdown(); err != nil {
		r.t.Errorf("shutdown: %v", err)
	}
	if err := <-r.served; err != nil {
		r.t.Errorf("serve: %v", err)
	}
}

// goroutines lists the stacks of all goroutines except two of fasthttp's, which stay for a while:
// its clock, and the cleaner of a worker pool that has stopped.
func goroutines() []string {
	buf := make([]byte, 4<<20)
	var all []string
	for _, stack := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if !ofFasthttp(stack) {
			all = append(all, stack)
		}
	}
	return all
}

// patience is far longer than anything here takes on a busy machine.
const patience = 15 * time.Second

// await polls for a state that another goroutine brings about, less often the longer it takes: many
// tests wait at once, and most of them look at all metrics.
func (r *rig) await(what string, ok func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(patience)
	for wait := time.Millisecond; !ok(); wait = min(wait*3/2, 20*time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("not %s after %s\n%s", what, patience, r.logs)
		}
		time.Sleep(wait)
	}
}

// soon is the answer of a request that runs. It fails the test after patience.
func (r *rig) soon(got <-chan answer) answer {
	r.t.Helper()
	select {
	case a := <-got:
		return a
	case <-time.After(patience):
		r.t.Fatalf("no answer after %s\n%s", patience, r.logs)
		return answer{}
	}
}

// answer is a whole response, as a client that reads to the end sees it.
type answer struct {
	status int
	header http.Header
	body   string
	err    error // of reading the body
}

func (r *rig) post(path, body string, header ...string) answer {
	r.t.Helper()
	return r.send(http.MethodPost, path, body, header...)
}

func (r *rig) send(method, path, body string, header ...string) answer {
	r.t.Helper()
	req, err := http.NewRequest(method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(b), err}
}

// code is error.code of an error answer or of a stream's error event.
func (a answer) code() string {
	text := a.body
	if i := strings.LastIndex(text, "data: {"); i >= 0 {
		text = text[i+len("data: "):]
	}
	var e struct {
		Error struct {
			Code any `json:"code"`
		} `json:"error"`
	}
	_ = json.NewDecoder(strings.NewReader(text)).Decode(&e)
	return fmt.Sprint(e.Error.Code)
}

// text is the answer's text, for either API, streamed or not.
func (a answer) text() string {
	type choice struct {
		Text    string
		Delta   struct{ Content string }
		Message struct{ Content string }
	}
	var out strings.Builder
	add := func(raw string) {
		var c struct{ Choices []choice }
		_ = json.Unmarshal([]byte(raw), &c)
		for _, ch := range c.Choices {
			out.WriteString(ch.Text + ch.Delta.Content + ch.Message.Content)
		}
	}
	if strings.HasPrefix(a.body, "{") {
		add(a.body)
		return out.String()
	}
	for _, line := range strings.Split(a.body, "\n") {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			add(data)
		}
	}
	return out.String()
}

// call is one completion in any of its four forms.
type call struct {
	chat, stream bool
	prompt       string
	tokens       int
	more         string // further members, each with a leading comma
}

func forms(prompt string, tokens int) []call {
	var all []call
	for _, chat := range []bool{false, true} {
		for _, stream := range []bool{false, true} {
			all = append(all, call{chat: chat, stream: stream, prompt: prompt, tokens: tokens})
		}
	}
	return all
}

func (c call) name() string {
	return map[bool]string{true: "chat", false: "completions"}[c.chat] + map[bool]string{true: " streamed", false: ""}[c.stream]
}

func (c call) path() string {
	if c.chat {
		return "/v1/chat/completions"
	}
	return "/v1/completions"
}

func (c call) body() string {
	prompt, _ := json.Marshal(c.prompt)
	input := `"prompt":` + string(prompt)
	if c.chat {
		input = `"messages":[{"role":"user","content":` + string(prompt) + `}]`
	}
	return fmt.Sprintf(`{"model":"sim",%s,"max_tokens":%d,"temperature":0,"stream":%v%s}`, input, c.tokens, c.stream, c.more)
}

// want is the text that every engine answers with.
func (c call) want() string {
	if c.chat {
		return sim.Text(sim.ChatPrompt(sim.Message{Role: "user", Content: c.prompt}), c.tokens)
	}
	return sim.Text(c.prompt, c.tokens)
}

func (r *rig) call(c call, header ...string) answer {
	r.t.Helper()
	return r.post(c.path(), c.body(), header...)
}

// expectWhole fails unless a is the complete right answer to c.
func (r *rig) expectWhole(c call, a answer) {
	r.t.Helper()
	if a.err != nil || a.status != 200 || a.text() != c.want() {
		r.t.Fatalf("%s: status %d, error %v, text %q, want %q\nbody %.600s\n%s", c.name(), a.status, a.err, a.text(), c.want(), a.body, r.logs)
	}
	if c.stream != strings.HasSuffix(a.body, "data: [DONE]\n\n") {
		r.t.Fatalf("%s: wrong end: %q", c.name(), a.body[max(0, len(a.body)-80):])
	}
}

// expectNothingHeld waits until no engine pins blocks, and fails if a lease had to free any and was not
// the only way.
func (r *rig) expectNothingHeld() {
	r.t.Helper()
	for _, e := range r.prefill {
		r.await(e.Name()+" free of pinned blocks", func() bool { return e.Ledger().Pinned == 0 })
		if n := e.Ledger().FreedBy["lease"]; n > 0 && !r.forgets {
			r.t.Fatalf("%s: %d entries freed by the lease", e.Name(), n)
		}
	}
	r.await("idle", func() bool { return r.metric("xpyd_in_flight") == 0 })
	for _, e := range r.decode {
		for _, rec := range e.Requests() {
			// A release follows a decode that may have read the blocks. Its answer is not seen.
			if (rec.WrongKV || rec.HandleReuse) && !isRelease(rec) {
				r.t.Fatalf("%s: a handle was used twice: %+v", e.Name(), rec)
			}
		}
	}
}

// isRelease reports whether xpyd gave a handle back by that request. A drain has a salt, because its
// KV may be another prompt's.
func isRelease(rec sim.Record) bool {
	return strings.HasSuffix(rec.RequestID, "-release") || bytes.Contains(rec.Body, []byte(`"cache_salt"`))
}

// metric sums the series that begin with name.
func (r *rig) metric(name string) float64 {
	r.t.Helper()
	sum := 0.0
	for _, line := range strings.Split(r.metricsText(), "\n") {
		if strings.HasPrefix(line, name) {
			var v float64
			_, _ = fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &v)
			sum += v
		}
	}
	return sum
}

func (r *rig) metricsText() string { return r.adminText("/metrics") }

// admin is the operators' port of the rig.
func (r *rig) admin() http.Handler {
	return admin.New(admin.Config{View: r.server.View(), Desk: r.desk, Tokens: admin.NewTokens(r.token, nil), Pprof: r.pprof, Log: zerolog.New(r.logs)}).Handler
}

func (r *rig) adminText(path string) string {
	w := &responseRecorder{header: http.Header{}}
	req, _ := http.NewRequest(http.MethodGet, path, nil)
	req.Header.Set("Authorization", "Bearer "+r.token)
	r.admin().ServeHTTP(w, req)
	return w.body.String()
}

type responseRecorder struct {
	header http.Header
	body   bytes.Buffer
}

func (w *responseRecorder) Header() http.Header         { return w.header }
func (w *responseRecorder) Write(p []byte) (int, error) { return w.body.Write(p) }
func (w *responseRecorder) WriteHeader(int)             {}

// record waits for an engine's record of a leg of the request with this id. Engines write it after
// their answer.
func (r *rig) record(e *sim.Engine, id string) (rec sim.Record) {
	r.t.Helper()
	r.await("a record of "+id+" on "+e.Name(), func() bool {
		for _, rec = range e.Requests() {
			if strings.HasPrefix(rec.RequestID, id+"-") {
				return true
			}
		}
		return false
	})
	return rec
}

// legs returns the requests of the engines of a role, by leg.
func legs(engines []*sim.Engine, leg string) []sim.Record {
	var out []sim.Record
	for _, e := range engines {
		for _, rec := range e.Requests() {
			if rec.Leg == leg {
				out = append(out, rec)
			}
		}
	}
	return out
}
