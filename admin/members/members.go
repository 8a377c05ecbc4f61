package members

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"xpyd/engines/journal"
	"xpyd/internal/nearest"
	"xpyd/router"
)

// Set is what is in force: the pools of the configuration, and the edits.
type Set struct {
	file string // keeps the edits; empty: the process does
	fits func(router.Config) error
	log  zerolog.Logger

	mu     sync.Mutex
	put    func(router.Config) error // see Bind
	told   *journal.Journal          // see Bind
	base   router.Config             // as configured
	effect                           // in force; its edits are those that are kept
	ranks  map[string]int            // see ranksOf; each poll asks for one
	held   bool
	// said are the engines that have said themselves how many ranks they have, with that number. It is read without mu,
	// which a change holds while the state file is written, and that may take long.
	said atomic.Pointer[map[string]int]
	// shown are the edits that are kept. They are read without mu for the same reason.
	shown atomic.Pointer[[]Edit]
	// unkept says why the last change that should have been kept was not. It is read without mu for the same reason.
	unkept atomic.Pointer[error]
}

// Open reads the edits of the state file, if there is one, and puts them on the configured pools. It
// changes nothing, but refuses a file that Keep could not write. Keep and Bind must follow before anything changes. fits says why pools may not be in
// force together with the rest of the configuration, or returns nil.
func Open(base router.Config, file string, fits func(router.Config) error, log zerolog.Logger) (*Set, error) {
	s := &Set{file: file, fits: fits, log: log}
	var edits []Edit
	if file != "" {
		var err error
		if edits, err = load(file); err != nil {
			return nil, err
		}
	}
	p := apply(base, edits, nil)
	if !decodes(p.now) && decodes(base) {
		return nil, conflict("state_file: %q leaves no decode backend; move it away to start without run-time changes", file)
	}
	if err := s.fitting(p); err != nil {
		return nil, conflict("state_file: the changes in %q do not fit the configuration: %v; correct one of them, or move the file away to start without run-time changes", file, err)
	}
	s.base, s.effect, s.ranks = base, p, ranksOf(p.now)
	s.shown.Store(&p.edits)
	return s, nil
}

// Keep writes the state file for the first time, without the edits that do not apply any more. It is
// for a process that can start: one that cannot leaves the file to the process that runs, whose
// configuration may be another. It writes a file that has not changed, too, because a change must be
// possible when an operator needs it. A process that serves on after a hand-over has failed calls it
// again.
func (s *Set) Keep() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == "" {
		return nil
	}
	if err := save(s.file, s.edits); err != nil {
		return err
	}
	s.tell(s.dropped)
	s.dropped = nil
	return nil
}

// Bind sets what puts changed pools in force, or fails and changes nothing, and what is told of changes.
func (s *Set) Bind(put func(router.Config) error, told *journal.Journal) { s.put, s.told = put, told }

// Config returns the configuration that is in force.
func (s *Set) Config() router.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// Edits returns what operators have changed, and the file that keeps it, or "" if the changes end
// with the process.
func (s *Set) Edits() (edits []Edit, file string) {
	if edits := s.shown.Load(); edits != nil {
		return slices.Clone(*edits), s.file
	}
	return nil, s.file
}

// Hold refuses changes while a successor starts, which has read the state file already.
func (s *Set) Hold(held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = held
}

// Rebase puts another configuration in force by put, with the edits that still apply to it.
func (s *Set) Rebase(base router.Config, put func(router.Config) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := apply(base, s.edits, s.ranks)
	if !decodes(next.now) && decodes(base) {
		return conflict("the run-time changes leave no decode backend of the new configuration; undo them first")
	}
	if err := s.fitting(next); err != nil {
		return conflict("the run-time changes do not fit the new configuration; undo them first: %v", err)
	}
	if err := s.force(next, put); err != nil {
		return err
	}
	s.base = base
	s.tell(next.dropped)
	return nil
}

func (s *Set) tell(dropped []string) {
	for _, why := range dropped {
		s.log.Warn().Str("edit", why).Msg("a run-time change is dropped")
	}
}

// fitting says why next may not be in force. Without edits it is what the configuration has checked itself.
func (s *Set) fitting(next effect) error {
	if len(next.edits) == 0 {
		return nil
	}
	return s.fits(next.now)
}

// force keeps the edits and puts the pools in force, or does neither. After a failure it tries the file at each change, as
// one that changes no edit finds out too that the file can be written again. Called under mu.
func (s *Set) force(next effect, put func(router.Config) error) error {
	edited := s.file != "" && !slices.Equal(next.edits, s.edits)
	if edited || s.Unkept() != nil {
		err := save(s.file, next.edits)
		if s.noteKept(err); err != nil && edited {
			return err
		}
	}
	if err := s.enforce(next, put); err != nil {
		if edited {
			_ = save(s.file, s.edits)
		}
		return err
	}
	return nil
}

