package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"xpyd/admin/desk"
	"xpyd/router"
)

// statusEntry is the answer to GET /status, and what the status page shows of one moment.
type statusEntry struct {
	Time    float64 `json:"time"` // Unix seconds
	Started float64 `json:"started"`
	Version string  `json:"version"`
	Host    string  `json:"host"` // the name of the machine
	// Siblings are the admin ports of other processes of the service, as configured.
	Siblings []string `json:"siblings,omitempty"`
	// LastEvent is the number of the last event of /events.
	LastEvent uint64 `json:"last_event"`
	Ready     bool   `json:"ready"`
	Line      string `json:"line"` // of /readyz
	// Notices are what an operator should know, the worst first.
	Notices  []notice         `json:"notices"`
	Running  int64            `json:"running"` // completions
	Queued   map[string]int64 `json:"queued"`  // by role
	KV       kvEntry          `json:"kv"`
	Backends []backendEntry   `json:"backends"`
	Pairs    []pairEntry      `json:"pairs"`
	Advice   adviceEntry      `json:"advice"`
	desk.Account
	unkept error // see members.Set
}

// kvEntry counts KV blocks on prefill engines.
type kvEntry struct {
	Pinned   float64 `json:"pinned"`   // of handles that have not ended
	Stranded float64 `json:"stranded"` // that wait for the end of their lease
}

// pairEntry counts the transfers of a pair since both backends have been in the pools.
type pairEntry struct {
	Prefill   string `json:"prefill"`
	Decode    string `json:"decode"`
	Transfers int64  `json:"transfers"` // that worked
	Failures  int64  `json:"failures"`
}

// pairEntries returns the pairs that had a transfer. Beyond 1,024 pairs some are missing.
func pairEntries(rt *router.Router) []pairEntry {
	all := []pairEntry{}
	for _, t := range rt.Pairs().Transfers() {
		if t.Prefill != nil { // otherwise it is the sum of those beyond
			all = append(all, pairEntry{t.Prefill.URL, t.Decode.URL, t.OK, t.Failed})
		}
	}
	return all
}

func (p *pages) statusNow() statusEntry {
	snap, a := p.cfg.Router.Snapshot(), p.aside()
	ready, line := p.cfg.Ready()
	s := statusEntry{
		Time: unix(time.Now()), Started: unix(p.cfg.Desk.Started), Version: p.cfg.Desk.Version, Host: p.host, Siblings: p.cfg.Siblings, LastEvent: p.cfg.Journal.Last(), Ready: ready, Line: strings.TrimSpace(line),
		Running: p.cfg.Running(), Queued: map[string]int64{}, KV: kvEntry{p.cfg.Pinned(), p.cfg.Stranded()},
		Backends: []backendEntry{}, Pairs: pairEntries(p.cfg.Router), Advice: p.adviceNow(snap), Account: p.cfg.Desk.Account(),
	}
	for _, role := range router.Roles() {
		s.Queued[role.String()] = p.cfg.Router.Queued(role)
		for _, m := range snap.Members(role) {
			s.Backends = append(s.Backends, p.backendEntryOf(snap, a, m))
		}
	}
	if p.cfg.Control.Members != nil {
		s.unkept = p.cfg.Control.Members.Unkept()
	}
	s.Notices = notices(&s, snap)
	return s
}

func unix(t time.Time) float64 { return float64(t.UnixMilli()) / 1e3 }

func (p *pages) status(w http.ResponseWriter, _ *http.Request) { writeIndented(w, p.statusNow()) }

// These are the terms of the status page's stream.
const (
	viewEvery    = time.Second
	viewPatience = 10 * time.Second
	viewers      = 64
	plotTicks    = 5 // a step of the plots takes as long
)

// watch sets up the stream of the status page.
func (p *pages) watch() {
	p.viewed.Every, p.viewed.Patience, p.viewed.Viewers, p.viewed.Over = viewEvery, viewPatience, viewers, p.cfg.Retiring
	p.viewed.First = func() []byte { return p.plots(p.state(nil)) }
	p.viewed.Next = p.next
}

// next makes the events of a tick. It runs outside any handler, where a panic would end the process.
func (p *pages) next(tick int) (events []byte) {
	defer func() {
		if v := recover(); v != nil {
			p.cfg.Log.Error().Str("panic", fmt.Sprintf("%.200v", v)).Msg("the status page's events could not be made")
			events = nil
		}
	}()
	events = p.state(nil)
	if tick%plotTicks == 0 {
		events = p.plots(events)
	}
	return events
}

func (p *pages) state(b []byte) []byte { return appendEvent(b, "state", p.statusNow()) }
func (p *pages) plots(b []byte) []byte { return appendEvent(b, "plots", p.cfg.Desk.Plots()) }

// appendEvent appends a server-sent event with v as JSON.
func appendEvent(b []byte, name string, v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("BUG: %s is no JSON: %v", name, err))
	}
	return fmt.Appendf(b, "event: %s\ndata: %s\n\n", name, data)
}
