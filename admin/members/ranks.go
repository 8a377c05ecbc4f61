package members

import (
	"maps"
	"slices"

	"xpyd/router"
)

// expand puts the ranks of each engine that says itself how many it has in the place of its entry, and returns
// the base URLs of these engines.
func expand(all []router.Entry, ranks map[string]int) (now []router.Entry, found []string) {
	for _, p := range all {
		engine, rank := router.SplitRank(p.URL)
		if rank != router.AutoRank {
			now = append(now, p)
			continue
		}
		found = append(found, engine)
		for _, p.URL = range router.FoundRanks(engine, ranks[engine]) {
			now = append(now, p)
		}
	}
	return now, found
}

// ranksOf counts the ranks of the engines in the pools, by their base URLs. So what is known of an engine stays
// for as long as it is in the pools, also where it was written with its ranks before.
func ranksOf(cfg router.Config) map[string]int {
	ranks := map[string]int{}
	for _, p := range cfg.Entries() {
		switch engine, rank := router.SplitRank(p.URL); rank {
		case router.AutoRank:
		case router.NoRank:
			ranks[engine] = 1
		default:
			ranks[engine] = max(ranks[engine], rank+1)
		}
	}
	return ranks
}

// Ranks takes in how many data-parallel ranks an engine says that it has. They are in the pools when it returns,
// unless it returns an error. restarted reports that the engine has said another number before. Ranks does nothing about an
// engine whose ranks an operator has written. It is no edit: it leaves the state file alone, which may be that of a successor
// by now.
func (s *Set) Ranks(engine string, n int) (restarted bool, err error) {
	if s.saidBy(engine) == n && n > 0 {
		return false, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.now.Found, engine) {
		return false, nil
	}
	if n < 1 || n > router.MaxRanks {
		return false, wrong("%s says that it has %d data-parallel ranks; xpyd takes 1 to %d", engine, n, router.MaxRanks)
	}
	was, before := s.ranks[engine], s.saidBy(engine)
	if was != n {
		if err := s.putRanks(engine, n); err != nil {
			return false, err
		}
		s.log.Info().Str("backend", engine).Int("ranks", n).Int("ranks_before", was).Msg("the engine says how many data-parallel ranks it has")
	}
	s.note(engine, n)
	return before > 0 && before != n, nil
}

// putRanks puts n ranks of the engine in force. Called under mu.
func (s *Set) putRanks(engine string, n int) error {
	ranks := maps.Clone(s.ranks)
	ranks[engine] = n
	next := apply(s.base, s.edits, ranks)
	if err := s.fits(next.now); err != nil {
		return conflict("the %d data-parallel ranks of %s do not fit: %v", n, engine, err)
	}
	return s.enforce(next, s.put)
}

// saidBy is how many ranks the engine has said that it has, or 0.
func (s *Set) saidBy(engine string) int {
	if said := s.said.Load(); said != nil {
		return (*said)[engine]
	}
	return 0
}

// note notes what the engine has said. Called under mu.
func (s *Set) note(engine string, n int) {
	said := map[string]int{engine: n}
	if before := s.said.Load(); before != nil {
		said = maps.Clone(*before)
		said[engine] = n
	}
	s.said.Store(&said)
}

// forget drops what engines have said whose ranks an operator has written or taken out since. Called under mu.
func (s *Set) forget() {
	before := s.said.Load()
	if before == nil {
		return
	}
	said := maps.Clone(*before)
	maps.DeleteFunc(said, func(engine string, _ int) bool {
		return !slices.Contains(s.now.Found, engine)
	})
	s.said.Store(&said)
}
