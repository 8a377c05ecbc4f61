package proxy

import (
	"fmt"

	"xpyd/router"
)

// maxModelsLogged bounds a line: an engine may have hundreds of adapters.
const maxModelsLogged = 16

// compareModels warns when models come to be listed by one pool alone, which is what a wrong
// name or an adapter loaded on a part of the engines looks like, and says when that is over.
func (s *Server) compareModels() {
	snap := s.router.Snapshot()
	onlyDecode, onlyPrefill := snap.OneSided(router.Decode), snap.OneSided(router.Prefill)
	text := fmt.Sprintf("%q %q", onlyDecode, onlyPrefill)
	old := s.oneSided.Swap(&text)
	same, none := old != nil && *old == text, len(onlyDecode)+len(onlyPrefill) == 0
	if same || none && old == nil {
		return
	}
	if none {
		s.log.Info().Msg("prefill and decode backends list the same models")
		return
	}
	s.log.Warn().Strs("only_decode", firstModels(onlyDecode)).Strs("only_prefill", firstModels(onlyPrefill)).
		Msg("models that backends of one pool only list: those of decode are served without a prefill, those of prefill not at all")
}

func firstModels(ids []string) []string {
	if more := len(ids) - maxModelsLogged; more > 0 {
		return append(ids[:maxModelsLogged:maxModelsLogged], fmt.Sprintf("%d more", more))
	}
	return ids
}
