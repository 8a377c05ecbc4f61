package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"reflect"
	"strings"

	"xpyd/admin/members"
	"xpyd/engines/journal"
	"xpyd/internal/nearest"
	"xpyd/router"
)

// Control is what the port can change. A nil member means that this process cannot.
type Control struct {
	Members *members.Set
	Reload  func(ctx context.Context, by string) error // reads the configuration again
	// Adapters loads an adapter on the engines, or unloads it, and counts those that did.
	Adapters func(ctx context.Context, name, path, model string) (done any, well, of int, err error)
	// Level and SetLevel are both set or both nil. They are about the level of the log.
	Level    func() string
	SetLevel func(string) error
}

// mostBody bounds the body of a change, in bytes.
const mostBody = 64 << 10

// changes are the routes that change something.
func (p *pages) changes() []route {
	c := p.cfg.Control
	var all []route
	if c.Members != nil {
		all = append(all,
			route{"POST /backends", "adds a backend", p.addBackend},
			route{"PATCH /backends/{id}", "changes state, weight or role of a backend", p.changeBackend},
			route{"DELETE /backends/{id}", "removes a backend once its requests have ended; ?force does not wait", p.removeBackend},
		)
	}
	if c.Adapters != nil {
		all = append(all, p.adapterChanges()...)
	}
	if c.Reload != nil {
		all = append(all, route{"POST /reload", "reads the configuration again, as HUP does", p.reload})
	}
	if c.SetLevel != nil {
		all = append(all, route{"PUT /log-level", "changes the level of the log", p.setLevel})
	}
	return all
}

// guardChange lets no web page change anything with the browser of an operator. A form or a script of
// another site can send neither JSON nor PATCH, PUT and DELETE without asking first, and nobody grants
// that. A name that another site has pointed at this machine passes for the same site, see guardHost.
func (p *pages) guardChange(next http.HandlerFunc) http.HandlerFunc {
	var site http.CrossOriginProtection
	return func(w http.ResponseWriter, r *http.Request) {
		if err := site.Check(r); err != nil {
			refuse(w, http.StatusForbidden, "a page of another site may not change anything")
			return
		}
		if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); r.Method != http.MethodDelete && kind != "application/json" {
			refuse(w, http.StatusUnsupportedMediaType, "send the header Content-Type: application/json")
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, mostBody)
		next(w, r)
	}
}

// namesAddress reports whether the host of a request is an address or localhost, or, of a client that is no browser,
// absent.
func namesAddress(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return host == "" || host == "localhost" || net.ParseIP(strings.Trim(host, "[]")) != nil
}

// refuse answers with an error.
func refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": text})
}

// refuseChange answers with the error of a change.
func refuseChange(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	var refused *members.Error
	if errors.As(err, &refused) {
		status = map[members.Kind]int{
			members.Wrong: http.StatusBadRequest, members.Unknown: http.StatusNotFound,
			members.Conflict: http.StatusConflict, members.Later: http.StatusServiceUnavailable,
		}[refused.Kind]
	}
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	refuse(w, status, err.Error())
}

// change is the body of a POST or a PATCH.
type change struct {
	URL    *string  `json:"url"`
	Role   *string  `json:"role"`
	State  *string  `json:"state"`
	Weight *float64 `json:"weight"`
	GPUs   *float64 `json:"gpus"`
	// Bootstrap is the port of a bootstrap server beside the engine.
	Bootstrap *int `json:"bootstrap"`
	// Connector is that of the engine, where it is not the configured one.
	Connector *string `json:"connector"`
}

// edit returns what the body asks for. Text and numbers that mean "as configured" to an Edit are
// refused, as the sender means something else.
func (c change) edit() (e members.Edit, wrong string) {
	for _, text := range []struct {
		name string
		is   *string
	}{{"url", c.URL}, {"role", c.Role}, {"state", c.State}, {"connector", c.Connector}} {
		if text.is != nil && *text.is == "" {
			return e, text.name + ": is empty; leave it out or give a value"
		}
	}
	for _, number := range []struct {
		name string
		is   *float64
	}{{"weight", c.Weight}, {"gpus", c.GPUs}} {
		if number.is != nil && *number.is == 0 {
			return e, number.name + ": must be above 0; state drain takes all requests off a backend"
		}
	}
	if c.Bootstrap != nil && *c.Bootstrap == 0 {
		return e, "bootstrap: 0 must be a port from 1 to 65535"
	}
	return members.Edit{
		URL: valueOf(c.URL), Role: valueOf(c.Role), State: router.AdminState(valueOf(c.State)), Weight: valueOf(c.Weight), GPUs: valueOf(c.GPUs),
		Bootstrap: valueOf(c.Bootstrap), Connector: valueOf(c.Connector),
	}, ""
}

