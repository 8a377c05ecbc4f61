package proxy

import (
	"encoding/json"
	"log"
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
	mux.HandleFunc("GET /backends", s.adminBackends)
	mux.HandleFunc("GET /advice", s.adminAdvice)
	if s.cfg.Pprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	// In the form of the other lines: failed accepts and broken connections.
	errors := log.New(s.log.With().Str("level", "warn").Str("listener", "admin").Logger(), "", 0)
	return &http.Server{Handler: mux, ErrorLog: errors, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
}

func (s *Server) adminReady(w http.ResponseWriter, _ *http.Request) {
	if !s.Ready() {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "not ready", http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}

// poolEntry is one backend as GET /pools shows it. Times are seconds.
type poolEntry struct {
	URL     string `json:"url"`
	State   string `json:"state"` // unknown, up, down
	Version string `json:"version,omitempty"`
	// Policy is that of the backend's pool, Weight its share beside the others there.
	Policy   string  `json:"policy"`
	Weight   float64 `json:"weight"`
	InFlight int64   `json:"in_flight"`
	// EjectedFor is how long it is left alone yet, EjectReason why; Ejections how many
	// it had in a row.
	EjectedFor  float64 `json:"ejected_for,omitempty"`
	EjectReason string  `json:"eject_reason,omitempty"`
	Ejections   int     `json:"ejections,omitempty"`
	// Banned are the partners that it cannot hand blocks to, or take them from, and for
	// how long yet. Cold are those that it never has.
	Banned map[string]float64 `json:"banned_with,omitempty"`
	Cold   []string           `json:"cold_with,omitempty"`
}

// poolEntryOf shows the i-th backend of the role.
func poolEntryOf(snap *router.Snapshot, role router.Role, i int) poolEntry {
	b := snap.Backends(role)[i]
	e := poolEntry{
		URL: b.URL, State: b.State().String(), Version: b.Version(),
		Policy: snap.Policy(role), Weight: snap.Weights(role)[i], InFlight: b.InFlight(),
	}
	left, why, nth := b.Ejection()
	if left > 0 {
		e.EjectedFor, e.EjectReason = left.Seconds(), string(why)
	}
	e.Ejections = nth
	banned, cold := snap.Partners(b)
	for o, d := range banned {
		if e.Banned == nil {
			e.Banned = map[string]float64{}
		}
		e.Banned[o.URL] = d.Seconds()
	}
	for _, o := range cold {
		e.Cold = append(e.Cold, o.URL)
	}
	return e
}

func (s *Server) adminPools(w http.ResponseWriter, _ *http.Request) {
	pools := map[string][]poolEntry{}
	snap := s.router.Snapshot()
	for _, role := range []router.Role{router.Prefill, router.Decode} {
		entries := []poolEntry{}
		for i := range snap.Backends(role) {
			entries = append(entries, poolEntryOf(snap, role, i))
		}
		pools[role.String()] = entries
	}
	writeIndented(w, pools)
}

func writeIndented(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v)
}
