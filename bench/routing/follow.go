package routing

import (
	"math"
	"time"
)

// followedAfter is how many seconds after transfers became slower the long prompts had
// left the prefill engines: from then on nine in ten go to a decode engine alone. NaN if
// they never do, or if most of them did before.
func (s *scenario) followedAfter(answers []answer) float64 {
	var alone []bool // of the long prompts after the change, in their order
	var at []time.Duration
	before, split := 0, 0
	for i := range answers {
		q := &s.requests[i]
		switch {
		case q.tokens < longPrompt || q.at < s.warm || answers[i].err != nil:
		case q.at < s.slower:
			before++
			if answers[i].path != pathDecodeOnly {
				split++
			}
		default:
			alone, at = append(alone, answers[i].path == pathDecodeOnly), append(at, q.at-s.slower)
		}
	}
	if 2*split < before {
		return math.NaN()
	}
	return turningPoint(alone, at)
}

// turningPoint is the time of the first from which on nine in ten are true; NaN if fewer
// than ten are left then.
func turningPoint(yes []bool, at []time.Duration) float64 {
	point, n := math.NaN(), 0
	for i := len(yes) - 1; i >= 0; i-- {
		if yes[i] {
			n++
		}
		if left := len(yes) - i; yes[i] && left >= 10 && 10*n >= 9*left {
			point = at[i].Seconds()
		}
	}
	return point
}
