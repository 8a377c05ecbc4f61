package router

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"xpyd/internal/racetest"
)

// row is a load on a fleet. Its rates and numbers are those of two engines; with more, there is more of it.
type row struct {
	name  string
	rate  float64  // requests a second, in place of open
	open  int      // requests that are always open
	n     int      // requests, or those of each shape that changes
	sizes [][]size // each for a time, one after the other; the sizes of one take turns by chance
	talks talks
	slow  bool // one engine is three times as slow after a third of the load
	dies  bool // or dies then
}

// fleetRows are the loads of docs/results/routing.md. The first seven were measured on two H200s.
func fleetRows() []row {
	of := func(all ...size) [][]size { return [][]size{all} }
	turning := [][]size{{{5000, 250}}, {{1000, 1000}}, {{1024, 6}}, {{5000, 250}}}
	return []row{
		{name: "1,000/1,000, 64 at once", open: 64, n: 192, sizes: of(size{1000, 1000})},
		{name: "10,000/1,000, 24 at once", open: 24, n: 72, sizes: of(size{10000, 1000})},
		{name: "1,024/6, 16 at once", open: 16, n: 600, sizes: of(size{1024, 6})},
		{name: "5,000/250, 8/s", rate: 8, n: 240, sizes: of(size{5000, 250})},
		{name: "5,000/250, 4/s", rate: 4, n: 160, sizes: of(size{5000, 250})},
		{name: "conversations", talks: talks{32, 5, 1000, 2000, 200, 200, .4}},
		{name: "agents", talks: talks{12, 8, 4000, 4000, 600, 80, 1}},
		{name: "200/250, 20/s", rate: 20, n: 500, sizes: of(size{200, 250})},
		{name: "2,000/100, 10/s", rate: 10, n: 300, sizes: of(size{2000, 100})},
		{name: "5,000/250 and 200/250, 8/s", rate: 8, n: 240, sizes: of(size{5000, 250}, size{200, 250})},
		{name: "5,000/250 and 200/250, 12/s", rate: 12, n: 360, sizes: of(size{5000, 250}, size{200, 250})},
		{name: "10,000/100 and 1,000/300, 6/s", rate: 6, n: 180, sizes: of(size{10000, 100}, size{1000, 300})},
		{name: "200/400, 4,000/150 and 8,000/20, 6/s", rate: 6, n: 180, sizes: of(size{200, 400}, size{4000, 150}, size{8000, 20})},
		{name: "shapes that change, 5/s", rate: 5, n: 150, sizes: turning},
		{name: "an engine becomes slow", rate: 4, n: 160, sizes: of(size{5000, 250}, size{1000, 250}), slow: true},
		{name: "an engine dies", rate: 4, n: 160, sizes: of(size{5000, 250}, size{1000, 250}), dies: true},
	}
}

// column is a way to use n engines.
type column struct {
	name    string
	prefill int // engines of fixed roles that prefill; 0: all are whole
	mode    string
}

func columns(n int) (all []column) {
	for k := 1; k < n; k++ {
		all = append(all, column{fmt.Sprintf("always %d:%d", k, n-k), k, PDAlways}, column{fmt.Sprintf("auto %d:%d", k, n-k), k, PDAuto})
	}
	return append(all, column{"whole", 0, PDNever}, column{"fleet", 0, withoutRoles})
}

// withoutRoles is the mode of a column whose engines have no roles.
const withoutRoles = "fleet"

// outcome is what a column made of a row, in milliseconds.
type outcome struct {
	whole, ttft, tpot, itl, tokens float64 // the mean answer; p90, p90, p99; tokens a second
}

// run is one row in one column.
func (r row) run(t testing.TB, c column, gpu card, n int, seed uint64) outcome {
	l := &load{card: gpu}
	fleet := make([]*engine, n)
	for i := range fleet {
		fleet[i] = newEngine(l)
		fleet[i].free = 320_000 // of 44 GiB
	}
	l.ways = routerOver(t, l, c, fleet)
	r.feed(l, float64(n)/2, rand.New(rand.NewPCG(seed, 1)))
	if r.slow || r.dies {
		l.after(float64(r.n)/r.rate/3, func() {
			if r.dies {
				fleet[0].die()
				return
			}
			fleet[0].slower = 3
		})
	}
	l.run()
	return l.outcome()
}

