package proxy_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"xpyd/router"
)

// stub is an engine whose answers to a POST are a function of the test, for answers that no simulated
// engine gives. It is healthy and refuses releases as vLLM 0.32 does.
type stub struct {
	server   *httptest.Server
	handler  atomic.Value // an http.HandlerFunc
	releases chan string  // body of each release
}

func newStub(t *testing.T, complete http.HandlerFunc) *stub {
	t.Helper()
	together(t)
	s := &stub{releases: make(chan string, 64)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"version":"0.32.0"}`) })
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"sim","object":"model"}]}`)
	})
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.Header.Get("X-Request-Id"), "-release") {
			body, _ := io.ReadAll(r.Body)
			s.releases <- string(body)
			http.Error(w, `{"error":{"message":"max_tokens must be at least 1","type":"BadRequestError","param":"max_tokens","code":400}}`, http.StatusBadRequest)
			return
		}
		complete(w, r)
	})
	mux.HandleFunc("POST /", complete)
	s.handler.Store(http.HandlerFunc(mux.ServeHTTP))
	s.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.handler.Load().(http.HandlerFunc)(w, r) }))
	t.Cleanup(s.server.Close)
	return s
}

// wrap puts a handler before the stub's own, which it gets as usual.
func (s *stub) wrap(before func(usual http.HandlerFunc, w http.ResponseWriter, r *http.Request)) {
	usual := s.handler.Load().(http.HandlerFunc)
	s.handler.Store(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { before(usual, w, r) }))
}

// asPrefill and asDecode replace the rig's engines of a role by the stub.
func (s *stub) asPrefill(c *router.Config) { c.Prefill = router.MustEntries(s.server.URL) }
func (s *stub) asDecode(c *router.Config)  { c.Decode = router.MustEntries(s.server.URL) }

// stubHandle is a handle whose prefill engine cannot be reached.
const stubHandle = `{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[7]],"remote_engine_id":"e","remote_request_id":"r","remote_host":"127.0.0.1","remote_port":1}`
