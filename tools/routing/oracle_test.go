package routing

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"
)

// prompt has full blocks with those hashes and one more token.
func prompt(at time.Duration, blocks ...uint64) request {
	return request{at: at, tokens: len(blocks)*blockTokens + 1, blocks: blocks}
}

// Blocks are found by their whole prefix. The least recently used goes first, and the last one of a
// prompt before the others.
func TestBlockCache(t *testing.T) {
	c := newBlockCache(4)
	a, b, longer := prompt(0, 1, 2), prompt(0, 10, 11), prompt(0, 1, 2, 3)
	c.put(&a)
	c.put(&b)
	for _, tc := range []struct {
		name string
		q    request
		want int
	}{{"cached", a, 32}, {"a longer one", longer, 32}, {"not its beginning", prompt(0, 9, 2), 0}, {"another", b, 32}} {
		if got := c.hit(&tc.q); got != tc.want {
			t.Errorf("%s: %d tokens of it are cached, want %d", tc.name, got, tc.want)
		}
	}
	whole := request{tokens: 32, blocks: []uint64{1, 2}}
	if got := c.hit(&whole); got != 16 {
		t.Errorf("a prompt of nothing but cached blocks: %d tokens, want 16, as its last token must be computed", got)
	}
	c.put(&longer) // b is the older one, and gives its last block
	if got := []int{c.hit(&a), c.hit(&b), c.hit(&longer)}; !slices.Equal(got, []int{32, 16, 48}) {
		t.Errorf("after a fifth block: %v tokens, want 32, 16 and 48", got)
	}
}

// These are two engines that compute a block a second. The second request waits for neither. The
// third goes where its prefix is, although that engine is busy for longer. The fourth does not,
// because it would take too long.
func TestOracleTradesWaitForHits(t *testing.T) {
	s := &scenario{workload: workload{engines: engineSetup{Speed: blockTokens, PrefillBlocks: 100}}, on: topology{prefill: 2, decode: 1}, length: time.Minute}
	long := []uint64{1, 2, 3, 4, 5, 6, 7}
	s.requests = []request{
		prompt(0, long...),                                    // engine 0, until 7 1/16 s
		prompt(0, 20, 21, 22, 23, 24, 25),                     // engine 1, until 6 1/16 s
		prompt(5*time.Second, append(long, 8)...),             // engine 0: 2 1/16 + 1 1/16 s, not 1 1/16 + 8 1/16
		prompt(5*time.Second, append([]uint64{1}, 90, 91)...), // engine 0: 3 2/16 + 2 1/16, engine 1: 1 1/16 + 3 1/16
	}
	f := s.ideal(modeAlways)
	sixteenth := 1000.0 / blockTokens
	// 7 1/16, 6 1/16, 3 2/16 and 4 2/16 s
	for _, tc := range []struct {
		k    metric
		want float64
	}{
		{ttft50, 4000 + 2*sixteenth}, {ttft99, 7000 + sixteenth},
		{computedTokens, (7*blockTokens + 1) + (6*blockTokens + 1) + (blockTokens + 1) + (3*blockTokens + 1)},
		{hits, 100 * 7 * blockTokens / float64((7+6+8+3)*blockTokens+4)},
	} {
		if got := f[tc.k]; math.Abs(got-tc.want) > 0.001 {
			t.Errorf("%s: %g, want %g", tc.k, got, tc.want)
		}
	}
	// Engine 0 has computed 7 + 1 blocks and 2 tokens, engine 1 6 + 3 and 2.
	if want := (9*blockTokens + 2) / (8.5*blockTokens + 2); math.Abs(f[imbalance]-want) > 0.001 {
		t.Errorf("imbalance %g, want %g", f[imbalance], want)
	}
}

// With a choice of the way, a prompt is computed where that ends first: on decode without a
// transfer, which leaves its blocks there, and on prefill while decode is busy. What was pulled is
// not pulled twice.
func TestOracleChoosesTheWay(t *testing.T) {
	s := &scenario{workload: workload{engines: engineSetup{Speed: blockTokens, PrefillBlocks: 100, DecodeBlocks: 100, Transfer: time.Second / 10}}, on: topology{prefill: 1, decode: 1}, length: time.Minute}
	s.requests = []request{
		prompt(0, 1, 2, 3, 4),                 // decode, until 4 1/16 s
		prompt(0, 5, 6),                       // prefill, 2 1/16 s and 0.2 s
		prompt(10*time.Second, 5, 6),          // either way 1/16 s, because decode has pulled it
		prompt(20*time.Second, 1, 2, 3, 4, 7), // decode, 1 1/16 s
	}
	for mode, want := range map[string]struct{ alone, hits float64 }{
		modeAuto:   {50, 6.0 * blockTokens},
		modeNever:  {100, 6.0 * blockTokens},
		modeAlways: {0, 6.0 * blockTokens},
	} {
		f := s.ideal(mode)
		if share := 100 * want.hits / (13*blockTokens + 4); f[direct] != want.alone || math.Abs(f[hits]-share) > 0.001 {
			t.Errorf("%s: %.1f %% to decode alone, %.3f %% hits, want %.1f and %.3f", mode, f[direct], f[hits], want.alone, share)
		}
	}
	// 2 1/16 s and 0.2 s; 4 1/16 s; a token, nothing to pull; a block more and a token.
	if got, want := s.ideal(modeAuto)[ttft99], 4062.5; math.Abs(got-want) > 1 {
		t.Errorf("the longest of auto takes %g ms, want %g", got, want)
	}
	if got, want := s.ideal(modeAlways)[ttft99], 6125+200.0; math.Abs(got-want) > 1 {
		t.Errorf("the longest of always takes %g ms, want %g", got, want)
	}
}

func TestImbalance(t *testing.T) {
	if got := mostToMean([]float64{3, 1, 2, 2}); got != 1.5 {
		t.Errorf("imbalance %g, want 1.5", got)
	}
	if got := mostToMean([]float64{0, 0}); !math.IsNaN(got) {
		t.Errorf("of nothing: %g, want NaN", got)
	}
}

// Requests from the time in which a router may still learn count on neither side.
func TestFollow(t *testing.T) {
	start := time.Now()
	s := &scenario{workload: workload{slower: 20 * time.Second}, warm: 10 * time.Second}
	var answers []answer
	add := func(at, tokens, ttft int, path string) {
		q := request{at: time.Duration(at) * time.Second, tokens: tokens}
		s.requests = append(s.requests, q)
		answers = append(answers, answer{first: start.Add(q.at + time.Duration(ttft)*time.Millisecond), path: path})
	}
	add(5, longPrompt, 1, "disaggregated")
	for range 3 {
		add(15, longPrompt, 2, "disaggregated")
		add(30, longPrompt, 9000, "disaggregated")
		add(79, longPrompt, 9000, "disaggregated")
		add(80, longPrompt, 500, pathDecodeOnly)
		add(90, 200, 20, "disaggregated")
	}
	add(16, longPrompt, 2, pathDecodeOnly)
	add(91, longPrompt, 600, "disaggregated")
	answers[0].err = errors.New("none of the others")
	f := figures{}
	f.follow(s, answers, start)
	if f[splitBefore] != 75 || f[splitThen] != 25 || f[ttftThen] != 600 {
		t.Errorf("%v, want 75 %% split before, 25 %% then, and 600 ms", f)
	}
}
