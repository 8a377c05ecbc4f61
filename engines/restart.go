package engines

import (
	"bytes"
	"time"

	"xpyd/engines/journal"
	"xpyd/netio"
	"xpyd/router"
)

// Seen notices from the id in an engine's handles that the engine has restarted. It then clears the
// failures from before the restart.
func (s *Set) Seen(b *router.Backend, id []byte) {
	e := s.get(b)
	if e == nil {
		return
	}
	id = withoutRank(id)
	if old := e.id.Load(); len(id) == 0 || old != nil && *old == string(id) {
		return
	}
	e.restart.Lock() // two answers may tell of one restart
	defer e.restart.Unlock()
	old := e.id.Load()
	if old != nil && *old == string(id) {
		return
	}
	fresh := string(id)
	if old != nil {
		b.Restarted(time.Now()) // first, so that the handles of the new id are younger
	}
	if e.id.Store(&fresh); old != nil {
		if b.Engine() == nil { // otherwise its metrics tell
			s.Journal.Tell(s.cfg.Log.Info(), journal.About(b, journal.Restarted, "prefill engine has restarted"))
		}
		s.startsAnew(b)
	}
}

// startsAnew forgets how b's engine failed before it was started again, and has its version read again.
func (s *Set) startsAnew(b *router.Backend) {
	b.Reset()
	for _, x := range rolesOf(b) {
		e := s.get(x)
		if e == nil {
			continue
		}
		e.refusals.forget()
		e.used.Store(nil)
		s.media.forget(x)
		s.warm.cold(x, true)
		e.outdated.Store(true)
	}
	s.checkNow(b)
}

// restarted is startsAnew for an engine whose metrics show that it was started again. A prefill engine that names itself
// in its handles has that in Seen, where handles end with it.
func (s *Set) restarted(b *router.Backend) {
	e := s.get(b)
	if e == nil {
		return
	}
	s.Journal.Tell(s.cfg.Log.Info(), journal.About(b, journal.Restarted, "engine has restarted"))
	if b.Role == router.Prefill && s.dialect(b).HandleInAnswer() {
		e.outdated.Store(true)
		s.checkNow(b)
		return
	}
	s.startsAnew(b)
}

// withoutRank cuts _dp<rank> off. A vLLM with several data parallel ranks answers with the id of
// the rank that computed.
func withoutRank(id []byte) []byte {
	if i := bytes.LastIndex(id, []byte("_dp")); i > 0 && netio.AllDigits(id[i+3:]) {
		return id[:i]
	}
	return id
}
