package router

import (
	"cmp"
	"slices"
	"testing"
)

// link is a network that transfers share evenly.
type link struct {
	l     *load
	token float64 // seconds of a token with the whole link
	jobs  []*linkJob
	at    float64 // when left was worked out
	epoch int     // of the jobs; an event of another one is stale
}

type linkJob struct {
	left float64 // seconds with the whole link
	do   func()
}

// carry moves the tokens and calls do then.
func (k *link) carry(tokens int, do func()) {
	k.work()
	k.jobs = append(k.jobs, &linkJob{float64(tokens) * k.token, do})
	k.wake()
}

// work takes off what the jobs have got since the last time.
func (k *link) work() {
	for _, j := range k.jobs {
		j.left -= (k.l.clock - k.at) / float64(len(k.jobs))
	}
	k.at = k.l.clock
}

// wake waits for the job that ends first.
func (k *link) wake() {
	k.epoch++
	if len(k.jobs) == 0 {
		return
	}
	mine, first := k.epoch, slices.MinFunc(k.jobs, func(a, b *linkJob) int { return cmp.Compare(a.left, b.left) })
	k.l.after(max(0, first.left)*float64(len(k.jobs)), func() {
		if mine != k.epoch {
			return
		}
		k.work()
		k.jobs = slices.DeleteFunc(k.jobs, func(j *linkJob) bool { return j == first })
		k.wake()
		first.do()
	})
}

// Where transfers are slow, auto begins without their price. It learns that they share the network before many
// prompts wait for it: first tokens come at most one transfer later than with never, and whole answers as soon. On two
// H100s that read blocks over TCP, first tokens came 20 s later, because each prompt was split at the price of one that
// is alone.
func TestAutoDoesNotQueueForSlowTransfers(t *testing.T) {
	const token = 1.4 / 5000
	for name, tr := range map[string]offered{
		"mixed 8": {card: h200(), rate: 8, sizes: mixed, slow: token},
		"long 4":  {card: h200(), rate: 4, sizes: long, slow: token},
	} {
		t.Run(name, func(t *testing.T) {
			auto, never := tr.median(t, PDAuto), tr.median(t, PDNever)
			for _, size := range tr.sizes {
				a, n := auto[size], never[size]
				t.Logf("%v tokens: TTFT p90 %.0f, never %.0f ms; TPOT p90 %.2f, %.2f ms; whole answer %.0f, %.0f ms", size, a.ttft, n.ttft, a.tpot, n.tpot, a.whole, n.whole)
				if a.ttft > n.ttft+5000*token*1e3 || a.tpot > n.tpot || a.whole > 1.02*n.whole {
					t.Errorf("%v tokens: worse than decode alone", size)
				}
			}
		})
	}
}
