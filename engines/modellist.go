package engines

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"xpyd/router"
)

// modelList is vLLM's /v1/models. Entries stay as the engine wrote them.
type modelList struct {
	Object string            `json:"object"`
	Data   []json.RawMessage `json:"data"`

	at time.Time // when the engine said so; zero in an answer of ours
}

func (l *modelList) ids() (ids []string) {
	for _, m := range l.Data {
		if id := modelID(m); id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

func modelID(raw json.RawMessage) string {
	var m struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(raw, &m)
	return m.ID
}

// intersect keeps a's entries whose id stands in b too.
func intersect(a, b []json.RawMessage) []json.RawMessage {
	ids := map[string]bool{}
	for _, m := range b {
		ids[modelID(m)] = true
	}
	both := []json.RawMessage{}
	for _, m := range a {
		if ids[modelID(m)] {
			both = append(both, m)
		}
	}
	return both
}

// addModels adds to the list of one backend what others of the pool serve beside that.
func (s *Set) addModels(role router.Role, list []json.RawMessage) []json.RawMessage {
	snap := s.cfg.Router.Snapshot()
	if !snap.Mixed(role) {
		return list
	}
	listed := map[string]bool{}
	for _, m := range list {
		listed[modelID(m)] = true
	}
	for _, b := range snap.Backends(role) {
		e := s.get(b)
		if e == nil || e.models.Load() == nil || b.State() == router.Down {
			continue
		}
		for _, m := range e.models.Load().Data {
			if id := modelID(m); !listed[id] {
				listed[id] = true
				list = append(list, m)
			}
		}
	}
	return list
}

// maxModelsLogged bounds a line: an engine may have hundreds of adapters.
const maxModelsLogged = 16

// oneSided is the models that one pool lists, as last logged; empty: none.
type oneSided struct {
	sync.Mutex
	logged string
}

// compareModels warns when models come to be listed by one pool alone, which is what a wrong
// name or an adapter loaded on a part of the engines looks like, and says when that is over.
func (s *Set) compareModels() {
	s.oneSided.Lock()
	defer s.oneSided.Unlock()
	snap := s.cfg.Router.Snapshot()
	onlyDecode, onlyPrefill := snap.OneSided(router.Decode), snap.OneSided(router.Prefill)
	text := ""
	if len(onlyDecode)+len(onlyPrefill) > 0 {
		text = fmt.Sprintf("%q %q", onlyDecode, onlyPrefill)
	}
	if text == s.oneSided.logged || text == "" && !snap.ModelsKnown() {
		return // a backend that has just joined does not end it
	}
	s.oneSided.logged = text
	if text == "" {
		s.cfg.Log.Info().Msg("prefill and decode backends list the same models")
		return
	}
	what := "served without a prefill"
	if !s.DecodeAlone() && snap.Splits() {
		what = "refused by prefill"
	}
	s.cfg.Log.Warn().Strs("only_decode", firstModels(onlyDecode)).Strs("only_prefill", firstModels(onlyPrefill)).
		Msg("models that backends of one pool only list: those of decode are " + what + ", those of prefill not served at all")
}

func firstModels(ids []string) []string {
	if more := len(ids) - maxModelsLogged; more > 0 {
		return append(ids[:maxModelsLogged:maxModelsLogged], fmt.Sprintf("%d more", more))
	}
	return ids
}

// Relist has the next check of b read anew which models it serves.
func (s *Set) Relist(b *router.Backend) {
	if e := s.get(b); e != nil {
		e.models.Store(&modelList{})
	}
}
