package routing

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"time"
)

// workload is a kind of traffic.
type workload struct {
	name, title string
	generate    func(g *generator)
	load        float64 // computed prompt tokens that the oracle leaves, as a share of what the engines named by whole can compute
	whole       bool    // of both pools, otherwise of the prefill pool
	engines     engineSetup
	length      time.Duration // 0 means as the run's options say
	slower      time.Duration // when transfers become ten times slower; 0 means never
	among       []string      // contenders; nil means all
	random      bool          // caches are of no use, so it is enough not to be worse
	split       bool          // judged by whether auto beats always and never
}

// engineSetup is how fast and how large an engine is.
type engineSetup struct {
	Speed         float64       `json:"speed"`          // prompt tokens computed a second
	PrefillBlocks int           `json:"prefill_blocks"` // KV blocks of a prefill engine
	DecodeBlocks  int           `json:"decode_blocks"`
	Transfer      time.Duration `json:"transfer"` // of one block
	TokenLatency  time.Duration `json:"token_latency"`
	Profile       string        `json:"profile,omitempty"` // of the simulated engines, in place of these times
}

func usualEngines() engineSetup {
	return engineSetup{Speed: 5000, PrefillBlocks: 4096, DecodeBlocks: 8192, Transfer: 100 * time.Microsecond, TokenLatency: 15 * time.Millisecond}
}

// workloads are all kinds, in the order of the tables. tr is nil without a trace.
func workloads(tr *trace) []workload {
	slow := usualEngines()
	slow.Transfer = 400 * time.Microsecond
	all := []workload{
		{name: "system", title: "shared system prompts", generate: systemPrompts, load: 0.7, engines: usualEngines()},
		{name: "chats", title: "multi-turn chats", generate: chats, load: 0.7, engines: usualEngines()},
		{name: "documents", title: "long documents asked twice", generate: documents, load: 0.7, engines: usualEngines()},
		{name: "random", title: "random prompts, nothing shared", generate: unique, load: 0.7, engines: usualEngines(), random: true},
		{name: "bursts", title: "a mix of the four with bursts", generate: bursts, load: 0.6, engines: usualEngines()},
		{name: "selective", title: "200-token and 8,000-token prompts", generate: shortAndLong, load: 0.55, whole: true, engines: slow, split: true},
		{
			name: "slower", title: "200 and 8,000 tokens, transfers ten times slower", generate: shortAndLong, load: 0.35, whole: true, engines: slow,
			length: 180 * time.Second, slower: 75 * time.Second, among: []string{candidate, splits, neverSplits},
		},
	}
	h200 := engineSetup{Speed: 40_000, PrefillBlocks: 16_384, DecodeBlocks: 16_384, Profile: "h200-qwen3-8b"}
	all = append(all,
		workload{name: "h200-mixed", title: "as on H200s: 5,000-token and 200-token prompts", generate: fixed(5000, 200), load: 0.52, engines: h200, random: true},
		workload{name: "h200-long", title: "as on H200s: 5,000-token prompts", generate: fixed(5000), load: 0.5, engines: h200, random: true},
		workload{name: "h200-busy", title: "as on H200s: 5,000 tokens, 1.5 times the rate", generate: fixed(5000), load: 0.75, engines: h200, random: true},
	)
	if tr != nil {
		large := engineSetup{Speed: 40_000, PrefillBlocks: 32_768, DecodeBlocks: 65_536, Transfer: 20 * time.Microsecond, TokenLatency: 15 * time.Millisecond}
		all = append(all, workload{name: "trace", title: "trace", generate: tr.generate, load: 0.7, engines: large})
	}
	return all
}

// topology is how many engines of each role there are.
type topology struct{ prefill, decode int }

func parseTopology(text string) (topology, error) {
	var t topology
	var rest string
	n, _ := fmt.Sscanf(text, "%dP%d%s", &t.prefill, &t.decode, &rest)
	if n != 3 || rest != "D" || t.prefill < 1 || t.decode < 1 {
		return t, fmt.Errorf("topology %q is not of the form 4P4D", text)
	}
	return t, nil
}

func (t topology) String() string { return fmt.Sprintf("%dP%dD", t.prefill, t.decode) }

// generator is what a workload draws from.
type generator struct {
	*rand.Rand
	rate   float64       // requests a second, about
	length time.Duration // no turn comes later
	turns  []turn
}

// add adds a turn unless it comes too late.
func (g *generator) add(t turn) {
	if t.at < g.length {
		g.turns = append(g.turns, t)
	}
}

// arrivals calls each at times whose gaps are exponential, at rate a second. The rate rises from
// zero while caches warm, so that the engines are not late from then on.
func (g *generator) arrivals(rate float64, each func(at time.Duration)) {
	for at := g.gap(rate); at < g.length; at += g.gap(rate) {
		if g.Float64()*float64(warmTime(g.length)) < float64(at) {
			each(at)
		}
	}
}

func (g *generator) gap(rate float64) time.Duration {
	return time.Duration(g.ExpFloat64() / rate * float64(time.Second))
}

// warmTime is the first part of a measurement. What comes in it does not count.
func warmTime(length time.Duration) time.Duration { return length * 3 / 10 }

// scenario is a workload's requests over a topology, ready to be sent.
type scenario struct {
	workload
	on       topology
	length   time.Duration
	warm     time.Duration // what came before does not count: caches fill
	requests []request
	rate     float64 // requests a second
	oracle   figures
}

// draw makes the requests from seed, the same each time. Of several rates it takes the one by which
// the oracle's engines come closest to being as busy as the workload says.
func draw(w workload, on topology, length time.Duration, seed uint64) *scenario {
	if w.length > 0 {
		length = w.length
	}
	capacity := w.engines.Speed * float64(on.prefill)
	if w.whole {
		capacity = w.engines.Speed * float64(on.prefill+on.decode)
	}
	var best *scenario
	off := math.Inf(1)
	rate := capacity * w.load / 1000
	for range drawTries {
		s := &scenario{workload: w, on: on, length: length, warm: warmTime(length), requests: requestsOf(w.turns(rate, length, seed))}
		s.rate = float64(len(s.requests)) / length.Seconds()
		s.oracle = s.ideal(modeAlways)
		busy := s.oracle[computedTokens] / (length - s.warm).Seconds() / capacity
		if now := math.Abs(busy/w.load - 1); now < off {
			best, off = s, now
		}
		if off < drawnWell {
			break
		}
		rate *= min(4, max(0.25, w.load/max(busy, 1e-9)))
	}
	return best
}

const (
	drawTries = 12
	drawnWell = 0.03 // how much more or less busy the oracle may be
)

// turns draws from a source of the workload's own.
func (w workload) turns(rate float64, length time.Duration, seed uint64) []turn {
	h := fnv.New64a()
	_, _ = h.Write([]byte(w.name)) // never fails
	g := &generator{Rand: rand.New(rand.NewPCG(seed, h.Sum64())), rate: rate, length: length}
	w.generate(g)
	return g.turns
}
