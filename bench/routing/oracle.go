package routing

import (
	"time"

	"xpyd/bench/report"
)

// oracleEngine is a prefill engine on paper: one prompt after the other.
type oracleEngine struct {
	cache    *blockCache
	free     time.Duration // when it has computed all that it was given
	computed int           // tokens
}

// ideal routes the requests over prefill engines whose caches and queues are known
// exactly: each goes where its first token comes soonest. This is the same trade as a
// router's, with no error in what it rests on; a router that cared for nothing but hits
// could save more tokens, and would wait longer.
func (s *scenario) ideal() figures {
	engines := make([]*oracleEngine, s.on.prefill)
	for i := range engines {
		engines[i] = &oracleEngine{cache: newBlockCache(s.engines.PrefillBlocks)}
	}
	var prompts, saved int
	var ttft []time.Duration
	for i := range s.requests {
		q := &s.requests[i]
		best, hit, end := soonest(engines, q, s.engines.Speed)
		best.free = end
		best.cache.put(q)
		if q.at < s.warm {
			continue
		}
		prompts += q.tokens
		saved += hit
		best.computed += q.tokens - hit
		ttft = append(ttft, end-q.at+time.Duration(len(q.blocks))*s.engines.Transfer)
	}
	loads := make([]float64, len(engines))
	for i, e := range engines {
		loads[i] = float64(e.computed)
	}
	f := figures{hits: 100 * ratio(float64(saved), float64(prompts)), computedTokens: float64(prompts - saved), imbalance: mostToMean(loads)}
	f.putTTFT(ttft)
	return f
}

// soonest is the engine that has computed q first, how many tokens it saves, and when it
// is done. Among equals it is the one that saves most.
func soonest(engines []*oracleEngine, q *request, speed float64) (best *oracleEngine, hit int, end time.Duration) {
	for _, e := range engines {
		h := e.cache.hit(q)
		t := max(e.free, q.at) + time.Duration(float64(q.tokens-h)/speed*float64(time.Second))
		if best == nil || t < end || t == end && h > hit {
			best, hit, end = e, h, t
		}
	}
	return best, hit, end
}

// mostToMean is 1 where all have the same; NaN where nobody has anything.
func mostToMean(loads []float64) float64 {
	return ratio(report.SpreadOf(loads).Max, sum(loads)/float64(len(loads)))
}
