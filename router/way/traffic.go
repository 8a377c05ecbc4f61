package way

import (
	"cmp"
	"math/bits"
	"slices"
)

const sizeClasses = 24

// traffic is what came in the last seconds, by size.
type traffic struct {
	seconds [horizon + 1]second
	some    bool
	began   float64 // the first request
	answers [sizeClasses]learned
}

// second is the requests of one second.
type second struct {
	at                     int64
	n, prompt, fresh, most [sizeClasses]float64
}

// learned is the mean length of the answers to prompts of one size.
type learned struct {
	n, mean        float64
	running, since float64 // answers that are being made, and the sum of the times of their first tokens
}

const (
	usualAnswer  = 256 // tokens, before the first answer
	answerMemory = 64
	unbounded    = 1 << 20 // tokens
)

func classOf(tokens int) int { return min(bits.Len(uint(max(tokens, 0))), sizeClasses-1) }

// expect is how long the answer to a prompt will likely be, where a token takes that long. Before one has ended,
// those that are being made tell: they are no shorter than they are already.
func (t *traffic) expect(now, prompt, most, token float64) float64 {
	a := &t.answers[classOf(int(prompt))]
	says, n := a.mean, a.n
	if n == 0 {
		for i := range t.answers {
			x := &t.answers[i]
			says, n = says+x.n*x.mean, n+x.n
		}
		says /= max(n, 1)
	}
	if n == 0 {
		says = usualAnswer
	}
	if a.n == 0 && a.running > 0 {
		says = max(says, (now-a.since/a.running)/token)
	}
	return max(1, min(says, most))
}

// begun notes the first token of an answer, and answered its end; tokens is 0 if it did not end well.
func (t *traffic) begun(prompt, first float64) {
	a := &t.answers[classOf(int(prompt))]
	a.running++
	a.since += first
}

func (t *traffic) answered(prompt, first float64, tokens int) {
	a := &t.answers[classOf(int(prompt))]
	if a.running--; a.running > 0 {
		a.since -= first
	} else {
		a.running, a.since = 0, 0
	}
	if tokens > 0 {
		a.n = min(a.n+1, answerMemory)
		a.mean += (float64(tokens) - a.mean) / a.n
	}
}

func (t *traffic) came(now float64, prompt, fresh, most float64) {
	if !t.some {
		t.some, t.began = true, now
	}
	s := &t.seconds[int64(now)%int64(len(t.seconds))]
	if s.at != int64(now) {
		*s = second{at: int64(now)}
	}
	i := classOf(int(fresh))
	s.n[i]++
	s.prompt[i] += prompt
	s.fresh[i] += fresh
	s.most[i] += most
}

// classes sums the last seconds up, and returns how many requests that were.
func (t *traffic) classes(now, token float64) (all []Class, n float64) {
	var sum second
	for i := range t.seconds {
		s := &t.seconds[i]
		if s.at < int64(now)-horizon {
			continue
		}
		for i := range s.n {
			sum.n[i] += s.n[i]
			sum.prompt[i] += s.prompt[i]
			sum.fresh[i] += s.fresh[i]
			sum.most[i] += s.most[i]
		}
	}
	window := min(max(now-t.began, 0.5), horizon)
	for i, k := range sum.n {
		if k > 0 {
			n += k
			all = append(all, Class{k / window, sum.prompt[i] / k, sum.fresh[i] / k, t.expect(now, sum.prompt[i]/k, sum.most[i]/k, token)})
		}
	}
	slices.SortFunc(all, func(a, b Class) int { return cmp.Compare(a.Fresh, b.Fresh) })
	return all, n
}
