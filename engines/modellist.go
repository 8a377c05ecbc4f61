package engines

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"xpyd/router"
)

// modelList is an answer of vLLM's /v1/models. Entries stay as the engine wrote them.
type modelList struct {
	Object string            `json:"object"`
	Data   []json.RawMessage `json:"data"`

	at time.Time // when the engine sent it; zero in an answer of xpyd's own
}

func (l *modelList) ids() (ids []string) {
	for _, m := range l.Data {
		if id := modelID(m); id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

// longest is the most tokens that a prompt and its answer may have together, or 0 if the list does not say it. An adapter
// has the length of its base model, and vLLM does not repeat it.
func (l *modelList) longest() (n int) {
	for _, raw := range l.Data {
		var m struct {
			Most int `json:"max_model_len"`
		}
		if json.Unmarshal(raw, &m) == nil {
			n = max(n, m.Most)
		}
	}
	return n
}

func modelID(raw json.RawMessage) string {
	var m struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(raw, &m)
	return m.ID
}

// addModels adds to the list of one decode backend the models that only others serve.
func (s *Set) addModels(list []json.RawMessage) []json.RawMessage {
	snap := s.cfg.Router.Snapshot()
	if !snap.Mixed(router.Decode) {
		return list
	}
	list = slices.Clip(list) // others make their answers of it too
	listed := map[string]bool{}
	for _, m := range list {
		listed[modelID(m)] = true
	}
	for _, b := range snap.Backends(router.Decode) {
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

// maxModelsLogged bounds the length of a log line, as an engine may have hundreds of adapters.
const maxModelsLogged = 16

// logged is what the log has last said of something that is wrong. It is empty if nothing is.
type logged struct {
	sync.Mutex
	text string
}

// compareModels warns when only one pool lists some models, and says when that is over. It happens
// after a mistake in a name, or when an adapter is loaded on only some of the engines.
func (s *Set) compareModels() {
	s.oneSided.Lock()
	defer s.oneSided.Unlock()
	snap := s.cfg.Router.Snapshot()
	onlyDecode, onlyPrefill := snap.OneSided(router.Decode), snap.OneSided(router.Prefill)
	text := ""
	if len(onlyDecode)+len(onlyPrefill) > 0 {
		text = fmt.Sprintf("%q %q", onlyDecode, onlyPrefill)
	}
	if text == s.oneSided.text || text == "" && !snap.ModelsKnown() {
		return // the models of a backend that has just joined are not known, so it is not over
	}
	s.oneSided.text = text
	if text == "" {
		s.cfg.Log.Info().Msg("prefill and decode backends list the same models")
		return
	}
	what := "served without a prefill"
	if !s.DecodeAlone() && snap.Splits() {
		what = "refused by prefill"
	}
	s.cfg.Log.Warn().Strs("only_decode", firstModels(onlyDecode)).Strs("only_prefill", firstModels(onlyPrefill)).
		Msg("models listed by only one pool: those of decode are " + what + ", those of prefill not served at all")
}

func firstModels(ids []string) []string {
	if more := len(ids) - maxModelsLogged; more > 0 {
		return append(ids[:maxModelsLogged:maxModelsLogged], fmt.Sprintf("%d more", more))
	}
	return ids
}

// relistAfter is the least age of a list that ModelMissed has read again.
const relistAfter = 2 * time.Second

// ModelMissed has the lists of models read again, because no engine for the model of a request was found. An adapter may
// have been loaded or unloaded since the lists were read.
func (s *Set) ModelMissed() {
	for _, e := range s.all() {
		if list := e.models.Load(); list != nil && time.Since(list.at) >= relistAfter && !e.unlisted.Swap(true) {
			signal(e.wake)
		}
	}
}

// Relist makes the next check of b read its list of models again.
func (s *Set) Relist(b *router.Backend) {
	if e := s.get(b); e != nil {
		e.models.Store(&modelList{})
	}
}
