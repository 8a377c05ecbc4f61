package soak

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"xpyd/sim"
	"xpyd/tools/completion"
	"xpyd/tools/process"
)

// reloadID begins the ids of clients' requests. The time since the start of the run follows, in
// nanoseconds.
const reloadID = "reload-"

// beginOf returns when the client sent its request. ok is false if the id is not a client's.
func (r *reload) beginOf(id string) (begun time.Time, ok bool) {
	rest, ok := strings.CutPrefix(id, reloadID)
	if !ok {
		return begun, false
	}
	ns, _, _ := strings.Cut(rest, "-")
	n, err := strconv.ParseInt(ns, 10, 64)
	return r.plan.begin.Add(time.Duration(n)), err == nil
}

// staleBound is how long checks and readings may still reach a backend that has left and has
// nothing in flight. They are those under way, with a timeout of 2 s twice. Warm-ups begin up to 2
// s after they were due.
const staleBound = 10 * time.Second

// backend is an engine that answers like a vLLM of either role, without computing anything. A thousand
// of them must be cheap.
type backend struct {
	r       *reload
	url     string
	prefill bool
	server  *http.Server
	served  chan struct{}
	conns   atomic.Int64

	joinedNow bool // by the reload under way; the fleet's goroutine owns it

	mu    sync.Mutex
	out   time.Time // when a configuration without it came into force; zero if it is in the configuration
	busy  int       // legs
	ended time.Time // when the last one did
}

func startBackend(r *reload, host string, prefill bool) (*backend, error) {
	ln, err := net.Listen("tcp4", host+":0")
	if err != nil {
		return nil, fmt.Errorf("start an engine at %s: %w", host, err)
	}
	e := &backend{r: r, url: "http://" + ln.Addr().String(), prefill: prefill, served: make(chan struct{})}
	e.server = &http.Server{Handler: e, IdleTimeout: 5 * time.Second, ReadHeaderTimeout: 10 * time.Second, ConnState: e.connected}
	go func() {
		defer close(e.served)
		if err := e.server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			r.found("an engine that ended", "%s: %v", e.url, err)
		}
	}()
	return e, nil
}

func (e *backend) close() {
	_ = e.server.Close()
	<-e.served
}

func (e *backend) connected(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		e.conns.Add(1)
	case http.StateClosed, http.StateHijacked:
		e.conns.Add(-1)
	case http.StateActive, http.StateIdle:
	}
}

func (e *backend) join() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.out, e.joinedNow = time.Time{}, true
}

func (e *backend) leave(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.out = now
}

func (e *backend) removedAt() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.out
}

// stale returns how long it has been out with nothing in flight, or 0 if it is in the
// configuration.
func (e *backend) stale() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.out.IsZero() || e.busy > 0 {
		return 0
	}
	return min(time.Since(e.out), time.Since(e.ended))
}

// judge checks an engine that left long ago.
func (e *backend) judge() {
	if n := e.conns.Load(); n > 0 {
		e.r.found("connections to a backend that has left", "%d, %v after it left", n, e.stale().Round(time.Second))
	}
}

func (e *backend) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	switch req.URL.Path {
	case "/v1/completions", "/v1/chat/completions":
		e.leg(w, req)
		return
	}
	e.r.checks.Add(1)
	if late := e.stale(); late > staleBound {
		e.r.found("checks of a backend that has left", "%s %v after it left", req.URL.Path, late.Round(time.Millisecond))
	}
	switch req.URL.Path {
	case "/health":
	case "/version":
		_, _ = io.WriteString(w, `{"version":"0.32.0"}`)
	case "/v1/models":
		_, _ = fmt.Fprintf(w, `{"object":"list","data":[{"id":%q,"object":"model","max_model_len":131072}]}`, completion.Model)
	case "/metrics":
		_, _ = io.WriteString(w, enginePage)
	default:
		http.NotFound(w, req)
	}
}

const enginePage = `vllm:num_requests_running{engine="0",model_name="sim"} 1.0
vllm:num_requests_waiting{engine="0",model_name="sim"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="sim"} 0.05
vllm:prefix_cache_queries_total{engine="0",model_name="sim"} 1000.0
vllm:prefix_cache_hits_total{engine="0",model_name="sim"} 500.0
`

// completionBody is what an engine needs to know of a completion.
type completionBody struct {
	Stream    bool
	MaxTokens *int `json:"max_tokens"`
	Prompt    string
	KV        *struct {
		RemoteDecode  bool   `json:"do_remote_decode"`
		RemoteRequest string `json:"remote_request_id"`
	} `json:"kv_transfer_params"`
}

