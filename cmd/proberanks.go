package cmd

import (
	"context"

	"xpyd/engines"
	"xpyd/kvparams"
	"xpyd/router"
)

// found puts in the place of each engine that says itself how many ranks it has the ranks that it has now. One that
// does not say so, or has more than a pool can have, stays as it is written.
func (p *engineProber) found(ctx context.Context, role string, pool []router.Entry) (all []router.Entry) {
	for _, entry := range pool {
		base, rank := router.SplitRank(entry.URL)
		if rank != router.AutoRank {
			all = append(all, entry)
			continue
		}
		ranks, err := p.ranksOf(ctx, base, p.cfg.Dialect(entry))
		switch {
		case err != nil && p.health(ctx, base) != nil: // ask says so
		case err != nil:
			p.fault("%s %s does not say how many data-parallel ranks it has: %v", role, entry.URL, err)
		case ranks == 0:
			p.note("%s %s does not say how many data-parallel ranks it has, so it is one backend", role, entry.URL)
			ranks = 1
		case ranks > router.MaxRanks:
			p.fault("%s %s says that it has %d data-parallel ranks; xpyd takes 1 to %d", role, entry.URL, ranks, router.MaxRanks)
			ranks = 0
		}
		for _, entry.URL = range router.FoundRanks(base, ranks) {
			all = append(all, entry)
		}
	}
	return all
}

// compareRanks compares the data-parallel ranks that the backends of a pool name with those on their
// server's page. vLLM 0.32 has a label for each of them on its metrics page, and tells them nowhere else.
func (p *engineProber) compareRanks(ctx context.Context, pool []*engine) {
	named, highest, seen := map[string]int{}, map[string]int{}, map[string]bool{}
	var servers []*engine
	for _, e := range pool {
		base, rank := router.SplitRank(e.url)
		if rank == router.AutoRank {
			continue
		}
		if !seen[base] && e.health == "ok" {
			seen[base] = true
			servers = append(servers, e)
		}
		if rank != router.NoRank {
			named[base]++
			highest[base] = max(highest[base], rank)
		}
	}
	for _, e := range servers {
		base := baseOf(e.url)
		ranks, _ := p.ranksOf(ctx, base, e.dialect) // 0 if the server does not say
		missed := router.MissedRanks(base, ranks, named[base])
		pairing, pairs := e.dialect.(kvparams.Pairing)
		switch {
		case ranks > 0 && highest[base] >= ranks:
			p.fault("%s %s has %d data-parallel ranks, from 0, and no rank %d", e.role, base, ranks, highest[base])
		case missed != "" && pairs && pairing.NeedsRank() && e.role == "prefill" && named[base] == 0:
			p.fault("%s %s has %d data-parallel ranks, and a decode leg must name one with connector %s; put @auto after its URL", e.role, base, ranks, e.dialect.Name())
		case missed != "":
			p.note("%s %s has %s", e.role, base, missed)
		}
	}
}

// ranksOf counts a server's ranks as serve does. It is 0 if the server does not say so.
func (p *engineProber) ranksOf(ctx context.Context, base string, d kvparams.Dialect) (int, error) {
	path, count := engines.RankPage(d)
	page, err := p.get(ctx, base+path)
	return count(page), err
}
