package engines

import (
	"sync"

	"xpyd/engines/journal"
	"xpyd/router"
)

// outage holds whether decode engines compute all prompts because no engine of the prefill pool is
// up. Its start and its end are logged once each.
type outage struct {
	mu sync.Mutex
	on bool
}

// Outage reports whether decode engines compute all prompts because no prefill engine is up.
func (s *Set) Outage() bool { return s.Judged() && s.StandsIn() && s.cfg.Router.Snapshot().Outage() }

// Judged reports whether the first checks have shown which prefill engines serve. It stays true from then
// on. Before that, requests would go to engines that may not serve, or past engines that do.
func (s *Set) Judged() bool {
	if !s.judged.Load() && !s.cfg.Router.Snapshot().Unjudged() {
		s.judged.Store(true)
	}
	return s.judged.Load()
}

// StandsIn reports whether a decode engine may compute a prompt that should have had a prefill.
func (s *Set) StandsIn() bool { return s.DecodeAlone() && s.cfg.MaxShare > 0 }

// LookForOutage checks for an outage. Call it after a check of a backend, or when the pools have changed.
func (s *Set) LookForOutage() {
	o := &s.outage
	o.mu.Lock()
	defer o.mu.Unlock()
	now := s.Outage()
	switch {
	case now == o.on:
		return
	case now && s.cfg.Router.Snapshot().Withdrawn(router.Prefill):
		s.Journal.Tell(s.cfg.Log.Warn(), journal.Event{Kind: journal.Degraded, Text: "all prefill engines are drained or disabled: decode engines compute the prompts"})
	case now:
		s.Journal.Tell(s.cfg.Log.Error(), journal.Event{Kind: journal.Degraded, Text: "no prefill engine is up: decode engines compute the prompts"})
	default:
		s.Journal.Tell(s.cfg.Log.Warn(), journal.Event{Kind: journal.Restored, Text: "the outage of the prefill pool is over"})
	}
	o.on = now
}

// DecodeAlone reports whether the configuration and a connector let a decode engine compute a prompt
// when no prefill is available.
func (s *Set) DecodeAlone() bool { return s.cfg.DecodeOnly && s.cfg.Router.Snapshot().StandAlone(nil) }
