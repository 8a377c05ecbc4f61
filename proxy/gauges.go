package proxy

import (
	"xpyd/metrics"
	"xpyd/router"
)

// queuedBy returns functions that read how many requests wait, by role.
func queuedBy(rt *router.Router) map[string]func() float64 {
	read := map[string]func() float64{}
	for _, role := range router.Roles() {
		read[role.String()] = func() float64 { return float64(rt.Queued(role)) }
	}
	return read
}

// backendLoads returns what GET /pools and GET /backends show, for the metrics.
// gbps is kv.transfer_gbps.
func backendLoads(rt *router.Router, gbps float64) []metrics.BackendLoad {
	var loads []metrics.BackendLoad
	snap := rt.Snapshot()
	for _, role := range router.Roles() {
		for _, m := range snap.Members(role) {
			b := m.Backend
			loads = append(loads, engineLoad(metrics.BackendLoad{
				Role: role.String(), URL: b.URL, Connector: m.Entry.Connector, InFlight: b.InFlight(), Up: b.State() == router.Up, Ready: m.Entry.State == router.Ready, Ejected: b.Ejected(), Wedged: b.Trouble.Wedged() != nil, Speed: b.Trouble.Speed(), NothingPulled: b.NothingPulled(),
			}, b, gbps))
		}
	}
	return loads
}

// engineLoad adds to a backend's gauges what its engine reported.
func engineLoad(l metrics.BackendLoad, b *router.Backend, gbps float64) metrics.BackendLoad {
	l.EngineAge = -1
	if c := b.CacheEstimate(); c.Queries > 0 {
		l.EstimatedQueries, l.EstimatedHits = c.Queries, c.Hits
	}
	l.Cache = cacheNews(b)
	if b.Role == router.Prefill && b.Twin() != nil {
		return l // the decode backend of the engine has its figures, so that sums count them once
	}
	l.Elsewhere = b.External()
	if age, ok := b.EngineAge(); ok {
		l.EngineAge = age
	}
	if e := b.Engine(); e != nil {
		l.Engine = &metrics.EngineLoad{
			Running: e.Running, Waiting: e.Waiting, KVUsage: e.KVUsage, PrefixQueries: e.PrefixQueries, PrefixHits: e.PrefixHits,
			Restarts: e.Restarts, Transfers: e.Transfers, TransferBytes: e.TransferBytes, TransferSeconds: e.TransferSeconds, TransferLeast: gbps * 1e9,
		}
	}
	return l
}

func cacheNews(b *router.Backend) metrics.CacheNews {
	news := router.NewsOf(b)
	n := news.Counts()
	return metrics.CacheNews{
		Told: n.Told.Load(), Over: n.Over.Load(), Under: n.Under.Load(), Listed: news.Live(),
		Batches: n.Batches.Load(), Missed: n.Missed.Load(), Blocks: n.Blocks.Load(), Learned: n.Learned.Load(),
	}
}

// adviceGauges returns what GET /advice shows, for the metrics.
func adviceGauges(rt *router.Router) metrics.Advice {
	a := rt.Snapshot().Advice()
	out := metrics.Advice{Loads: map[string]float64{}, Balanced: map[string]int{}, Prices: map[string]metrics.Price{}, Reuse: a.Reuse.Ratio}
	for role, load := range map[router.Role]float64{router.Prefill: a.Prefill.Load, router.Decode: a.Decode.Load} {
		if load >= 0 {
			out.Loads[role.String()] = load
		}
	}
	if a.BalancedDecode > 0 {
		out.Balanced[router.Prefill.String()], out.Balanced[router.Decode.String()] = a.BalancedPrefill, a.BalancedDecode
	}
	for _, p := range router.Plans(rt) {
		out.Plans = append(out.Plans, metrics.Plan{Model: p.Model, Prefill: p.Prefill, Decode: p.Engines - p.Prefill, Changes: p.Changes, Gain: p.Gain})
	}
	for work, p := range rt.Prices() {
		out.Prices[work] = metrics.Price{Fixed: p.Fixed, PerToken: p.PerToken, Error: p.Error}
	}
	return out
}

// pairLoads returns the transfers of each pair, for the metrics.
func pairLoads(rt *router.Router) []metrics.PairLoad {
	var loads []metrics.PairLoad
	for _, t := range rt.Pairs().Transfers() {
		l := metrics.PairLoad{OK: t.OK, Failed: t.Failed, Banned: t.Banned, Timed: t.Timed, Seconds: t.Took.Seconds()}
		if t.Prefill != nil {
			l.Prefill, l.Decode = t.Prefill.URL, t.Decode.URL
		}
		loads = append(loads, l)
	}
	return loads
}

// configInfo returns the labels of xpyd_config_info.
func configInfo(rt *router.Router, connector string) metrics.ConfigInfo {
	snap := rt.Snapshot()
	goal := router.GoalOf(snap)
	return metrics.ConfigInfo{
		Connector: connector, Mode: snap.PD().Mode, PrefillPolicy: snap.Policy(router.Prefill), DecodePolicy: snap.Policy(router.Decode),
		TTFT: goal.TTFT, TPOT: goal.TPOT, Errors: goal.Errors,
	}
}
