// Package admin is the operators' port. Its pages only show what other packages know.
package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/pprof"
	"os"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"xpyd/admin/desk"
	"xpyd/proxy"
	"xpyd/router"
)

// Config says where the pages get what they show.
type Config struct {
	proxy.View
	Desk     *desk.Desk
	Tokens   *Tokens  // asked for, except on the pages of health; nil: none is
	Siblings []string // other processes, to which the page links
	Pprof    bool     // serve profiles too
	Control  Control
	Log      zerolog.Logger
}

// pages has the handlers of the port.
type pages struct {
	cfg    Config
	viewed desk.Stream
	host   string
}

// route is a page of the admin port, for GET and HEAD, or a change with its method before the path.
type route struct {
	path, about string // about is shown by the index
	serve       http.HandlerFunc
}

func (p *pages) routes() []route {
	routes := []route{
		{"/livez", "200 while the process answers", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) }},
		{"/readyz", "200 while completions are served, else 503", p.ready},
		{"/health", "the same", p.ready},
		{"/metrics", "metrics in Prometheus' format", p.cfg.Metrics.Handler().ServeHTTP},
		{"/pools", "the backends of all pools: state, load, ejections, bans", p.pools},
		{"/backends", "what each backend reports, and which way requests went", p.backends},
		{"/events", "the last changes of state, with their reasons; ?since=15m", p.events},
		{"/failures", "the completions that failed last, by code and engine", func(w http.ResponseWriter, _ *http.Request) { writeIndented(w, p.cfg.Desk.Failures()) }},
		{"/config", "the configuration in force, without secrets", func(w http.ResponseWriter, _ *http.Request) { writeIndented(w, p.cfg.Desk.Settings()) }},
		{"/advice", "which ratio of prefill to decode backends the traffic asks for", p.advice},
		{"/status", "what the page for browsers shows", p.status},
		{"/status/events", "the same as server-sent events", p.viewed.ServeHTTP},
	}
	if p.cfg.Control.Level != nil {
		routes = append(routes, route{"/log-level", "the level of the log", p.level})
	}
	if !p.cfg.Pprof {
		return routes
	}
	return append(routes, []route{
		{"/debug/pprof/", "profiles; those of the heap hold prompts", pprof.Index},
		{"/debug/pprof/cmdline", "", pprof.Cmdline},
		{"/debug/pprof/profile", "", pprof.Profile},
		{"/debug/pprof/symbol", "", pprof.Symbol},
		{"/debug/pprof/trace", "", pprof.Trace},
	}...)
}

// New makes the server of the operators' port. It shows health, metrics and pools, and profiles if the
// configuration opens them. Clients must not be able to reach it. The caller closes it.
func New(cfg Config) *http.Server {
	p := &pages{cfg: cfg}
	p.host, _ = os.Hostname()
	p.watch()
	mux := http.NewServeMux()
	index := "xpyd, admin port\n\n"
	for _, r := range p.routes() {
		mux.HandleFunc("GET "+r.path, r.serve)
		if r.about != "" {
			index += fmt.Sprintf("%-14s %s\n", r.path, r.about)
		}
	}
	for _, r := range p.changes() {
		mux.HandleFunc(r.path, p.guardChange(r.serve))
		index += fmt.Sprintf("%s: %s\n", r.path, r.about)
	}
	page := desk.Index()
	mux.Handle("GET "+assets, desk.Files(assets))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "Accept")
		if isBrowser(r) {
			page.ServeHTTP(w, r)
			return
		}
		_, _ = io.WriteString(w, index)
	})
	// Failed accepts and broken connections are logged in the form of the other lines.
	errors := log.New(quiet{p.cfg.Log.With().Str("level", "warn").Str("listener", "admin").Logger()}, "", 0)
	return &http.Server{Handler: p.guard(mux), TLSConfig: cfg.AdminTLS, ErrorLog: errors, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
}

// quiet drops what net/http says of connections that end before TLS has begun: balancers look at a port like that.
type quiet struct{ to io.Writer }

func (q quiet) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("TLS handshake error")) {
		for _, end := range []string{": EOF", "connection reset by peer", "i/o timeout"} {
			if bytes.HasSuffix(bytes.TrimSpace(line), []byte(end)) {
				return len(line), nil
			}
		}
	}
	return q.to.Write(line)
}

// assets is where the files of the status page are.
const assets = "/assets/"

// isBrowser reports whether the request wants a page to look at. Others get text.
func isBrowser(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }

