package proxy

import (
	"fmt"
	"sync"

	"xpyd/router"
)

// maxModelsLogged bounds a line: an engine may have hundreds of adapters.
const maxModelsLogged = 16

// oneSided is the models that one pool lists, as last logged; empty: none.
type oneSided struct {
	sync.Mutex
	logged string
}

// compareModels warns when models come to be listed by one pool alone, which is what a wrong
// name or an adapter loaded on a part of the engines looks like, and says when that is over.
func (s *Server) compareModels() {
	s.oneSided.Lock()
	defer s.oneSided.Unlock()
	snap := s.router.Snapshot()
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
		s.log.Info().Msg("prefill and decode backends list the same models")
		return
	}
	what := "served without a prefill"
	if !s.decodeAlone() && snap.Splits() {
		what = "refused by prefill"
	}
	s.log.Warn().Strs("only_decode", firstModels(onlyDecode)).Strs("only_prefill", firstModels(onlyPrefill)).
		Msg("models that backends of one pool only list: those of decode are " + what + ", those of prefill not served at all")
}

func firstModels(ids []string) []string {
	if more := len(ids) - maxModelsLogged; more > 0 {
		return append(ids[:maxModelsLogged:maxModelsLogged], fmt.Sprintf("%d more", more))
	}
	return ids
}