func valueOf[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// read decodes the body of a request. It answers and returns false if that cannot be done.
func read(w http.ResponseWriter, r *http.Request, into any) bool {
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	if err == nil && dec.Decode(&struct{}{}) != io.EOF {
		err = errors.New("one object only")
	}
	if err == nil {
		return true
	}
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		refuse(w, http.StatusRequestEntityTooLarge, "the body is too large")
		return false
	}
	text := "the body must be a JSON object: " + strings.TrimPrefix(err.Error(), "json: ")
	if _, name, ok := strings.Cut(err.Error(), "unknown field "); ok {
		if near := nearest.Name(strings.Trim(name, `"`), fieldsOf(into)); near != "" {
			text += "; the nearest is " + near
		}
	}
	refuse(w, http.StatusBadRequest, text)
	return false
}

// fieldsOf lists the members that the object may have.
func fieldsOf(into any) (names []string) {
	t := reflect.TypeOf(into).Elem()
	for i := range t.NumField() {
		names = append(names, t.Field(i).Tag.Get("json"))
	}
	return names
}

// level is the body of PUT /log-level, and the answer.
type level struct {
	Level string `json:"level"`
}

func (p *pages) setLevel(w http.ResponseWriter, r *http.Request) {
	var to level
	if !read(w, r, &to) {
		return
	}
	if err := p.cfg.Control.SetLevel(to.Level); err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	p.cfg.Journal.Tell(p.cfg.Log.Info(), journal.Event{Kind: journal.LogLevel, Text: "the level of the log is changed", Change: p.cfg.Control.Level(), By: actorOf(r)})
	p.level(w, r)
}

func (p *pages) level(w http.ResponseWriter, _ *http.Request) {
	writeIndented(w, level{p.cfg.Control.Level()})
}

func (p *pages) reload(w http.ResponseWriter, r *http.Request) {
	if err := p.cfg.Control.Reload(r.Context(), actorOf(r)); err != nil {
		refuse(w, http.StatusConflict, err.Error())
		return
	}
	writeIndented(w, map[string]bool{"reloaded": true})
}

// adapter is the body of PUT /adapters/{name}.
type adapter struct {
	Path  string `json:"path"`
	Model string `json:"model"`
}

// adapterChanges are the routes that change adapters.
func (p *pages) adapterChanges() []route {
	return []route{
		{"PUT /adapters/{name}", "loads a LoRA adapter on all engines of a model", p.loadAdapter},
		{"DELETE /adapters/{name}", "unloads it; ?model=", p.unloadAdapter},
	}
}

func (p *pages) loadAdapter(w http.ResponseWriter, r *http.Request) {
	var to adapter
	if !read(w, r, &to) {
		return
	}
	if to.Path == "" {
		refuse(w, http.StatusBadRequest, "path: is empty; give the adapter's folder, as the engines see it")
		return
	}
	p.setAdapter(w, r, to, "loaded")
}

func (p *pages) unloadAdapter(w http.ResponseWriter, r *http.Request) {
	p.setAdapter(w, r, adapter{Model: r.URL.Query().Get("model")}, "unloaded")
}

func (p *pages) setAdapter(w http.ResponseWriter, r *http.Request, to adapter, what string) {
	// Half of the engines with an adapter are worse than what the caller asked for, so its leaving ends nothing.
	done, well, of, err := p.cfg.Control.Adapters(context.WithoutCancel(r.Context()), r.PathValue("name"), to.Path, to.Model)
	if err != nil {
		refuse(w, http.StatusConflict, err.Error())
		return
	}
	answer := map[string]any{"engines": done}
	if well == 0 {
		answer["error"] = fmt.Sprintf("%s is %s on 0 of %d engines; engines has each one's reason", r.PathValue("name"), what, of)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadGateway)
		encode(w, answer)
		return
	}
	text := "an adapter is " + what
	if well < of {
		text = fmt.Sprintf("%s on %d of %d engines", text, well, of)
	}
	p.cfg.Journal.Tell(p.cfg.Log.Info(), journal.Event{Kind: journal.Adapter, Text: text, Change: r.PathValue("name"), By: actorOf(r)})
	writeIndented(w, answer)
}
