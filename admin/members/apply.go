package members

import (
	"slices"

	"xpyd/router"
)

// effect is what the configuration and the edits make together.
type effect struct {
	now     router.Config  // in which the ranks that are known stand for an engine that says itself which it has
	all     []router.Entry // in which such an engine is one entry
	edits   []Edit         // without what the configuration says itself
	dropped []string       // a line for each edit that has no place any more
}

// apply puts the edits on the pools of cfg, and in the place of each engine that says itself how many ranks it
// has those that ranks says.
func apply(cfg router.Config, edits []Edit, ranks map[string]int) (p effect) {
	configured := cfg.Entries()
	var rest []Edit
	p.all, p.edits, rest = edited(configured, moved(configured, edits))
	for _, e := range rest {
		why := " is not in the configuration any more"
		if wholeOf(p.all, e.URL) >= 0 {
			why = " is a rank of an engine that says itself which ranks it has: it is changed as a whole"
		}
		p.dropped = append(p.dropped, e.URL+why)
	}
	all, found := expand(p.all, ranks)
	p.now = cfg.With(all)
	p.now.Found = found
	return p
}

// wholeOf returns the index of the entry with @auto of the engine that url is a rank of, or −1.
func wholeOf(all []router.Entry, url string) int {
	engine, rank := router.SplitRank(url)
	if rank < 0 {
		return -1
	}
	return find(all, router.JoinRank(engine, router.AutoRank))
}

// moved gives edits of whole engines the URLs that the configuration has for these engines now: one of an engine
// without a rank goes to its entry with @auto, and one with @auto to each entry of the engine that is written.
// What is said of that entry itself counts before it.
func moved(all []router.Entry, edits []Edit) []Edit {
	var stay, move []Edit
	for _, e := range edits {
		to := destinations(all, edits, e)
		if to == nil {
			stay = append(stay, e)
		}
		for _, e.URL = range to {
			move = append(move, e)
		}
	}
	for _, e := range move {
		if i := slices.IndexFunc(stay, func(o Edit) bool { return o.URL == e.URL }); i >= 0 {
			stay[i] = e.with(stay[i])
		} else {
			stay = append(stay, e)
		}
	}
	return stay
}

// destinations lists the entries that e is about if the configuration has the engine by another URL than e. An
// engine that operators have taken out by one URL and put in by another is in the pools as they said.
func destinations(all []router.Entry, edits []Edit, e Edit) (to []string) {
	engine, rank := router.SplitRank(e.URL)
	if rank >= 0 || find(all, e.URL) >= 0 {
		return nil
	}
	for _, p := range all {
		base, is := router.SplitRank(p.URL)
		if base == engine && (is == router.AutoRank || rank == router.AutoRank) {
			to = append(to, p.URL)
		}
	}
	for _, o := range edits {
		base, _ := router.SplitRank(o.URL)
		if base == engine && (e.Removed && o.Added || e.Added && o.Removed && slices.Contains(to, o.URL)) {
			return nil
		}
	}
	return to
}
