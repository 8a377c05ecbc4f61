package router

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// phase is a shape that comes at a rate for phaseTime. Its rate is that of two engines.
type phase struct {
	rate float64
	size
}

const phaseTime = 30.0 // seconds

// follows is a load of phases, one after the other.
type follows struct {
	*load
	plans []planned
}

// planned is a plan that came into force.
type planned struct {
	at      float64
	prefill int
}

// over sends the phases to n engines without roles.
func over(t testing.TB, phases []phase, n int, seed uint64) *follows {
	l := &load{card: h200(), ended: func(*arrival) {}}
	fleet := make([]*engine, n)
	for i := range fleet {
		fleet[i] = newEngine(l)
		fleet[i].free = 320_000
	}
	f := &follows{load: l}
	l.ways = routerOver(t, l, column{"", 0, withoutRoles}, fleet)
	OnPlan(l.r, func(p PlanNow) { f.plans = append(f.plans, planned{l.clock, p.Prefill}) })
	rnd := rand.New(rand.NewPCG(seed, 1))
	for i, p := range phases {
		rate := p.rate * float64(n) / 2
		for at := rnd.ExpFloat64() / rate; at < phaseTime; at += rnd.ExpFloat64() / rate {
			a := &arrival{tokens: p.prompt, answer: p.answer}
			l.all = append(l.all, a)
			l.after(float64(i)*phaseTime+at, func() { l.arrive(a) })
		}
	}
	l.run()
	return f
}

// whole is the mean answer in ms of the requests that came then.
func (f *follows) whole(from, to float64) float64 {
	sum, n := 0.0, 0.0
	for _, a := range f.all {
		if a.at >= from && a.at < to {
			sum, n = sum+(a.done-a.at)*1e3, n+1
		}
	}
	return sum / n
}

// prefill is how many engines prefilled by the plan at that time.
func (f *follows) prefill(at float64) (n int) {
	for _, p := range f.plans {
		if p.at <= at {
			n = p.prefill
		}
	}
	return n
}

// since is how long after a time the plan became the one that it was at the end of the phase.
func (f *follows) since(from float64) float64 {
	want, at := f.prefill(from+phaseTime), from
	for _, p := range f.plans {
		if p.at > from && p.at < from+phaseTime {
			if p.prefill == want && f.prefill(p.at-1e-9) != want {
				at = p.at
			}
		}
	}
	return at - from
}

// BenchmarkPlanFollows prints the table of docs/results/routing.md: how long a plan takes to follow shapes that change each 30 s, and
// what that costs, beside the same shape for a minute.
func BenchmarkPlanFollows(b *testing.B) {
	shapes := []phase{{7, size{5000, 250}}, {5, size{1000, 1000}}, {7, size{5000, 250}}, {40, size{1024, 6}}, {5, size{10000, 100}}, {20, size{200, 250}}}
	for _, n := range []int{2, 4, 8} {
		b.Run(fmt.Sprintf("%d engines", n), func(b *testing.B) {
			for b.Loop() {
				const loads = 3
				for i, p := range shapes {
					var after, mean, alone float64
					plan, was := 0, 0
					for seed := range uint64(loads) {
						f := over(b, append(append([]phase{}, shapes...), shapes...), n, seed)
						begin := float64(i+len(shapes)) * phaseTime
						after, mean = after+f.since(begin)/loads, mean+f.whole(begin, begin+phaseTime)/loads
						plan, was = f.prefill(begin+phaseTime-1e-6), f.prefill(begin)
						alone += over(b, []phase{p, p, p}, n, seed).whole(phaseTime, 2*phaseTime) / loads
					}
					fmt.Printf("| %d | %d/%d, %g/s | %d → %d | %.1f | %.0f | %.0f | %.2f |\n", n, p.prompt, p.answer, p.rate*float64(n)/2, was, plan, after, mean, alone, mean/alone)
				}
			}
		})
	}
}
