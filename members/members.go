package members

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"

	"xpyd/nearest"
	"xpyd/router"
)

// Set is what is in force: the pools of the configuration, and the edits.
type Set struct {
	file string // keeps the edits; empty: the process does
	fits func(router.Config) error
	log  zerolog.Logger

	mu    sync.Mutex
	put   func(router.Config) error // see Bind
	base  router.Config             // as configured
	now   router.Config             // with the edits
	ranks map[string]int            // see ranksOf; each poll asks for one
	edits []Edit
	held  bool
	// said are the engines that have said themselves how many ranks they have, with that number. It is read without mu,
	// which a change holds while the state file is written, and that may take long.
	said atomic.Pointer[map[string]int]

	dropped []string // what Keep has to tell
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
	now, kept, dropped, err := apply(base, edits, nil)
	if err != nil {
		return nil, err
	}
	if len(now.Decode) == 0 && len(base.Decode) > 0 {
		return nil, conflict("state_file: %q leaves no decode backend; move it away to start without run-time changes", file)
	}
	if err := s.fitting(now, kept); err != nil {
		return nil, conflict("state_file: the changes in %q do not fit the configuration: %v; correct one of them, or move the file away to start without run-time changes", file, err)
	}
	s.base, s.now, s.edits, s.dropped = base, now, kept, dropped
	s.ranks, err = ranksOf(now)
	return s, err
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

// Bind sets what puts changed pools in force, or fails and changes nothing.
func (s *Set) Bind(put func(router.Config) error) { s.put = put }

// Config returns the configuration that is in force.
func (s *Set) Config() router.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// Edits returns what operators have changed, and the file that keeps it, or "" if the changes end
// with the process.
func (s *Set) Edits() (edits []Edit, file string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.edits), s.file
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
	now, kept, dropped, err := apply(base, s.edits, s.ranks)
	if err != nil {
		return err
	}
	if len(now.Decode) == 0 && len(base.Decode) > 0 {
		return conflict("the run-time changes leave no decode backend of the new configuration; undo them first")
	}
	if err := s.fitting(now, kept); err != nil {
		return conflict("the run-time changes do not fit the new configuration; undo them first: %v", err)
	}
	if err := s.force(now, kept, put); err != nil {
		return err
	}
	s.base = base
	s.tell(dropped)
	return nil
}

func (s *Set) tell(dropped []string) {
	for _, why := range dropped {
		s.log.Warn().Str("edit", why).Msg("a run-time change is dropped")
	}
}

// fitting says why now may not be in force. Without edits it is what the configuration has checked itself.
func (s *Set) fitting(now router.Config, edits []Edit) error {
	if len(edits) == 0 {
		return nil
	}
	return s.fits(now)
}

// force keeps the edits and puts the pools in force, or does neither. Called under mu.
func (s *Set) force(now router.Config, edits []Edit, put func(router.Config) error) error {
	keep := s.file != "" && !slices.Equal(edits, s.edits)
	if keep {
		if err := save(s.file, edits); err != nil {
			return err
		}
	}
	if err := s.enforce(now, put); err != nil {
		if keep {
			_ = save(s.file, s.edits)
		}
		return err
	}
	s.edits = edits
	return nil
}

// enforce puts the pools in force, and with them what is known of ranks. Called under mu.
func (s *Set) enforce(now router.Config, put func(router.Config) error) error {
	ranks, err := ranksOf(now)
	if err == nil {
		err = put(now)
	}
	if err != nil {
		return err
	}
	s.now, s.ranks = now, ranks
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
		return "", wrong("role: is missing; give prefill, decode or encode")
	}
	if err := e.check(); err != nil {
		return "", err
	}
	e.URL, e.Added = full, true
	return full, s.change("backend added", e, func(all []placed) ([]Edit, error) {
		if i := find(all, e.URL); i >= 0 {
			return nil, conflict("%s is in the %s pool already; change it with xpyd ctl weight or xpyd ctl role, or with PATCH", e.URL, all[i].role)
		}
		engine, rank := router.SplitRank(e.URL)
		if slices.Contains(s.now.Found, engine) {
			return nil, conflict("%s is in the pools already; change it with xpyd ctl weight or xpyd ctl role, or with PATCH", router.JoinRank(engine, router.AutoRank))
		}
		for _, p := range all {
			if base, _ := router.SplitRank(p.URL); base == engine && rank == router.AutoRank {
				return nil, conflict("%s is in the %s pool already; remove it before %s is added", p.URL, p.role, e.URL)
			}
		}
		return append(s.without(e.URL), e), nil
	})
}

