package routing

import (
	"slices"
	"time"
)

// followTime is how long a router has to see that transfers have become slower.
const followTime = 60 * time.Second

// follow adds the effect of a change of the transfers: TTFT after a router must have seen it, and
// how many of the long prompts passed a prefill engine before and after.
func (f figures) follow(s *scenario, answers []answer, start time.Time) {
	var ttft []time.Duration
	var before, then share
	for i := range answers {
		a, q := &answers[i], &s.requests[i]
		late := q.at >= s.slower+followTime
		if a.err != nil || q.at < s.warm {
			continue
		}
		if late {
			ttft = append(ttft, a.first.Sub(start.Add(q.at)))
		}
		switch long := q.tokens >= longPrompt; {
		case long && q.at < s.slower:
			before.add(a.path != pathDecodeOnly)
		case long && late:
			then.add(a.path != pathDecodeOnly)
		}
	}
	slices.Sort(ttft)
	f[ttftThen], f[splitBefore], f[splitThen] = percentile(ttft, 90), before.percent(), then.percent()
}

// share returns the part of all for which is returns true.
type share struct{ yes, all int }

func (s *share) add(yes bool) {
	s.all++
	if yes {
		s.yes++
	}
}

func (s share) percent() float64 { return 100 * ratio(float64(s.yes), float64(s.all)) }
