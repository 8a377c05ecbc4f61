package desk

import (
	"math"
	"time"

	"xpyd/proxy"
)

// The history has steps of stepLength. One of them is under way.
const (
	stepLength = 5 * time.Second
	steps      = 181
)

// A spread counts durations in cells, each a ninth wider than the one before it. So a quantile is right
// within a twentieth.
const (
	shortest  = 100 * time.Microsecond
	perOctave = 8
	cells     = 26 * perOctave // up to 1.8 hours
)

type spread [cells]uint32

func (s *spread) add(d time.Duration) {
	at := 0
	if d > shortest {
		at = min(cells-1, int(perOctave*math.Log2(float64(d)/float64(shortest))))
	}
	s[at]++
}

func (s *spread) merge(o *spread) {
	for i, n := range o {
		s[i] += n
	}
}

// quantile returns a quantile in milliseconds, or nil if there is none.
func (s *spread) quantile(q float64) *float64 {
	var total uint64
	for _, n := range s {
		total += uint64(n)
	}
	if total == 0 {
		return nil
	}
	rank := q * float64(total)
	for i, n := range s {
		if rank > float64(n) {
			rank -= float64(n)
			continue
		}
		within := rank / math.Max(1, float64(n))
		v := ms(shortest) * math.Exp2((float64(i)+within)/perOctave)
		return &v
	}
	return nil // not reached: the ranks end with the cells
}

// tally counts the completions of one step, or of the window.
type tally struct {
	OK      int64 `json:"ok"`
	Failed  int64 `json:"failed"`  // by engines or the proxy
	Refused int64 `json:"refused"` // for what the client sent
	Gone    int64 `json:"gone"`    // the client left
}

func (t *tally) add(outcome string) {
	switch outcome {
	case outcomeOK:
		t.OK++
	case outcomeFault:
		t.Refused++
	case outcomeGone:
		t.Gone++
	default:
		t.Failed++
	}
}

type way struct{ path, reason string }

// step is what ended in one step.
type step struct {
	number     int64 // since the Unix epoch; 0: not in use
	tally      tally
	ttft, tpot spread
	ways       map[way]int64
}

// history is a ring of steps. A step is allocated when a completion first ends in its place.
type history struct{ ring [steps]*step }

func number(now time.Time) int64 { return now.UnixNano() / int64(stepLength) }

// at returns the step with the number, or nil if nothing ended in it.
func (h *history) at(n int64) *step {
	if s := h.ring[n%steps]; s != nil && s.number == n {
		return s
	}
	return nil
}

func (h *history) add(now time.Time, l *proxy.Life) {
	n := number(now)
	s := h.at(n)
	if s == nil {
		if s = h.ring[n%steps]; s == nil {
			s = &step{}
			h.ring[n%steps] = s
		}
		ways := s.ways
		clear(ways)
		*s = step{number: n, ways: ways}
	}
	s.tally.add(l.Outcome)
	if l.Streamed {
		s.ttft.add(l.First)
	}
	if gap := perToken(l); gap > 0 {
		s.tpot.add(gap)
	}
	if l.Path != "" {
		if s.ways == nil {
			s.ways = map[way]int64{}
		}
		s.ways[way{l.Path, l.Reason}]++
	}
}

// Quantiles are in milliseconds. One that is not known is null.
type Quantiles struct {
	P50 *float64 `json:"p50"`
	P90 *float64 `json:"p90"`
	P99 *float64 `json:"p99"`
}

func (s *spread) quantiles() Quantiles {
	return Quantiles{s.quantile(.5), s.quantile(.9), s.quantile(.99)}
}

// Window sums up the last 15 minutes.
type Window struct {
	Seconds float64 `json:"seconds"`
	tally
	TTFT Quantiles `json:"ttft"`
	TPOT Quantiles `json:"tpot"`
	// Ways are the completions by path, then by reason.
	Ways map[string]map[string]int64 `json:"ways"`
}

func (h *history) window(now time.Time) Window {
	w := Window{Seconds: (steps - 1) * stepLength.Seconds(), Ways: map[string]map[string]int64{}}
	var ttft, tpot spread
	for n := number(now) - steps + 1; n <= number(now); n++ {
		s := h.at(n)
		if s == nil {
			continue
		}
		w.OK += s.tally.OK
		w.Failed += s.tally.Failed
		w.Refused += s.tally.Refused
		w.Gone += s.tally.Gone
		ttft.merge(&s.ttft)
		tpot.merge(&s.tpot)
		for k, count := range s.ways {
			if w.Ways[k.path] == nil {
				w.Ways[k.path] = map[string]int64{}
			}
			w.Ways[k.path][k.reason] += count
		}
	}
	w.TTFT, w.TPOT = ttft.quantiles(), tpot.quantiles()
	return w
}

// plotted is how many steps the plots have at least. A process that is younger shows no more.
const plotted = int64(time.Minute / stepLength)

// Plots are series over the whole steps of the last 15 minutes, or since the start, the oldest first. Rates are per second,
// and quantiles in milliseconds; null where nothing ended.
type Plots struct {
	Step    float64               `json:"step"`  // seconds
	Start   int64                 `json:"start"` // Unix seconds of the first step's end
	OK      []float64             `json:"ok"`
	Failed  []float64             `json:"failed"`
	Refused []float64             `json:"refused"`
	Gone    []float64             `json:"gone"`
	TTFT    map[string][]*float64 `json:"ttft"` // by quantile: p50, p90, p99
	TPOT    map[string][]*float64 `json:"tpot"`
}

func (h *history) plots(now, started time.Time) Plots {
	first := max(number(now)-steps+1, min(number(started), number(now)-plotted))
	p := Plots{Step: stepLength.Seconds(), Start: (first + 1) * int64(stepLength/time.Second), TTFT: map[string][]*float64{}, TPOT: map[string][]*float64{}}
	nothing := &step{}
	for n := first; n < number(now); n++ {
		s := h.at(n)
		if s == nil {
			s = nothing
		}
		rate := func(count int64) float64 { return float64(count) / stepLength.Seconds() }
		p.OK, p.Failed = append(p.OK, rate(s.tally.OK)), append(p.Failed, rate(s.tally.Failed))
		p.Refused, p.Gone = append(p.Refused, rate(s.tally.Refused)), append(p.Gone, rate(s.tally.Gone))
		appendQuantiles(p.TTFT, s.ttft.quantiles())
		appendQuantiles(p.TPOT, s.tpot.quantiles())
	}
	return p
}

func appendQuantiles(series map[string][]*float64, q Quantiles) {
	series["p50"] = append(series["p50"], q.P50)
	series["p90"] = append(series["p90"], q.P90)
	series["p99"] = append(series["p99"], q.P99)
}
