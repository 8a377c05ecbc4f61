package members

import (
	"slices"

	"xpyd/router"
)

// apply puts the edits on the pools of cfg, and in the place of each engine that says itself how many ranks it
// has those that ranks says. It returns the edits without what cfg says itself, and a line for each that has no
// place any more. An edit of a rank that such an engine does not have now waits for it.
func apply(cfg router.Config, edits []Edit, ranks map[string]int) (out router.Config, kept []Edit, dropped []string, err error) {
	configured, err := entries(cfg)
	if err != nil {
		return cfg, nil, nil, err
	}
	wholes, single := split(configured, moved(configured, edits))
	wholly, kept, rest := edited(slices.Clone(configured), wholes)
	for _, e := range rest {
		dropped = append(dropped, e.URL+" is not in the configuration any more")
	}
	out = cfg
	all, found := expand(wholly, ranks)
	for _, e := range single {
		own := Edit{URL: e.URL, State: e.State, Weight: e.Weight}
		if own != e {
			dropped = append(dropped, e.URL+" is a rank of an engine that says itself which ranks it has: it can only be drained and weighted")
		}
		if e.Removed {
			continue
		}
		if own = own.beside(wholeOf(wholly, e.URL)).with(own.beside(unedited(configured, kept, e.URL))); own == (Edit{URL: e.URL}) {
			continue // the configuration says the same, and no change of the whole engine says otherwise
		}
		kept = append(kept, own)
		if i := find(all, e.URL); i >= 0 {
			all[i] = own.placed(all[i])
		}
	}
	out.Found = found
	out.Prefill, out.Decode, out.Encode = texts(all, roles()[0]), texts(all, roles()[1]), texts(all, roles()[2])
	return out, kept, dropped, nil
}

// split parts the edits of single ranks of engines that say themselves which ranks they have from the others.
func split(configured []placed, edits []Edit) (others, single []Edit) {
	auto := map[string]bool{} // by the base URL
	for _, p := range configured {
		if engine, rank := router.SplitRank(p.URL); rank == router.AutoRank {
			auto[engine] = true
		}
	}
	for _, e := range edits {
		if engine, rank := router.SplitRank(e.URL); rank == router.AutoRank {
			auto[engine] = (auto[engine] || e.Added) && !e.Removed
		}
	}
	for _, e := range edits {
		if engine, rank := router.SplitRank(e.URL); rank >= 0 && auto[engine] && find(configured, e.URL) < 0 {
			single = append(single, e)
		} else {
			others = append(others, e)
		}
	}
	return others, single
}

// wholeOf returns the entry with @auto of a rank's engine.
func wholeOf(all []placed, url string) placed {
	engine, _ := router.SplitRank(url)
	if i := find(all, router.JoinRank(engine, router.AutoRank)); i >= 0 {
		return all[i]
	}
	return placed{Entry: router.Entry{State: router.Ready}}
}

// unedited is wholeOf as the configuration has it, or for an engine that an operator has added, without changes since.
func unedited(configured []placed, kept []Edit, url string) placed {
	p := wholeOf(configured, url)
	for _, e := range kept {
		engine, _ := router.SplitRank(url)
		if e.Added && e.URL == router.JoinRank(engine, router.AutoRank) {
			p = Edit{GPUs: e.GPUs}.placed(p)
		}
	}
	return p
}

// moved gives edits of whole engines the URLs that the configuration has for these engines now: one of an engine
// without a rank goes to its entry with @auto, and one with @auto to each entry of the engine that is written.
// What is said of that entry itself counts before it.
func moved(all []placed, edits []Edit) []Edit {
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
func destinations(all []placed, edits []Edit, e Edit) (to []string) {
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
