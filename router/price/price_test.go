package price

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if math.Abs(got-want) > within*math.Abs(want) {
		t.Errorf("%s: %g, want %g within %g %%", what, got, want, within*100)
	}
}

// The prices of a token and of a request are found under noise.
func TestLineFindsBothParts(t *testing.T) {
	var l line
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 400 {
		x := rnd.Float64() * 8000
		l.add(x, (0.010+x*1e-4)*(0.9+0.2*rnd.Float64()), int64(i)*int64(20*time.Millisecond), nil)
	}
	near(t, "8,000 tokens", l.at(8000), 0.810, 0.1)
	near(t, "200 tokens", l.at(200), 0.030, 0.5)
	near(t, "a token", math.Float64frombits(l.each.Load()), 1e-4, 0.1)
}

// Prompts of one length leave the two parts unknown, but their sum is known.
func TestLineOfOneLength(t *testing.T) {
	var l line
	for i := range 20 {
		l.add(1000, 0.2, int64(i)*int64(time.Second), nil)
	}
	near(t, "1,000 tokens", l.at(1000), 0.2, 0.01)
	near(t, "2,000 tokens", l.at(2000), 0.4, 0.01)
	var idle line
	idle.add(0, 0.5, 0, nil)
	near(t, "no token", idle.at(0), 0.5, 0.01)
}

// The first legs differ by a few tokens and by noise. That does not make tokens free.
func TestFirstLegsDoNotMakeTokensFree(t *testing.T) {
	for name, second := range map[string][2]float64{"longer and hardly later": {3000, 0.056}, "longer and sooner": {2500, 0.050}} {
		var p Prices
		p.Learn(Prefill, 2000, 54*time.Millisecond, 0)
		p.Learn(Prefill, int(second[0]), time.Duration(second[1]*float64(time.Second)), int64(50*time.Millisecond))
		near(t, name+": 1,000 tokens", p.Own(Prefill, 1000), 0.025, 0.3)
	}
}

// The price follows an engine that becomes ten times slower within a minute, even with only one
// request in five seconds.
func TestLineFollowsWithinAMinute(t *testing.T) {
	for name, every := range map[string]time.Duration{"busy": 10 * time.Millisecond, "rare": 5 * time.Second} {
		t.Run(name, func(t *testing.T) {
			var l line
			now := int64(0)
			rnd := rand.New(rand.NewPCG(3, 4))
			for range 5000 { // busy before
				now += int64(10 * time.Millisecond)
				x := rnd.Float64() * 8000
				l.add(x, x*1e-5, now, nil)
			}
			for end := now + int64(time.Minute); now < end; {
				now += int64(every)
				x := rnd.Float64() * 8000
				l.add(x, x*1e-4, now, nil)
			}
			near(t, "4,000 tokens", l.at(4000), 0.4, 0.35)
		})
	}
}

// One request that hangs moves the price only by its weight as an outlier.
func TestLineOutlier(t *testing.T) {
	var l line
	for i := range 100 {
		l.add(float64(100+i*10), float64(100+i*10)*1e-4, int64(i)*int64(time.Millisecond), nil)
	}
	before := l.at(1000)
	l.add(1000, 300, int64(time.Second), nil)
	if after := l.at(1000); after > 2*before {
		t.Errorf("%g after one outlier, %g before", after, before)
	}
}

// Where few legs come, their weights never add up to much. One that hangs is an outlier there too: a price of a
// minute would send all prompts the other way, and only a prompt in twenty seconds would tell that it is wrong.
func TestLineOutlierAmongFew(t *testing.T) {
	for _, every := range []time.Duration{time.Second, 3 * time.Second, 20 * time.Second} {
		var l line
		now := int64(0)
		leg := func(tokens, seconds float64) {
			now += int64(every)
			l.add(tokens, seconds, now, nil)
		}
		for i := range 30 {
			leg(float64(500+100*(i%10)), float64(500+100*(i%10))*1e-4)
		}
		before := l.at(1000)
		leg(1000, 60)
		if after := l.at(1000); after > 8*before {
			t.Errorf("a leg each %v: %g s after one of a minute, %g before", every, after, before)
		}
	}
}