// Unkept says why the last change was refused that the state file should have kept, or nil.
func (s *Set) Unkept() error {
	if err := s.unkept.Load(); err != nil {
		return *err
	}
	return nil
}

// noteKept tells once that the state file cannot be written, and once that it can again. Called under mu.
func (s *Set) noteKept(err error) {
	event := journal.Event{Kind: journal.StateFile, Text: "state_file cannot be written: changes are refused"}
	switch was := s.Unkept(); {
	case err != nil && was == nil:
		event.Reason = err.Error()
		s.told.Tell(s.log.Error(), event)
	case err == nil && was != nil:
		event.Text = "state_file is written again"
		s.told.Tell(s.log.Info(), event)
	}
	if s.unkept.Store(nil); err != nil {
		s.unkept.Store(&err)
	}
}

// enforce puts the pools in force, and with them what is known of ranks. Called under mu.
func (s *Set) enforce(next effect, put func(router.Config) error) error {
	if err := put(next.now); err != nil {
		return err
	}
	s.effect, s.ranks = next, ranksOf(next.now)
	s.shown.Store(&next.edits)
	s.forget()
	return nil
}

// Add puts a backend into a pool and returns its URL.
func (s *Set) Add(e Edit) (string, error) {
	ranks, err := router.Ranks(e.URL)
	if err != nil {
		return "", wrong("url: %q %v", router.ShowURL(e.URL), err)
	}
	full := ranks[0]
	if len(ranks) > 1 {
		return "", wrong("url: %q is %d backends; add each rank by itself, as %s, or all of them with xpyd ctl add", e.URL, len(ranks), full)
	}
	if e.Role == "" {
		return "", wrong("role: is missing; give prefill, decode, both or encode")
	}
	if err := e.check(); err != nil {
		return "", err
	}
	e.URL, e.Added = full, true
	return full, s.change(journal.Add, "backend added", e, func(all []router.Entry) ([]Edit, error) {
		if i := find(all, e.URL); i >= 0 {
			return nil, conflict("%s is in %s already; change it with xpyd ctl weight or xpyd ctl role, or with PATCH", e.URL, poolOf(all[i].Role))
		}
		engine, rank := router.SplitRank(e.URL)
		for _, p := range all {
			switch base, is := router.SplitRank(p.URL); {
			case base != engine:
			case is == router.AutoRank:
				return nil, conflict("%s is in the pools already; change it with xpyd ctl weight or xpyd ctl role, or with PATCH", p.URL)
			case rank == router.AutoRank:
				return nil, conflict("%s is in %s already; remove it before %s is added", p.URL, poolOf(p.Role), e.URL)
			}
		}
		return append(s.without(e.URL), e.signed()), nil
	})
}

// Change changes the fields of a backend that are set in e. id is its URL, or host and port. It
// returns its URL.
func (s *Set) Change(id string, e Edit) (string, error) {
	if e.settings() == (Edit{}) {
		return "", wrong("nothing to change; give state, weight or role")
	}
	if err := e.check(); err != nil {
		return "", err
	}
	full, err := s.resolve(id)
	if err != nil {
		return "", err
	}
	e.URL = full
	return full, s.change(kindOf(e), "backend changed", e, func(all []router.Entry) ([]Edit, error) {
		i := find(all, full)
		if i < 0 {
			return nil, unknown(full, all)
		}
		if is := all[i].Role; e.Role != "" && e.Role != is.String() && (e.Role == router.Encode.String() || is == router.Encode) {
			return nil, conflict("%s is a %s backend, and an engine is started for encode alone; remove it and add it again with role %s", full, is, e.Role)
		}
		e := e.signed()
		edits := slices.Clone(s.edits)
		if i = slices.IndexFunc(edits, func(o Edit) bool { return o.URL == full }); i < 0 {
			return append(edits, e), nil
		}
		edits[i] = edits[i].with(e)
		return edits, nil
	})
}

// signed returns the edit as it is kept: with who changed the state, and when.
func (e Edit) signed() Edit {
	if e.State == "" && !e.Added {
		return e.settings()
	}
	e.At = time.Now().Unix()
	return e
}

