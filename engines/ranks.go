package engines

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"xpyd/kvparams"
	"xpyd/router"
)

// tellRanks takes in how many data-parallel ranks an engine has, and puts them into the pools. restarted reports that the
// engine has said another number before.
type tellRanks func(engine string, ranks int) (restarted bool, err error)

// FindRanks reads from each engine with @auto how many ranks it has, and passes the number to tell. Until
// then, such an engine gets no requests.
func (s *Set) FindRanks(tell func(engine string, ranks int) (restarted bool, err error)) {
	s.ranks.Store((*tellRanks)(&tell))
	for b := range s.all() {
		if b.Rank == router.AutoRank {
			s.checkNow(b)
		}
	}
}

// ranksStand asks an engine that is healthy how many ranks it has, if the pools do not say it. It reports whether
// b is among them. It asks before an engine is up, because one that comes back may have another number, and
// a request to a rank that it does not have is refused.
func (c *checker) ranksStand(b *router.Backend, auth string) bool {
	tell := c.s.ranks.Load()
	if !c.s.cfg.Router.Snapshot().Found(b) {
		return true
	}
	if tell == nil {
		return b.Rank != router.AutoRank
	}
	ranks, err := c.countRanks(b, auth)
	if c.ctx.Err() != nil {
		return false
	}
	without := "the engine does not say how many data-parallel ranks it has: "
	if err == nil && ranks > 0 {
		err = c.s.takeRanks(*tell, b.Base(), ranks)
		without = "the engine says how many data-parallel ranks it has, and the pools cannot have so many: "
	}
	c.tellRankless(b, without, err)
	return c.s.cfg.Router.Snapshot().AdminState(b) != "" && b.Rank != router.AutoRank && (ranks == 0 || b.Rank < ranks)
}

// takeRanks tells how many ranks an engine has. If it has restarted, those of its backends that leave the pools are
// abandoned, because no answer of them will come. If only xpyd has learned the number, they end what they have.
func (s *Set) takeRanks(tell tellRanks, engine string, ranks int) error {
	before := s.cfg.Router.Snapshot()
	restarted, err := tell(engine, ranks)
	if !restarted {
		return err
	}
	after := s.cfg.Router.Snapshot()
	for _, role := range []router.Role{router.Encode, router.Prefill, router.Decode} {
		for _, b := range before.Backends(role) {
			if b.Base() == engine && after.AdminState(b) == "" {
				b.Abandon()
			}
		}
	}
	return err
}

// countRanks asks b's engine. Where nothing is known of an engine that is well, and its page
// names no rank, it is one backend. What is known stays if a later page names none.
func (c *checker) countRanks(b *router.Backend, auth string) (int, error) {
	path, count := RankPage(c.s.dialect(b))
	status, page, err := c.fetch(c.ctx, b.Base()+path, auth, pollPage)
	switch {
	case err != nil:
		return 0, err
	case status != http.StatusOK:
		return 0, fmt.Errorf("get %s: %w", path, statusError(status))
	case len(page) == pollPage:
		return 0, fmt.Errorf("get %s: page too large", path)
	}
	ranks := count(page)
	if ranks == 0 && b.Rank == router.AutoRank {
		ranks = 1
	}
	return ranks, nil
}

// RankPage is the path at which an engine of the dialect says how many data-parallel ranks it has, and what reads the number
// from the answer. It is 0 if the answer does not say so.
func RankPage(d kvparams.Dialect) (path string, count func(page []byte) int) {
	f, ok := d.(kvparams.Foreign)
	if !ok {
		return "/metrics", func(page []byte) int { return len(RanksOn(page)) }
	}
	return f.Version(), func(page []byte) (ranks int) {
		var members map[string]json.RawMessage
		if json.Unmarshal(page, &members) != nil || json.Unmarshal(members[f.RanksMember()], &ranks) != nil {
			return 0
		}
		return max(ranks, 0)
	}
}

// tellRankless logs why the ranks of an engine cannot be had, and what follows. It does so once for all backends of the
// engine, until none of them finds the same any more.
func (c *checker) tellRankless(b *router.Backend, without string, err error) {
	c.rankless.Lock()
	defer c.rankless.Unlock()
	e := c.s.get(b)
	if e == nil {
		return
	}
	if err == nil {
		e.rankless = ""
		return
	}
	then := "the ranks that were known stay"
	if b.Rank == router.AutoRank {
		then = "it gets no requests"
	}
	was := e.rankless
	if e.rankless = without + then; was == e.rankless {
		return
	}
	for other, o := range c.s.all() {
		if o != e && other.Base() == b.Base() && o.rankless == e.rankless {
			return
		}
	}
	c.s.cfg.Log.Warn().Str("role", b.Role.String()).Str("backend", b.URL).Err(err).Msg(e.rankless)
}

// RanksOn lists the data-parallel ranks on vLLM's metrics page, in order, by the label engine. It is empty for a page
// without ranks. A counter has each rank from the start. A gauge may have a rank only after the rank's first request:
// by default, a server with ranks has several API processes. If servers share their ranks (hybrid-lb), the page of
// each one has its own ranks, by their numbers among all.
func RanksOn(text []byte) (all []int) {
	for _, name := range []string{"vllm:prompt_tokens_total{", "vllm:num_requests_running{"} {
		all = appendLabels(all, text, name)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// appendLabels appends the label engine of each series, whose name comes with its brace.
func appendLabels(all []int, text []byte, series string) []int {
	for {
		i := bytes.Index(text, []byte(series))
		if i < 0 {
			return all
		}
		text = text[i+len(series)-1:]
		for l, ok := startLabels(text); ok && !l.done; l, ok = l.next() {
			if n, err := strconv.Atoi(string(l.value)); err == nil && string(l.name) == "engine" {
				all = append(all, n)
			}
		}
		text = text[1:]
	}
}

// labelOf is the number by which a server's metrics page names one of its ranks. A request names the rank by its
// place among those of the server. Where the page has other ranks than the pool they are alike.
func labelOf(text []byte, rank int) int {
	if on := RanksOn(text); rank >= 0 && rank < len(on) {
		return on[rank]
	}
	return rank
}

// tellRanks takes in how many ranks a page shows of an engine whose pools do not say it. About another engine
// it warns once if it shows more ranks than its pool names. Of its backends the first one in the pool tells.
func (p *Poller) tellRanks(snap *router.Snapshot, b *router.Backend, t *pollTarget, ranks int) {
	if snap.Found(b) {
		if ranks > 0 {
			p.cfg.Ranks(b.Base(), ranks)
		}
		return
	}
	named, first := 0, true
	for _, o := range snap.Members(b.Role) {
		if o.Base() != b.Base() {
			continue
		}
		if named == 0 {
			first = o.Backend == b
		}
		if o.Rank != router.NoRank {
			named++
		}
	}
	missed := router.MissedRanks(b.Base(), ranks, named)
	if first && missed != "" && missed != t.missed {
		p.cfg.Log.Warn().Str("role", b.Role.String()).Str("backend", b.Base()).Msg("the engine has " + missed)
	}
	t.missed = missed
}

// seenRanks tells what a poll has read. A check tells why it has no effect, if it has none.
func (s *Set) seenRanks(engine string, ranks int) {
	if tell := s.ranks.Load(); tell != nil {
		_ = s.takeRanks(*tell, engine, ranks)
	}
}