// Streams that shared their engine with prefills show how much these slowed them down.
func TestDragIsLearned(t *testing.T) {
	for _, share := range []float64{0, 0.3, 1} {
		var d drag
		if d.load() != dragUnknown {
			t.Fatal(d.load())
		}
		rnd := rand.New(rand.NewPCG(5, 6))
		for range 500 {
			tokens, local := 50+rnd.Float64()*200, rnd.Float64()*2
			d.add(tokens, 4, local, tokens*0.02+share*local)
		}
		if got := d.load(); math.Abs(got-share) > 0.05 {
			t.Errorf("share %g, want %g", got, share)
		}
	}
}

// One client that reads slowly says nothing of what prefills cost the streams. An engine that becomes slower for all
// of them does.
func TestOneSlowClientDoesNotTellTheDrag(t *testing.T) {
	for _, local := range []float64{0, 0.5, 60} {
		var d drag
		rnd := rand.New(rand.NewPCG(7, 8))
		streams := func(n int, each float64) {
			for range n {
				tokens, local := 50+rnd.Float64()*200, rnd.Float64()
				d.add(tokens, 4, local, tokens*each+0.5*local)
			}
		}
		streams(300, 0.02)
		d.add(100, 4, local, 600)
		if got := d.load(); math.Abs(got-0.5) > 0.1 {
			t.Errorf("share %g after a stream of ten minutes beside %g s of prefill, want 0.5", got, local)
		}
		streams(1000, 0.2)
		near(t, "the share on an engine ten times slower", d.load(), 0.5, 0.2)
	}
}

// Streams that had little prefill beside them say little of it: what they lost by larger batches does not count
// as if no prefill stopped a stream.
func TestFirstStreamsDoNotTellTheDrag(t *testing.T) {
	var d drag
	for i := range 8 {
		batch := float64(8 - i) // the first streams decode in large batches, the last ones beside more prompts
		d.add(249, batch, 0.004*float64(i), 249*(0.005+0.0002*batch))
		if got := d.load(); got < 0.8 || got > 1.2 {
			t.Errorf("share %.2f after %d streams without half a second of prefill beside them", got, i+1)
		}
	}
}

// After a pause, streams run in small batches, and so end sooner than those before it, although one or two prompts
// pause them. On two H100s that once told a share of 0, and one prompt in seven went to decode.
func TestBatchesDoNotTellTheDrag(t *testing.T) {
	var d drag
	stream := func(batch, local float64) { d.add(249, batch, local, 249*(0.0065+0.0003*batch)+local) }
	for i := range 100 {
		stream(float64(16+i%5), 0)
	}
	for i := range 20 {
		stream(float64(4+i%3), 0.13*float64(1+i%2))
		if got := d.load(); got < 0.8 || got > 1.2 {
			t.Errorf("share %.2f after %d streams in small batches, want 1", got, i+1)
		}
	}
}

// By chance, a pair of streams may be faster than a single one. That does not make the streams of a busy engine, which
// the same prices serve, outliers.
func TestNoiseDoesNotMakeLargeBatchesFast(t *testing.T) {
	var d drag
	for i := range 200 {
		batch := float64(1 + i%2)
		d.add(200, batch, 0, 200*(0.0075-0.001*batch))
	}
	for i := range 40 {
		local := 0.3 * float64(i%2)
		d.add(200, 30, local, 200*0.012+0.3*local)
		d.add(200, 1, 0, 200*0.0065)
	}
	if got := d.load(); got > 0.85 {
		t.Errorf("share %.2f: the streams that lost three tenths of a prompt's time were not counted", got)
	}
}

