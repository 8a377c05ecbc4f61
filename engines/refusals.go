package engines

import (
	"sync"

	"xpyd/kvparams"
	"xpyd/router"
)

// refusals is what a prefill engine has refused because of its flags, and a decode engine has then answered. It holds
// until the engine comes up again, perhaps with other flags.
type refusals struct {
	mu     sync.Mutex
	traits kvparams.Trait  // requests with one of them are refused
	told   map[string]bool // flags that the log has named
}

// Refuses reports whether b is known to refuse requests with one of the traits.
func (s *Set) Refuses(b *router.Backend, traits kvparams.Trait) bool {
	e := s.get(b)
	if e == nil {
		return false
	}
	e.refusals.mu.Lock()
	defer e.refusals.mu.Unlock()
	return e.refusals.traits&traits != 0
}

// Refused notes that b refuses requests with the traits, and logs once which flag it lacks. flag is empty if the engine
// did not say it.
func (s *Set) Refused(b *router.Backend, traits kvparams.Trait, flag string) {
	e := s.get(b)
	if e == nil {
		return
	}
	r := &e.refusals
	r.mu.Lock()
	defer r.mu.Unlock()
	r.traits |= traits
	if r.told[flag] {
		return
	}
	if r.told == nil {
		r.told = map[string]bool{}
	}
	r.told[flag] = true
	s.cfg.Log.Warn().Str("prefill", b.URL).Str("flag", flag).
		Msg("prefill engine refuses what a decode engine answers, so decode serves it alone; start prefill engines with the same flags as decode engines")
}

// forget has the engine asked anew.
func (r *refusals) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.traits, r.told = 0, nil
}
