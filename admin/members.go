package admin

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"xpyd/admin/members"
	"xpyd/router"
)

// leavingEntry is a backend that was removed, or has another role now, and still serves what it has.
type leavingEntry struct {
	URL      string `json:"url"`
	Role     string `json:"role"`
	InFlight int64  `json:"in_flight"`
	Handles  int64  `json:"handles"`
}

func (p *pages) leaving() []leavingEntry {
	all := []leavingEntry{}
	for _, b := range p.cfg.Leaving() {
		all = append(all, leavingEntry{b.URL, b.Role.String(), b.InFlight(), b.Handles()})
	}
	return all
}

// leavingURL returns the URL of the leaving backend that id names, or "". With @auto, or without a rank where ranks
// leave, it is the engine as a whole.
func (p *pages) leavingURL(id string) (url string) {
	full, err := router.BaseURL(id)
	named := func(url string) bool {
		return err == nil && full == url || strings.EqualFold(id, url[strings.Index(url, "://")+3:])
	}
	for _, b := range p.cfg.Leaving() {
		whole := router.JoinRank(b.Base(), router.AutoRank)
		switch {
		case named(whole), named(b.Base()) && b.Rank != router.NoRank:
			return whole
		case named(b.URL):
			url = b.URL
		}
	}
	return url
}

// changesEntry shows what differs from the configuration, and for how long it does.
type changesEntry struct {
	Edits  []members.Edit `json:"edits"`
	KeptIn string         `json:"kept_in,omitempty"` // the state file
	Note   string         `json:"note,omitempty"`
}

func (p *pages) changed() *changesEntry {
	if p.cfg.Control.Members == nil {
		return nil
	}
	edits, file := p.cfg.Control.Members.Edits()
	c := &changesEntry{Edits: edits, KeptIn: file}
	if edits == nil {
		c.Edits = []members.Edit{}
	}
	if file == "" {
		c.Note = "changes end with this process; set state_file to keep them"
	}
	return c
}

// outcome is the answer to a change.
type outcome struct {
	URL     string        `json:"url"`
	Backend *backendEntry `json:"backend,omitempty"` // as it is now
	// Ranks are those of an engine that says itself how many it has, in place of Backend.
	Ranks   []backendEntry `json:"ranks,omitempty"`
	Leaving *leavingEntry  `json:"leaving,omitempty"` // what it still has to end in its former role
	KeptIn  string         `json:"kept_in,omitempty"`
	Note    string         `json:"note,omitempty"`
	Warning string         `json:"warning,omitempty"`
}

// answer tells what has become of the backend.
func (p *pages) answer(w http.ResponseWriter, status int, url, warning string) {
	changed := p.changed()
	o := outcome{URL: url, KeptIn: changed.KeptIn, Note: changed.Note, Warning: warning}
	snap, a := p.cfg.Router.Snapshot(), p.aside()
	for _, role := range router.Roles() {
		for _, m := range snap.Members(role) {
			e := p.backendEntryOf(snap, a, m)
			if t := m.Twin(); t != nil && role == router.Prefill {
				continue
			} else if t != nil { // one line for both roles
				e.Role, e.InFlight, e.Handles, e.Drained = router.Both.String(), e.InFlight+t.InFlight(), t.Handles(), e.Drained && t.Drained()
			}
			switch {
			case m.URL == url:
				o.Backend = &e
			case router.PartOf(m.URL, url):
				o.Ranks = append(o.Ranks, e)
			}
		}
		if snap.Pooled(role) && len(snap.Backends(role)) == 0 {
			o.Warning = "no " + role.String() + " backend is ready"
		}
	}
	for _, l := range p.leaving() {
		if !router.PartOf(l.URL, url) || l.InFlight+l.Handles == 0 {
			continue
		}
		if o.Leaving == nil {
			o.Leaving = &leavingEntry{URL: url, Role: l.Role}
		}
		o.Leaving.InFlight += l.InFlight // of several ranks together
		o.Leaving.Handles += l.Handles
	}
	if o.Leaving != nil && o.Backend == nil && o.Ranks == nil {
		status = http.StatusAccepted // it is removed once these have ended
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	encode(w, o)
}

func (p *pages) addBackend(w http.ResponseWriter, r *http.Request) {
	var body change
	if !read(w, r, &body) {
		return
	}
	e, wrong := body.edit()
	if wrong != "" {
		refuse(w, http.StatusBadRequest, wrong)
		return
	}
	e.By = actorOf(r)
	url, err := p.cfg.Control.Members.Add(e)
	if err != nil {
		refuseChange(w, err)
		return
	}
	p.answer(w, http.StatusCreated, url, "")
}

func (p *pages) changeBackend(w http.ResponseWriter, r *http.Request) {
	var body change
	if !read(w, r, &body) {
		return
	}
	e, wrong := body.edit()
	switch {
	case wrong != "":
	case body.URL != nil:
		wrong = "url: cannot be changed; add another backend and remove this one"
	case body.GPUs != nil:
		wrong = "gpus: cannot be changed; change weight"
	case body.Bootstrap != nil:
		wrong = "bootstrap: cannot be changed; remove the backend and add it again"
	case body.Connector != nil:
		wrong = "connector: cannot be changed; remove the backend and add it again"
	}
	if wrong != "" {
		refuse(w, http.StatusBadRequest, wrong)
		return
	}
	e.By = actorOf(r)
	url, err := p.cfg.Control.Members.Change(r.PathValue("id"), e)
	if err != nil {
		refuseChange(w, err)
		return
	}
	warning := ""
	if e.Role != "" {
		warning = "an engine serves another role than it was started for only if it runs with kv_role kv_both"
	}
	p.answer(w, http.StatusOK, url, warning)
}

func (p *pages) removeBackend(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	force, err := switched(r.URL.Query(), "force")
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	url, err := p.cfg.Control.Members.Remove(id, actorOf(r))
	var refused *members.Error
	if errors.As(err, &refused) && refused.Kind == members.Unknown {
		if left := p.leavingURL(id); left != "" { // removed before, and perhaps to be forced now
			url, err = left, nil
		}
	}
	if err != nil {
		refuseChange(w, err)
		return
	}
	if force {
		for _, b := range p.cfg.Leaving() {
			if router.PartOf(b.URL, url) {
				b.Abandon()
			}
		}
	}
	p.answer(w, http.StatusOK, url, "")
}

// switched reads a switch of a query, which is on if it stands there alone.
func switched(query url.Values, name string) (on bool, err error) {
	words, given := query[name]
	if !given || words[len(words)-1] == "" {
		return given, nil
	}
	if on, err = strconv.ParseBool(words[len(words)-1]); err != nil {
		return false, fmt.Errorf("%s: %q must be true or false", name, words[len(words)-1])
	}
	return on, nil
}
