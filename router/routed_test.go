package router

import "testing"

// routed is the router: a fixed part of the engines prefills, or none, and the others decode; or none has a role.
type routed struct {
	l    *load
	t    testing.TB
	pd   PD
	at   map[*Backend]*engine
	hash [256]uint64
}

// want is what the proxy asks the router for.
func (r *routed) want(role Role, a *arrival) Want {
	w := Want{Role: role, Tokens: a.tokens}
	if a.chat != nil {
		w.Prefix, w.Conversation = a.chat.blocks(r.hash[:0], a.tokens), a.chat.id
	}
	return w
}

func (r *routed) acquire(role Role, a *arrival, to *Backend, lease *Lease) {
	w := r.want(role, a)
	w.Alone, w.To = true, to
	if err := r.l.s.AcquireFor(w, lease); err != nil {
		r.t.Fatal(err)
	}
}

func (r *routed) choose(a *arrival) {
	a.p, a.d = Lease{}, Lease{}
	errand := Route(r.l.s, r.want(Decode, a), -1, false)
	r.acquire(Decode, a, errand.To(Decode), &a.d)
	a.d.Follow(errand)
	prompt := Prompt{Tokens: a.tokens, CachedDecode: a.d.Cached()}
	var p *Backend
	if len(r.l.s.Backends(Prefill)) > 0 {
		want := r.want(Prefill, a)
		if p = r.l.s.Pick(want); p != nil {
			prompt.CachedPrefill = r.l.s.Cached(want, p)
		}
	}
	way := Decision{}
	if e := a.d.Errand(); e != nil {
		p, way = e.Prefill, e.Decision()
	} else {
		way = r.l.decide(r.pd, p, a.d.Backend, prompt)
	}
	a.d.Expect(way, prompt)
	if a.to = r.at[a.d.Backend]; !way.Split || p == nil {
		a.on = a.to
		a.ahead = a.d.Compute(a.tokens-a.d.Cached(), true)
		return
	}
	r.acquire(Prefill, a, a.d.Errand().To(Prefill), &a.p)
	a.on = r.at[a.p.Backend]
}

func (r *routed) prefilled(a *arrival) {
	r.l.r.Prefilled(a.p.Ahead(), a.p.Tokens(), r.l.since(a.sent))
	a.p.Release(OK)
	a.d.Pull(a.tokens-a.d.Cached(), true)
}

func (r *routed) first(a *arrival) {
	a.d.Computed()
	if own := a.tokens - a.d.Cached(); a.on != a.to {
		r.l.r.Pulled(a.d.Beside(), own, r.l.since(a.sent))
	} else {
		r.l.r.Computed(a.d.Backend, a.ahead, own, r.l.since(a.sent))
	}
	a.streams = a.d.Backend.Streams()
}

func (r *routed) done(a *arrival) {
	a.d.Ended(a.answer)
	r.l.r.StreamEnded(a.d.Backend, a.streams, a.answer-1)
	a.d.Release(OK)
}

func (r *routed) lost(a *arrival) {
	for b, e := range r.at {
		if e.dead {
			b.setState(Down)
		}
	}
	for _, l := range []*Lease{&a.p, &a.d} {
		if l.Held() && r.at[l.Backend].dead {
			l.Release(Refused)
		}
		l.Release(NoVerdict)
	}
}