func (e *backend) leg(w http.ResponseWriter, req *http.Request) {
	e.mu.Lock()
	e.busy++
	out := e.out
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.busy--
		e.ended = time.Now()
	}()
	e.mayAsk(req.Header.Get("X-Request-Id"), out)
	var body completionBody
	if err := json.NewDecoder(req.Body).Decode(&body); err != nil || body.MaxTokens == nil {
		e.r.found("a leg that cannot be read", "%s: %v", req.URL.Path, err)
		http.Error(w, "{}", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch own := strings.HasPrefix(req.Header.Get("X-Request-Id"), "xpyd-"); {
	case body.KV != nil && body.KV.RemoteDecode:
		e.answerPrefill(w, req, own)
	case *body.MaxTokens < 1:
		e.read(body, true)
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error":{"message":"max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)","type":"BadRequestError","param":"max_tokens","code":400}}`)
	default:
		e.read(body, false)
		e.answerDecode(w, req, body)
	}
}

// mayAsk finds requests that should not have come here: those of clients that began when a
// configuration without this engine was in force, and the proxy's own that came too long after
// that.
func (e *backend) mayAsk(id string, out time.Time) {
	if out.IsZero() {
		return
	}
	late := time.Since(out)
	begun, ok := e.r.beginOf(id)
	switch {
	case ok && begun.After(out):
		e.r.found("requests to a backend that has left", "%s began %v after it had left", id, begun.Sub(out).Round(time.Microsecond))
	case !ok && late > staleBound:
		e.r.found("requests of the proxy's own to a backend that has left", "%s %v after it left", id, late.Round(time.Millisecond))
	}
}

// read ends the handle of a decode leg or of a release.
func (e *backend) read(body completionBody, released bool) {
	if body.KV == nil || body.KV.RemoteRequest == "" {
		return
	}
	if !e.r.handles.end(body.KV.RemoteRequest, released) {
		e.r.found("a handle that is not open", "%s, released: %v", body.KV.RemoteRequest, released)
	}
}

func (e *backend) answerPrefill(w http.ResponseWriter, req *http.Request, own bool) {
	if leave, ok := e.r.leaving.LoadAndDelete(clientOf(req)); ok {
		leave.(func())() // nothing else is ever stored
	}
	if !own && !process.SleepUntil(req.Context(), time.Now().Add(time.Duration(2+rand.IntN(15))*time.Millisecond)) {
		return
	}
	id := e.r.handles.issue(e.url)
	_, _ = fmt.Fprintf(w, `{"id":%q,"object":"text_completion","created":1795259066,"model":%q,"choices":[{"index":0,"text":"a","finish_reason":"length"}],`+
		`"usage":{"prompt_tokens":40,"total_tokens":41,"completion_tokens":1},"kv_transfer_params":{"do_remote_prefill":true,"do_remote_decode":false,`+
		`"remote_block_ids":[[1,2,3]],"remote_engine_id":"engine-%s","remote_request_id":%q,"remote_host":"192.0.2.1","remote_port":5601,"tp_size":1}}`,
		id, completion.Model, strings.TrimPrefix(e.url, "http://"), id)
}

// clientOf is the client's id of a leg.
func clientOf(req *http.Request) string {
	id := req.Header.Get("X-Request-Id")
	return id[:max(len(id)-completion.LegSuffix, 0)]
}

// answerDecode answers with the text of every engine, in one piece or streamed.
func (e *backend) answerDecode(w http.ResponseWriter, req *http.Request, body completionBody) {
	const answer = `{"id":"cmpl-%s","object":"text_completion","created":1795259066,"model":%q,"choices":[{"index":0,"text":%q,"finish_reason":%s}]%s}`
	id := clientOf(req)
	if !body.Stream {
		_, _ = fmt.Fprintf(w, answer, id, completion.Model, sim.Text(body.Prompt, *body.MaxTokens), `"length"`, `,"usage":{"prompt_tokens":40,"total_tokens":41,"completion_tokens":1}`)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	flush := http.NewResponseController(w)
	for i := range *body.MaxTokens {
		if i > 0 && !process.SleepUntil(req.Context(), time.Now().Add(40*time.Millisecond)) {
			return
		}
		finish := "null"
		if i == *body.MaxTokens-1 {
			finish = `"length"`
		}
		text := strings.TrimPrefix(sim.Text(body.Prompt, i+1), sim.Text(body.Prompt, i))
		_, _ = fmt.Fprintf(w, "data: "+answer+"\n\n", id, completion.Model, text, finish, "")
		if flush.Flush() != nil {
			return
		}
	}
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}
