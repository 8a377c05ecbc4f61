package way

import (
	"cmp"
	"math/bits"
	"slices"
)

const (
	sizeClasses = 24
	// lookback is how far the traffic of a plan looks back, in seconds.
	lookback = 10
	// silence is the least one, in seconds, after which traffic begins anew.
	silence = 1.0
)

// traffic is what came in the last seconds, by size.
type traffic struct {
	seconds [lookback + 1]second
	some    bool
	began   float64 // the first request since a silence
	last    float64 // the last request
	answers [sizeClasses]learned
	senders [senderPlaces]sender
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

// sender is the mean length of the answers to prompts of one size from one sender to one model.
type sender struct {
	who     uint64
	n, mean float64
}

const (
	senderPlaces = 256 // of two senders that fall on one place, the one answered last is known
	senderPrior  = 4   // answers for which those to all prompts of the size count

	usualAnswer  = 256 // tokens, before the first answer
	answerMemory = 64
	unbounded    = 1 << 20 // tokens
)

func classOf(tokens int) int { return min(bits.Len(uint(max(tokens, 0))), sizeClasses-1) }

// who is the sender of prompts of that size, or 0 if it is not known.
func who(sender uint64, prompt float64) uint64 {
	if sender == 0 {
		return 0
	}
	x := (sender + uint64(classOf(int(prompt)))) * 0x9e3779b97f4a7c15
	return max(1, x^x>>32)
}

// expect is how long the answer to a prompt will likely be, where a token takes that long. Before one has ended,
// those that are being made tell: they are no shorter than they are already. What is known of its sender counts more than
// what is known of all.
func (t *traffic) expect(now, prompt, most, token float64, who uint64) float64 {
	says := t.usually(now, prompt, token)
	if s := &t.senders[who%senderPlaces]; who != 0 && s.who == who {
		says = (s.n*s.mean + senderPrior*says) / (s.n + senderPrior)
	}
	return max(1, min(says, most))
}

// usually is expect for a sender of which nothing is known.
func (t *traffic) usually(now, prompt, token float64) float64 {
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
	return says
}

// begun notes the first token of an answer, and answered its end; tokens is 0 if it did not end well.
func (t *traffic) begun(prompt, first float64) {
	a := &t.answers[classOf(int(prompt))]
	a.running++
	a.since += first
}

func (t *traffic) answered(prompt, first float64, tokens int, who uint64) {
	a := &t.answers[classOf(int(prompt))]
	if a.running--; a.running > 0 {
		a.since -= first
	} else {
		a.running, a.since = 0, 0
	}
	if tokens <= 0 {
		return
	}
	a.n = min(a.n+1, answerMemory)
	a.mean += (float64(tokens) - a.mean) / a.n
	if who != 0 {
		s := &t.senders[who%senderPlaces]
		if s.who != who {
			*s = sender{who: who}
		}
		s.n = min(s.n+1, answerMemory)
		s.mean += (float64(tokens) - s.mean) / s.n
	}
}

// begins reports that a request comes first, or after a silence in which nothing was under way. Silence is no traffic: the
// rate of what comes now is not what came in it.
func (t *traffic) begins(now float64, underway int) bool {
	if !t.some || underway == 0 && now-t.last > silence {
		t.some, t.began, t.seconds = true, now, [lookback + 1]second{}
		return true
	}
	return false
}

func (t *traffic) came(now, prompt, fresh, most float64) {
	t.last = now
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
		if s.at < int64(now)-lookback {
			continue
		}
		for i := range s.n {
			sum.n[i] += s.n[i]
			sum.prompt[i] += s.prompt[i]
			sum.fresh[i] += s.fresh[i]
			sum.most[i] += s.most[i]
		}
	}
	window := min(max(now-t.began, 0.5), lookback)
	for i, k := range sum.n {
		if k > 0 {
			n += k
			all = append(all, Class{k / window, sum.prompt[i] / k, sum.fresh[i] / k, t.expect(now, sum.prompt[i]/k, sum.most[i]/k, token, 0)})
		}
	}
	slices.SortFunc(all, func(a, b Class) int { return cmp.Compare(a.Fresh, b.Fresh) })
	return all, n
}