// A few short prompts say what a leg costs, and little about a token. Decode engines compute like
// prefill engines until they show otherwise.
func TestShortPromptsDoNotPriceLongOnes(t *testing.T) {
	learn := func(p *Prices, w Work, tokens int, seconds float64) {
		for i := range 12 {
			p.Learn(w, tokens+i%3, time.Duration(seconds*float64(time.Second)), int64(i)*int64(time.Second))
		}
	}
	var p Prices
	for _, n := range []int{200, 5000, 10000} {
		learn(&p, Prefill, n, 0.01+float64(n)*27e-6)
	}
	learn(&p, Local, 33, 0.031)
	near(t, "33 tokens", p.Cost(Local, 33), 0.031, 0.15)
	near(t, "5,000 tokens", p.Cost(Local, 5000), 0.15, 0.35)
	learn(&p, Local, 5000, 0.6) // their own time counts as soon as it is known
	near(t, "5,000 slow tokens", p.Cost(Local, 5000), 0.6, 0.15)
}

// Most tokens of a short chat are the template's, which has no bytes in the body. However many such chats come, they do
// not have a long prompt taken for one of three times its length.
func TestShortChatsDoNotMakeLongPromptsLonger(t *testing.T) {
	for name, long := range map[string]int{"beside long prompts": 10, "after them": 0} {
		var m TokenBytes
		for range 200 {
			m.Observe(8000, 2000)
		}
		for i := range 1000 {
			if m.Observe(33, 36); long > 0 && i%long == 0 {
				m.Observe(8000, 2000)
			}
		}
		if got := m.Load(); got < 2.4 || got > 4 {
			t.Errorf("%s: %.2f bytes of a token, want about 4", name, got)
		}
	}
}

// A few long prompts tell how many bytes a token has, and later ones change that slowly.
func TestAFewLongPromptsTellTheBytesOfAToken(t *testing.T) {
	var m TokenBytes
	for range 8 {
		m.Observe(40_000, 5000)
	}
	near(t, "bytes of a token after 8 prompts", m.Load(), 8, 0.1)
	for range 100 {
		m.Observe(40_000, 5000)
	}
	m.Observe(80_000, 5000)
	near(t, "bytes of a token after a prompt of another language", m.Load(), 8, 0.02)
}

// What comes first is not believed too much: short chats, which are mostly template, and an image.
func TestEarlyPromptsOfOtherKindsAreCorrectedSoon(t *testing.T) {
	for name, first := range map[string]func(*TokenBytes){
		"short chats": func(m *TokenBytes) {
			for range 200 {
				m.Observe(33, 36)
			}
		},
		"an image": func(m *TokenBytes) { m.Observe(4<<20, 1200) },
	} {
		var m TokenBytes
		first(&m)
		for range 8 {
			m.Observe(20_000, 5000)
		}
		if got := m.Load(); got < 3.5 || got > 5.5 {
			t.Errorf("%s first: %.2f bytes of a token after 8 prompts of 4", name, got)
		}
	}
}

// The error is what the price said before it knew, against what came.
func TestErrorOfAPrice(t *testing.T) {
	var p Prices
	legs := func(n int, factor float64) {
		for i := range n {
			p.Learn(Prefill, 1000+1000*(i%2), time.Duration(factor*float64(1+i%2)*float64(100*time.Millisecond)), int64(i)*int64(10*time.Millisecond))
		}
	}
	legs(5, 1)
	if e := p.List(0)["prefill"].Error; e != nil {
		t.Fatalf("error %v after 5 legs", *e)
	}
	legs(40, 1)
	if e := *p.List(0)["prefill"].Error; e > 0.01 {
		t.Errorf("error %.3f of a price that holds", e)
	}
	rnd := rand.New(rand.NewPCG(7, 8))
	for i := range 200 {
		p.Learn(Prefill, 1000, time.Duration((0.2+rnd.Float64()*1.6)*float64(100*time.Millisecond)), int64(i)*int64(10*time.Millisecond))
	}
	near(t, "error of times spread over 1 ± 0.8", *p.List(0)["prefill"].Error, 0.4, 0.4)
}
