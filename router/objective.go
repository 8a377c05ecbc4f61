package router

import (
	"fmt"
	"math"
	"strings"
)

// Objective is what requests may take. A bound of 0 is none.
type Objective struct {
	TTFT float64 `json:"ttft_seconds,omitempty"` // of the P90
	TPOT float64 `json:"tpot_seconds,omitempty"` // of the mean
}

// String is the objective in a sentence.
func (o Objective) String() string {
	var all []string
	if o.TTFT > 0 {
		all = append(all, "TTFT p90 ≤ "+showSeconds(o.TTFT))
	}
	if o.TPOT > 0 {
		all = append(all, "TPOT ≤ "+showSeconds(o.TPOT))
	}
	return strings.Join(all, " and ")
}

// SplitReach is how much load a split takes within an objective.
type SplitReach struct {
	Prefill  int     `json:"prefill"`
	Decode   int     `json:"decode"`
	Requests float64 `json:"requests_per_second"` // 0: the objective is not kept at any load
	Limit    string  `json:"limit"`               // what ends it: ttft, tpot or kv_cache
}

// Reach says which split takes the most load within an objective.
type Reach struct {
	Objective
	Requests float64     `json:"requests_per_second"` // that came in the window
	Best     *SplitReach `json:"best,omitempty"`      // nil: not known, or no split keeps the objective
	Now      *SplitReach `json:"now,omitempty"`
	Words    string      `json:"words"`
}

// fullCache is the share of the KV cache up to which engines are loaded. Beyond it, they preempt.
const fullCache = 0.9

// Within extrapolates from the window to other loads and splits. A pool of prefill engines is a queue with as many servers,
// and a token takes longer with each answer that an engine makes at once, as the streams of the window say.
func (a *Advice) Within(o Objective) Reach {
	r := Reach{Objective: o, Requests: float64(a.Prefill.Requests+a.Decode.Requests) / a.WindowSeconds}
	switch {
	case a.Prefill.Load < 0 || a.Decode.Load < 0:
		r.Words = a.Arithmetic
		return r
	case a.roleless:
		r.Words = "not known: engines without a role have no split, and each is a backend of both pools"
		return r
	case o.TPOT > 0 && a.Answers.Token <= 0:
		r.Words = "not known yet: tpot needs streams that ended"
		return r
	}
	now := a.reach(o, r.Requests, a.Prefill.Backends, a.Decode.Backends)
	best := now
	for _, n := range a.splits() {
		if s := a.reach(o, r.Requests, n[0], n[1]); s.Requests > best.Requests {
			best = s
		}
	}
	r.Now = &now
	if best.Requests <= 0 {
		r.Words = fmt.Sprintf("with %s: no split keeps %s", o, best.Limit)
		return r
	}
	r.Best = &best
	r.Words = fmt.Sprintf("with %s: %d:%d up to %.3g req/s, where %s ends it", o, best.Prefill, best.Decode, best.Requests, best.Limit)
	if best.Prefill != now.Prefill || best.Decode != now.Decode {
		r.Words += fmt.Sprintf("; %d:%d, as now, up to %.3g, where %s does", now.Prefill, now.Decode, now.Requests, now.Limit)
	}
	r.Words += fmt.Sprintf("; %.3g req/s came", r.Requests)
	return r
}

// reach is how much load x prefill and y decode engines take. came is the load of the window.
func (a *Advice) reach(o Objective, came float64, x, y int) SplitReach {
	s := SplitReach{Prefill: x, Decode: y, Requests: math.Inf(1)}
	least := func(limit string, requests float64) {
		if requests < s.Requests {
			s.Requests, s.Limit = max(0, requests), limit
		}
	}
	if o.TTFT > 0 {
		share := float64(a.Prefill.Requests) / float64(a.Prefill.Requests+a.Decode.Requests)
		least("ttft", a.Prefill.servers().within(o.TTFT-a.Answers.First, x)/share)
	}
	if o.TPOT > 0 {
		at := math.Inf(1) // once: as many answers at a time
		if a.Answers.Token > o.TPOT {
			at = 0
		} else if a.Answers.PerStream > 0 {
			at = (o.TPOT - a.Answers.Token) / a.Answers.PerStream
		}
		least("tpot", float64(y)*at/(a.Answers.Tokens*o.TPOT))
	}
	if use := a.Decode.KVUsage * float64(a.Decode.Backends); use > 0 {
		least("kv_cache", came*fullCache*float64(y)/use)
	}
	if math.IsInf(s.Requests, 1) {
		s.Requests, s.Limit = 0, "anything measured"
	}
	return s
}

// servers is what prefill engines do with a request: seconds, and their standard deviation.
type servers struct{ mean, deviation float64 }

func (p *PoolAdvice) servers() servers {
	n := float64(p.Requests)
	mean := p.BusySeconds / n
	return servers{mean, math.Sqrt(max(0, p.BusySquares/n-mean*mean))}
}

// within is how many requests a second n servers take with a P90 of the time up to bound. 0 also stands for none.
func (q servers) within(bound float64, n int) float64 {
	if q.mean <= 0 {
		return math.Inf(1)
	}
	low, high := 0.0, float64(n)/q.mean
	for range 50 {
		if mid := (low + high) / 2; q.p90(mid, n) <= bound {
			low = mid
		} else {
			high = mid
		}
	}
	if q.p90(0, n) > bound {
		return 0
	}
	return low
}

// p90 is about the 90th percentile of wait and service: Erlang's chance of a wait, and its mean by Allen and Cunneen.
func (q servers) p90(rate float64, n int) float64 {
	const normal = 1.28 // standard deviations
	service := q.mean + normal*q.deviation
	load := rate * q.mean
	if load >= float64(n) {
		return math.Inf(1)
	}
	blocked := 1.0 // Erlang B
	for k := 1; k <= n; k++ {
		blocked = load * blocked / (float64(k) + load*blocked)
	}
	waits := blocked / (1 - load/float64(n)*(1-blocked))
	if waits <= 0.1 {
		return service
	}
	varied := (1 + q.deviation*q.deviation/(q.mean*q.mean)) / 2
	return service + q.mean*varied/(float64(n)-load)*math.Log(10*waits)
}
