package proxy

import (
	"encoding/json"
	"net/http"
	"net/http/pprof"
	"time"

	"xpyd/router"
)

// Admin is the operators' port: health, metrics, pools and, where the configuration
// opens them, profiles. It must not be reachable for clients.
func (s *Server) Admin() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", s.adminReady)
	mux.HandleFunc("GET /health", s.adminReady)
	mux.Handle("GET /metrics", s.metrics.Handler())
	mux.HandleFunc("GET /pools", s.adminPools)
	if s.cfg.Pprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
}

func (s *Server) adminReady(w http.ResponseWriter, _ *http.Request) {
	if !s.Ready() {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "not ready", http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}

// poolEntry is one backend as GET /pools shows it.
type poolEntry struct {
	URL      string `json:"url"`
	State    string `json:"state"` // unknown, up, down
	Version  string `json:"version,omitempty"`
	InFlight int64  `json:"in_flight"`
}

func (s *Server) adminPools(w http.ResponseWriter, _ *http.Request) {
	pools := map[string][]poolEntry{}
	for _, role := range []router.Role{router.Prefill, router.Decode} {
		entries := []poolEntry{}
		for _, b := range s.router.Snapshot().Backends(role) {
			entries = append(entries, poolEntry{URL: b.URL, State: b.State().String(), Version: b.Version(), InFlight: b.InFlight()})
		}
		pools[role.String()] = entries
	}
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(pools)
}