// isOpen reports whether a request needs no token. Whoever checks the health of the process needs none.
// The status page itself says nothing, and asks for the token.
func isOpen(r *http.Request) bool {
	path := r.URL.Path
	return isHealth(path) || path == "/" && isBrowser(r) || strings.HasPrefix(path, assets)
}

func isHealth(path string) bool { return path == "/livez" || path == "/readyz" || path == "/health" }

// guardHost is the guard without a token. To a browser, a name that another site has pointed at this machine is that site,
// which could then read all pages. With TLS, the name would have to be in the certificate.
func guardHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil && !isHealth(r.URL.Path) && !namesAddress(r.Host) {
			refuse(w, http.StatusForbidden, "without admin_token a request must be sent to localhost or to an address, not to "+r.Host)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (p *pages) ready(w http.ResponseWriter, _ *http.Request) {
	ready, line := p.cfg.Ready()
	if !ready {
		w.Header().Set("Retry-After", "1")
		http.Error(w, strings.TrimSuffix(line, "\n"), http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, line)
}

// poolEntry is one backend as GET /pools shows it. Times are seconds.
type poolEntry struct {
	URL   string `json:"url"`
	State string `json:"state"` // unknown, up, down
	whyEntry
	// AdminState is ready, drain or disabled, as an operator wants it. Drained says that a backend
	// which is not ready has ended what it had.
	AdminState router.AdminState `json:"admin_state"`
	Drained    bool              `json:"drained,omitempty"`
	// BothRoles says that the engine has no role: it is in the other pool as well. State and version are those of the
	// engine, and so are the figures that it reports; the rest is of this role.
	BothRoles bool   `json:"both_roles,omitempty"`
	Version   string `json:"version,omitempty"`
	// Connector is that of the engine, where its entry names one.
	Connector string `json:"connector,omitempty"`
	// Policy is the policy of the backend's pool. Weight is the backend's share beside the others there.
	Policy   string  `json:"policy"`
	Weight   float64 `json:"weight"`
	GPUs     float64 `json:"gpus,omitempty"` // as configured
	InFlight int64   `json:"in_flight"`
	// Handles are those of its blocks that have not ended.
	Handles int64 `json:"handles,omitempty"`
	// EjectedFor is how long the backend still gets no requests, and EjectReason says why. Ejections
	// is how many it had in a row.
	EjectedFor  float64 `json:"ejected_for,omitempty"`
	EjectReason string  `json:"eject_reason,omitempty"`
	Ejections   int     `json:"ejections,omitempty"`
	// Wedged says that the engine gives nothing although it owes answers, and Slow that it works at a part of its peers' speed.
	Wedged *wedgedEntry `json:"wedged,omitempty"`
	Slow   *slowEntry   `json:"slow,omitempty"`
	// Banned are the partners that it cannot hand blocks to or take them from, with the time that each
	// ban still lasts. Cold are the partners with which it never has.
	Banned map[string]float64 `json:"banned_with,omitempty"`
	Cold   []string           `json:"cold_with,omitempty"`
}

func (p *pages) poolEntryOf(snap *router.Snapshot, a aside, m router.Member) poolEntry {
	b := m.Backend
	e := poolEntry{
		URL: b.URL, State: b.State().String(), Version: b.Version(), Connector: m.Entry.Connector,
		AdminState: m.Entry.State, BothRoles: b.Twin() != nil, Drained: b.Drained(), Handles: b.Handles(),
		Policy: snap.Policy(b.Role), Weight: m.Entry.Weight, GPUs: m.Entry.GPUs, InFlight: b.InFlight(),
	}
	left, why, nth := b.Ejection()
	if left > 0 {
		e.EjectedFor, e.EjectReason = left.Seconds(), string(why)
	}
	e.Ejections, e.whyEntry = nth, p.whyOf(a.edits, m, router.EjectReason(e.EjectReason))
	e.Wedged, e.Slow = troubleOf(&b.Trouble)
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

func (p *pages) pools(w http.ResponseWriter, _ *http.Request) {
	pools := map[string][]poolEntry{}
	snap, a := p.cfg.Router.Snapshot(), p.aside()
	for _, role := range router.Roles() {
		entries := []poolEntry{}
		for _, m := range snap.Members(role) {
			entries = append(entries, p.poolEntryOf(snap, a, m))
		}
		pools[role.String()] = entries
	}
	writeIndented(w, pools)
}

func writeIndented(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	encode(w, v)
}

func encode(w io.Writer, v any) {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v)
}