// with returns the edit with the fields that are set in o.
func (e Edit) with(o Edit) Edit {
	if o.Role != "" {
		e.Role = o.Role
	}
	if o.State != "" {
		e.State, e.By, e.At = o.State, o.By, o.At
	}
	if o.Weight != 0 {
		e.Weight = o.Weight
	}
	if o.GPUs != 0 {
		e.GPUs = o.GPUs
	}
	if o.Bootstrap != 0 {
		e.Bootstrap = o.Bootstrap
	}
	if o.Connector != "" {
		e.Connector = o.Connector
	}
	e.Added, e.Removed = e.Added || o.Added, e.Removed || o.Removed
	return e
}

// Remove takes a backend out of its pool. It gets no new requests, and ends those that it has. It
// returns its URL. by is who asked for it.
func (s *Set) Remove(id, by string) (string, error) {
	full, err := s.resolve(id)
	if err != nil {
		return "", err
	}
	return full, s.change(journal.Remove, "backend removed", Edit{URL: full, By: by}, func(all []router.Entry) ([]Edit, error) {
		if find(all, full) < 0 {
			return nil, unknown(full, all)
		}
		edits := s.without(full)
		if find(s.base.Entries(), full) >= 0 {
			edits = append(edits, Edit{URL: full, Removed: true, By: by, At: time.Now().Unix()})
		}
		return edits, nil
	})
}

// without returns the edits but for those of the URL.
func (s *Set) without(url string) []Edit {
	return slices.DeleteFunc(slices.Clone(s.edits), func(e Edit) bool { return e.URL == url })
}

// change puts new edits in force. edit gets the pools as they are.
func (s *Set) change(kind journal.Kind, what string, e Edit, edit func(all []router.Entry) ([]Edit, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held {
		return &Error{Later, "a successor is about to take over; ask it in a moment"}
	}
	edits, err := edit(s.all)
	if err != nil {
		return err
	}
	next := apply(s.base, edits, s.ranks)
	if !decodes(next.now) {
		return conflict("%s is the last decode backend; add another one first", e.URL)
	}
	if err := s.fitting(next); err != nil {
		return conflict("%v", err)
	}
	if err := s.force(next, s.put); err != nil {
		return err
	}
	s.told.Tell(s.log.Info().Str("state_file", s.file), journal.Event{Kind: kind, Backend: e.URL, Role: e.Role, Text: what, Change: e.String(), By: e.By})
	return nil
}

// kindOf is how the journal calls a change of a backend.
func kindOf(e Edit) journal.Kind {
	switch e.State {
	case router.Ready:
		return journal.Enable
	case router.Drain:
		return journal.Drain
	case router.Disabled:
		return journal.Disable
	}
	return journal.Change
}

// resolve returns the URL of the backend that id names: a URL, or host and port. An engine that says itself
// how many ranks it has is named with or without @auto. It is changed as a whole, so one of its ranks is refused.
func (s *Set) resolve(id string) (string, error) {
	s.mu.Lock()
	all, ranks := s.all, s.ranks
	s.mu.Unlock()
	name, one := router.SplitRank(id)
	full, err := router.BaseURL(name)
	var found []string
	for _, p := range all {
		engine, rank := router.SplitRank(p.URL)
		switch {
		case !(err == nil && full == engine) && !named(engine, name):
		case rank == one, rank == router.AutoRank && one == router.NoRank:
			found = append(found, p.URL)
		case rank == router.AutoRank && one < ranks[engine]:
			return "", conflict("%s is a rank of %s, whose ranks are those that it says it has; change %s as a whole, or write its ranks out in the configuration, as %s@0..%d",
				router.JoinRank(engine, one), engine, p.URL, engine, ranks[engine]-1)
		}
	}
	switch len(found) {
	case 0:
		return "", unknown(id, all)
	case 1:
		return found[0], nil
	}
	return "", conflict("%s may be %s; give the URL", id, strings.Join(found, " or "))
}

// poolOf names the pool of a role for a message.
func poolOf(role router.Role) string {
	if role == router.Both {
		return "both pools"
	}
	return "the " + role.String() + " pool"
}

// decodes reports whether some engine may decode.
func decodes(cfg router.Config) bool { return len(cfg.Pooled(router.Decode)) > 0 }

// named reports whether id is the host and port of the URL.
func named(url, id string) bool {
	_, host, ok := strings.Cut(url, "://")
	return ok && strings.EqualFold(host, id)
}

// unknown names the backend that id was probably meant for.
func unknown(id string, all []router.Entry) error {
	text := "there is no backend " + router.ShowURL(id)
	var names []string
	for _, p := range all {
		names = append(names, p.URL)
	}
	short := id
	if !strings.Contains(id, "://") {
		short = "http://" + id
	}
	if near := nearest.Name(short, names); near != "" {
		text += "; the nearest is " + near
	} else if len(names) > 0 {
		text += "; xpyd status and GET /backends list all"
	}
	return &Error{Unknown, text}
}
