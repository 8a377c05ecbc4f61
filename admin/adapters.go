package admin

import (
	"context"
	"net/http"

	"xpyd/engines/journal"
)

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
	p.setAdapter(w, r, to, "an adapter is loaded")
}

func (p *pages) unloadAdapter(w http.ResponseWriter, r *http.Request) {
	p.setAdapter(w, r, adapter{Model: r.URL.Query().Get("model")}, "an adapter is unloaded")
}

func (p *pages) setAdapter(w http.ResponseWriter, r *http.Request, to adapter, what string) {
	// Half of the engines with an adapter are worse than what the caller asked for, so its leaving ends nothing.
	done, err := p.cfg.Control.Adapters(context.WithoutCancel(r.Context()), r.PathValue("name"), to.Path, to.Model)
	if err != nil {
		refuse(w, http.StatusConflict, err.Error())
		return
	}
	p.cfg.Journal.Tell(p.cfg.Log.Info(), journal.Event{Kind: journal.Adapter, Text: what, Change: r.PathValue("name"), By: actorOf(r)})
	writeIndented(w, map[string]any{"engines": done})
}
