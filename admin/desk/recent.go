package desk

import (
	"time"

	"xpyd/proxy"
)

// The figures by engine have steps of recentStep. One of them is under way.
const (
	recentStep  = time.Minute
	recentSteps = 6
)

// Engine names an engine in one role.
type Engine struct{ Role, URL string }

// Recent are the figures of an engine over the last minutes, of the completions that ended. What is not known is absent.
type Recent struct {
	Seconds float64 `json:"seconds"` // that they are about
	Rate    float64 `json:"rate"`    // legs a second
	Failed  int64   `json:"failed"`  // completions that failed on it
	// TTFT is the mean time of its legs to the first token, and TPOT the mean gap between the events of its streams, both in
	// milliseconds.
	TTFT *float64 `json:"ttft,omitempty"`
	TPOT *float64 `json:"tpot,omitempty"`
}

// engineSum is what one engine has done.
type engineSum struct {
	legs, failed, firsts, gaps int64
	first, gap                 time.Duration // of firsts and gaps together
}

func (s *engineSum) merge(o *engineSum) {
	s.legs, s.failed, s.firsts, s.gaps = s.legs+o.legs, s.failed+o.failed, s.firsts+o.firsts, s.gaps+o.gaps
	s.first, s.gap = s.first+o.first, s.gap+o.gap
}

// recent is a ring of steps, by engine.
type recent struct {
	ring [recentSteps]struct {
		number int64
		by     map[Engine]*engineSum
	}
}

func (r *recent) add(now time.Time, l *proxy.Life) {
	n := now.UnixNano() / int64(recentStep)
	step := &r.ring[n%recentSteps]
	if step.number != n {
		step.number, step.by = n, map[Engine]*engineSum{}
	}
	of := func(role, url string) *engineSum {
		e := Engine{role, url}
		s := step.by[e]
		if s == nil {
			s = &engineSum{}
			step.by[e] = s
		}
		s.legs++
		if isFailure(l) && failedOn(l) == url {
			s.failed++
		}
		return s
	}
	if l.Prefill != "" {
		s := of("prefill", l.Prefill)
		if l.Path == pathSplit && l.Prefilled > 0 {
			s.first += l.Prefilled - l.Prefilling
			s.firsts++
		}
	}
	if l.Decode != "" {
		s := of("decode", l.Decode)
		if l.Streamed {
			s.first += l.First - max(l.Asked, l.Handed)
			s.firsts++
		}
		if gap := perToken(l); gap > 0 {
			s.gap += gap
			s.gaps++
		}
	}
}

// Recent returns the figures of the engines that completions went to in the last minutes.
func (d *Desk) Recent() map[Engine]Recent {
	now := d.clock()
	n := now.UnixNano() / int64(recentStep)
	d.mu.Lock()
	sums := map[Engine]*engineSum{}
	for i := range d.recent.ring {
		step := &d.recent.ring[i]
		if step.number <= n-recentSteps {
			continue
		}
		for e, s := range step.by {
			if sums[e] == nil {
				sums[e] = &engineSum{}
			}
			sums[e].merge(s)
		}
	}
	d.mu.Unlock()
	span := min((recentSteps-1)*recentStep+time.Duration(now.UnixNano()%int64(recentStep)), max(time.Second, now.Sub(d.Started)))
	all := make(map[Engine]Recent, len(sums))
	for e, s := range sums {
		r := Recent{Seconds: span.Seconds(), Rate: float64(s.legs) / span.Seconds(), Failed: s.failed}
		r.TTFT, r.TPOT = mean(s.first, s.firsts), mean(s.gap, s.gaps)
		all[e] = r
	}
	return all
}

// mean is in milliseconds, or nil of nothing.
func mean(sum time.Duration, n int64) *float64 {
	if n == 0 {
		return nil
	}
	v := ms(sum) / float64(n)
	return &v
}