// routerOver makes a router over the engines. Those that prefill come first.
func routerOver(t testing.TB, l *load, c column, fleet []*engine) *routed {
	cfg, at := DefaultConfig(), map[string]*engine{}
	cfg.PD.Mode = c.mode
	cfg.Health.SlowStart = 0
	for i, e := range fleet {
		url := fmt.Sprintf("http://e%d:1", i)
		at[url] = e
		switch {
		case c.mode == withoutRoles:
			cfg.PD.Mode, cfg.Engines = PDAuto, append(cfg.Engines, MustEntries(url)...)
		case i < c.prefill:
			cfg.Prefill = append(cfg.Prefill, MustEntries(url)...)
		default:
			cfg.Decode = append(cfg.Decode, MustEntries(url)...)
		}
	}
	x := &pricer{now: time.Unix(1000, 0)}
	r, err := New(cfg, 1, func() time.Time { return x.now })
	if err != nil {
		t.Fatal(err)
	}
	x.r, x.s, l.pricer = r, r.Snapshot(), x
	out := &routed{l: l, t: t, pd: cfg.PD, at: map[*Backend]*engine{}}
	for _, role := range []Role{Prefill, Decode} {
		for _, b := range x.s.Backends(role) {
			out.at[b] = at[b.URL]
		}
	}
	return out
}

// feed sends the requests of the row.
func (r row) feed(l *load, times float64, rnd *rand.Rand) {
	l.ended = func(*arrival) {}
	if r.talks.chats > 0 {
		r.talks.feed(l, times, rnd)
		return
	}
	n := int(float64(r.n) * times)
	at := 0.0
	for _, sizes := range r.sizes {
		for range n {
			of := sizes[rnd.IntN(len(sizes))]
			a := &arrival{tokens: of.prompt, answer: of.answer}
			l.all = append(l.all, a)
			if r.rate > 0 {
				at += rnd.ExpFloat64() / r.rate / times
				l.after(at, func() { l.arrive(a) })
			}
		}
	}
	if r.open == 0 {
		return
	}
	next := 0
	for ; next < int(float64(r.open)*times); next++ {
		a := l.all[next]
		l.after(0, func() { l.arrive(a) })
	}
	l.ended = func(*arrival) {
		if next < len(l.all) {
			next++
			l.arrive(l.all[next-1])
		}
	}
}

// outcome sums up. The first turn of a conversation does not count.
func (l *load) outcome() (o outcome) {
	var ttft, tpot []float64
	tokens, end := 0, 0.0
	for _, a := range l.all {
		tokens, end = tokens+a.answer, max(end, a.done)
		if a.chat != nil && a.turn == 0 {
			continue
		}
		ttft = append(ttft, (a.first-a.at)*1e3)
		tpot = append(tpot, (a.done-a.first)*1e3/float64(a.answer-1))
		o.whole += (a.done - a.at) * 1e3
	}
	o.whole /= float64(len(ttft))
	o.ttft, o.tpot, o.itl, o.tokens = p90(ttft), p90(tpot), l.gaps.p99(), float64(tokens)/end
	return o
}

// mean is that of several loads.
func (r row) mean(t testing.TB, c column, gpu card, n int) (o outcome) {
	const loads = 3
	for seed := range uint64(loads) {
		x := r.run(t, c, gpu, n, seed)
		o.whole, o.ttft, o.tpot, o.itl, o.tokens = o.whole+x.whole/loads, o.ttft+x.ttft/loads, o.tpot+x.tpot/loads, o.itl+x.itl/loads, o.tokens+x.tokens/loads
	}
	return o
}

func (o outcome) String() string {
	return fmt.Sprintf("%.0f ms, %.0f tok/s, TTFT p90 %.0f, TPOT p90 %.1f, ITL p99 %.0f", o.whole, o.tokens, o.ttft, o.tpot, o.itl)
}