// Change changes the fields of a backend that are set in e. id is its URL, or host and port. It
// returns its URL.
func (s *Set) Change(id string, e Edit) (string, error) {
	if e == (Edit{}) {
		return "", wrong("nothing to change; give state, weight or role")
	}
	if err := e.check(); err != nil {
		return "", err
	}
	full, err := s.Resolve(id)
	if err != nil {
		return "", err
	}
	e.URL = full
	return full, s.change("backend changed", e, func(all []placed) ([]Edit, error) {
		i := find(all, full)
		if i < 0 && !slices.Contains(s.waiting(), full) {
			return nil, unknown(full, all)
		}
		if err := s.loose(full); e.Role != "" && err != nil {
			return nil, err
		}
		if encode := router.Encode.String(); e.Role != "" && e.Role != all[i].role && (e.Role == encode || all[i].role == encode) {
			return nil, conflict("%s is a %s backend, and an engine is started for encode alone; remove it and add it again with role %s", full, all[i].role, e.Role)
		}
		edits := slices.Clone(s.edits)
		if i = slices.IndexFunc(edits, func(o Edit) bool { return o.URL == full }); i < 0 {
			return append(edits, e), nil
		}
		if edits[i].Removed {
			return nil, conflict("%s is in the configuration by itself, from which it was removed; change the configuration before this rank of what was added since", full)
		}
		edits[i] = edits[i].with(e)
		return edits, nil
	})
}

// with returns the edit with the fields that are set in o.
func (e Edit) with(o Edit) Edit {
	if o.Role != "" {
		e.Role = o.Role
	}
	if o.State != "" {
		e.State = o.State
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
// returns its URL.
func (s *Set) Remove(id string) (string, error) {
	full, err := s.Resolve(id)
	if err != nil {
		return "", err
	}
	return full, s.change("backend removed", Edit{URL: full}, func(all []placed) ([]Edit, error) {
		if err := s.loose(full); err != nil {
			return nil, err
		}
		if find(all, full) < 0 {
			return nil, unknown(full, all)
		}
		edits := s.without(full)
		if engine, rank := router.SplitRank(full); rank == router.AutoRank { // and what was changed about its ranks
			edits = slices.DeleteFunc(edits, func(e Edit) bool { base, _ := router.SplitRank(e.URL); return base == engine && !e.Removed })
		}
		if configured, _ := entries(s.base); find(configured, full) >= 0 {
			edits = append(edits, Edit{URL: full, Removed: true})
		}
		return edits, nil
	})
}

// without returns the edits but for those of the URL.
func (s *Set) without(url string) []Edit {
	return slices.DeleteFunc(slices.Clone(s.edits), func(e Edit) bool { return e.URL == url })
}

// change puts new edits in force. edit gets the pools of now.
func (s *Set) change(what string, e Edit, edit func(all []placed) ([]Edit, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held {
		return &Error{Later, "a successor is about to take over; ask it in a moment"}
	}
	all, err := s.entries()
	if err != nil {
		return err
	}
	edits, err := edit(all)
	if err != nil {
		return err
	}
	now, kept, _, err := apply(s.base, edits, s.ranks)
	if err != nil {
		return err
	}
	if len(now.Decode) == 0 {
		return conflict("%s is the last decode backend; add another one first", e.URL)
	}
	if err := s.fitting(now, kept); err != nil {
		return conflict("%v", err)
	}
	if err := s.force(now, kept, s.put); err != nil {
		return err
	}
	s.log.Info().Str("backend", e.URL).Str("change", e.String()).Str("state_file", s.file).Msg(what)
	return nil
}

// Resolve returns the URL of the backend that id names: a URL, or host and port. An engine that says itself
// how many ranks it has is named as a whole with or without @auto, and a rank that it does not have now if a change
// of it waits.
func (s *Set) Resolve(id string) (string, error) {
	s.mu.Lock()
	all, err := s.entries()
	auto, waiting := s.whole(id), s.waiting()
	s.mu.Unlock()
	if err != nil || auto != "" {
		return auto, err
	}
	names := waiting
	for _, p := range all {
		names = append(names, p.URL)
	}
	if full, err := router.BaseURL(id); err == nil && slices.Contains(names, full) {
		return full, nil
	}
	var found []string
	for _, name := range names {
		if named(name, id) {
			found = append(found, name)
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

// named reports whether id is the host and port of the URL.
func named(url, id string) bool {
	_, host, ok := strings.Cut(url, "://")
	return ok && strings.EqualFold(host, id)
}

// unknown names the backend that id was probably meant for.
func unknown(id string, all []placed) error {
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
