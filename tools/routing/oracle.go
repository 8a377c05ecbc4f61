package routing

import (
	"time"

	"xpyd/tools/report"
)

// oracleEngine is an engine on paper. It computes one prompt after the other.
type oracleEngine struct {
	cache    *blockCache
	free     time.Duration // when it has computed all that it was given
	computed int           // tokens
}

// oracle has all engines of a topology on paper, and routes over them as mode says.
type oracle struct {
	s               *scenario
	mode            string
	prefill, decode []*oracleEngine
}

func (s *scenario) newOracle(mode string) *oracle {
	o := &oracle{s: s, mode: mode}
	for range s.on.prefill {
		o.prefill = append(o.prefill, &oracleEngine{cache: newBlockCache(s.engines.PrefillBlocks)})
	}
	for range s.on.decode {
		o.decode = append(o.decode, &oracleEngine{cache: newBlockCache(s.engines.DecodeBlocks)})
	}
	return o
}

// routed is the result of a request.
type routed struct {
	on    *oracleEngine
	saved int           // tokens that on had in its cache
	first time.Duration // of the first token
	alone bool          // decode computed it
}

// ideal routes the requests over engines whose caches and queues are known exactly. Each request
// goes where its first token comes soonest. This is the same trade-off as a router's, without an
// error in what it is based on. A router that considered only hits could save more tokens, and
// would wait longer.
func (s *scenario) ideal(mode string) figures {
	o := s.newOracle(mode)
	var prompts, saved, alone, n int
	var ttft []time.Duration
	for i := range s.requests {
		q := &s.requests[i]
		r := o.route(q)
		if q.at < s.warm {
			continue
		}
		n++
		prompts += q.tokens
		saved += r.saved
		r.on.computed += q.tokens - r.saved
		if r.alone {
			alone++
		}
		ttft = append(ttft, r.first-q.at)
	}
	f := figures{
		hits: 100 * ratio(float64(saved), float64(prompts)), computedTokens: float64(prompts - saved),
		direct: 100 * ratio(float64(alone), float64(n)), imbalance: imbalanceOf(o.prefill),
	}
	if mode == modeNever {
		f[imbalance] = imbalanceOf(o.decode)
	}
	f.putTTFT(ttft)
	return f
}

// route takes the way by which the first token comes sooner, among those that exist.
func (o *oracle) route(q *request) routed {
	p, hit, done := soonest(o.prefill, q, o.s.engines.Speed)
	split := routed{on: p, saved: hit, first: done}
	d, missing := o.puller(q)
	split.first += time.Duration(missing) * o.s.transferAt(q.at)
	on, hit, end := soonest(o.decode, q, o.s.engines.Speed)
	if o.mode == modeNever || o.mode == modeAuto && end < split.first {
		on.free = end
		on.cache.put(q)
		return routed{on: on, saved: hit, first: end, alone: true}
	}
	p.free = done
	p.cache.put(q)
	d.cache.put(q)
	return split
}

// puller returns the decode engine that lacks the fewest of the prompt's blocks. If there are
// several, it takes turns.
func (o *oracle) puller(q *request) (d *oracleEngine, missing int) {
	d, missing = o.decode[len(o.decode)-1], len(q.blocks)
	for i, e := range o.decode {
		if n := len(q.blocks) - e.cache.hit(q)/blockTokens; n < missing {
			d, missing = o.decode[i], n
		}
	}
	if missing == len(q.blocks) { // no engine has any
		o.decode = append(o.decode[1:], o.decode[0])
	}
	return d, missing
}

// transferAt returns how long a block takes at that time.
func (s *scenario) transferAt(at time.Duration) time.Duration {
	if s.slower > 0 && at >= s.slower {
		return 10 * s.engines.Transfer
	}
	return s.engines.Transfer
}

func imbalanceOf(engines []*oracleEngine) float64 {
	loads := make([]float64, len(engines))
	for i, e := range engines {
		loads[i] = float64(e.computed)
	}
	return mostToMean(loads)
}

// soonest returns the engine that has computed q first, how many tokens it saves, and when it is
// done. Among equals it takes the one that saves most.
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

// mostToMean is 1 if all have the same, and NaN if none has anything.
func mostToMean(loads []float64) float64 {
	return ratio(report.SpreadOf(loads).Max, sum(loads)/float64(len(loads)))
}