// In each row that was measured on two H200s, the one that ends answers sooner is the same in virtual time: the split, or
// two engines that serve whole.
func TestVirtualTimeAgreesWithGPUs(t *testing.T) {
	racetest.SkipPure(t)
	measured := map[string]struct{ split, whole float64 }{
		"1,000/1,000, 64 at once":  {9064, 7681},
		"10,000/1,000, 24 at once": {14720, 12970},
		"1,024/6, 16 at once":      {385, 213},
		"5,000/250, 8/s":           {2807, 3539},
		"5,000/250, 4/s":           {1873, 1931},
		"conversations":            {1449, 1319},
		"agents":                   {587, 712},
	}
	for _, r := range fleetRows() {
		gpu, ok := measured[r.name]
		if !ok {
			continue
		}
		split, whole := r.mean(t, column{"", 1, PDAlways}, h200(), 2), r.mean(t, column{"", 0, PDNever}, h200(), 2)
		t.Logf("%s: split %v, whole %v; on GPUs %.0f and %.0f ms", r.name, split, whole, gpu.split, gpu.whole)
		if (split.whole < whole.whole) != (gpu.split < gpu.whole) {
			t.Errorf("%s: virtual time says that split takes %.0f ms and whole engines %.0f; GPUs took %.0f and %.0f", r.name, split.whole, whole.whole, gpu.split, gpu.whole)
		}
	}
}

// beside is the fleet without roles beside the best and the worst of the other columns.
type beside struct {
	best                   column
	whole, ttft, tpot, itl float64 // parts: of the least mean answer, and of the highest of each other figure
}

// judge runs a row in all columns.
func (r row) judge(t testing.TB, gpu card, n int, columns []column) (v beside, all []string) {
	var fleet, least, most outcome
	least.whole = math.Inf(1)
	for _, c := range columns {
		o := r.mean(t, c, gpu, n)
		all = append(all, fmt.Sprintf("%s %v", c.name, o))
		if c.mode == withoutRoles {
			fleet = o
			continue
		}
		if o.whole < least.whole {
			least, v.best = o, c
		}
		most.ttft, most.tpot, most.itl = max(most.ttft, o.ttft), max(most.tpot, o.tpot), max(most.itl, o.itl)
	}
	v.whole, v.ttft, v.tpot, v.itl = fleet.whole/least.whole, fleet.ttft/most.ttft, fleet.tpot/most.tpot, fleet.itl/most.itl
	return v, all
}

// BenchmarkFleetTable prints the figures of docs/results/routing.md, and more.
func BenchmarkFleetTable(b *testing.B) {
	for name, gpu := range map[string]card{"H200": h200(), "H100": h100()} {
		for _, n := range []int{2, 3, 4} {
			b.Run(fmt.Sprintf("%s, %d engines", name, n), func(b *testing.B) {
				for b.Loop() {
					for _, r := range fleetRows() {
						v, all := r.judge(b, gpu, n, columns(n))
						fmt.Printf("%s, %d engines, %s: %.3f of %s; TTFT %.2f, TPOT %.2f, ITL %.2f of the highest:\n\t%s\n", name, n, r.name, v.whole, v.best.name, v.ttft, v.tpot, v.itl, strings.Join(all, "\n\t"))
					}
				}
			})
		}
	}
}

// Two engines without roles end whole answers about as soon as a fixed split or whole engines, in each row, although
// which of these is the best differs from row to row. The goal is 1.03; docs/results/routing.md says which rows miss it.
func TestFleetIsNearTheBestColumn(t *testing.T) {
	racetest.SkipPure(t)
	var fixed []column
	for _, c := range columns(2) {
		if c.mode != PDAuto {
			fixed = append(fixed, c)
		}
	}
	for _, r := range fleetRows() {
		t.Run(r.name, func(t *testing.T) {
			if v, all := r.judge(t, h200(), 2, fixed); v.whole > 1.04 {
				t.Errorf("whole answers take %.3f times as long as with %s:\n\t%s", v.whole, v.best.name, strings.Join(all, "\n\t"))
			}
		})
	}
}
