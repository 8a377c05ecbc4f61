package router

import (
	"sync"
	"time"

	"xpyd/router/way"
)

// pulling is what the streams show that wait for blocks on a decode backend and have had no event. They share
// its network. The price of a transfer is learned when one ends. Until then, and while transfers stand still,
// this is all that is known of it.
type pulling struct {
	mu     sync.Mutex
	legs   int     // that wait
	since  int64   // by the router's clock: they all wait, and none of them has had its first event since then
	tokens int64   // that the legs wait for
	later  int     // requests that will read blocks when their prefill has ended
	coming int64   // tokens that the backend will read for those that stream
	area   float64 // tokens times nanoseconds, up to at
	at     int64
}

// pull is one leg that waits.
type pull struct {
	tokens int64
	begun  int64
	area   float64 // of pulling, when the leg began
}

// move brings area up to now. p.mu is held.
func (p *pulling) move(now int64) {
	p.area += float64(p.tokens) * float64(now-p.at)
	p.at = now
}

func (p *pulling) begin(tokens, now int64) pull {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.move(now)
	if p.legs == 0 {
		p.since = now
	}
	p.legs++
	p.tokens += tokens
	return pull{tokens, now, p.area}
}

// end takes a leg away, and returns the tokens of the others that waited meanwhile, on average. A leg that failed says
// nothing of the others.
func (p *pulling) end(x pull, now int64, came bool) (beside int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.move(now)
	if came {
		p.since = now
	}
	p.legs--
	p.tokens -= x.tokens
	if now <= x.begun {
		return 0
	}
	return max(0, int64((p.area-x.area)/float64(now-x.begun))-x.tokens)
}

func (p *pulling) expect(requests int, tokens int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.later += requests
	p.coming += tokens
}

// pullLoad is what a further prompt finds.
type pullLoad struct {
	still  int64         // requests that wait for their prefill or their blocks
	before int64         // tokens that the backend reads first, those that are still to come included
	coming int64         // tokens whose prefill has not ended
	waited time.Duration // at least one of the legs, at the least, or one that has failed since
}

func (p *pulling) look(now int64) pullLoad {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := pullLoad{still: int64(p.legs + p.later), before: p.tokens + p.coming, coming: p.coming}
	if p.legs > 0 {
		out.waited = time.Duration(max(0, now-p.since))
	}
	return out
}

// Expect notes that the decode backend will read the blocks of a prompt if it is split. The request counts as one that
// waits until Pull, Compute, Computed or Release. The blocks of an answer that comes whole do not count, see Pull.
func (l *Lease) Expect(d Decision, prompt Prompt) {
	l.endPull(false)
	if !d.Split || prompt.AtOnce {
		return
	}
	l.waits, l.expects = true, 0
	if !prompt.Whole {
		l.expects = int64(max(0, prompt.Tokens-prompt.CachedDecode))
	}
	l.Backend.pulling.expect(1, l.expects)
}

// Pull notes that the decode backend is about to read blocks of that many tokens for an answer. If the answer
// streams, the leg counts as waiting for the blocks until Computed or Release. An answer that comes whole does not
// show when the blocks arrived.
func (l *Lease) Pull(tokens int, streams bool) {
	l.endPull(false)
	l.goes((*way.Fleet).Prefilled)
	l.beside = 0
	if streams {
		l.pulls, l.pull = true, l.Backend.pulling.begin(int64(tokens), l.Backend.router.now())
	}
}

// Beside is the tokens of the other prompts whose blocks the backend read meanwhile, on average. It is known after
// Computed.
func (l *Lease) Beside() int { return int(l.beside) }

func (l *Lease) endPull(came bool) {
	p := &l.Backend.pulling
	if l.waits {
		l.waits = false
		p.expect(-1, -l.expects)
	}
	if l.pulls {
		l.pulls = false
		l.beside = p.end(l.pull, l.Backend.router.now(), came)
	}
}
