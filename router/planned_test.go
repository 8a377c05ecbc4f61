package router

import "xpyd/router/way"

// planned is engines without roles, whose ways package way chooses.
type planned struct {
	l       *load
	fleet   way.Fleet
	engines []*engine
	at      map[*engine]*way.Engine
}

func newPlanned(l *load, fleet []*engine) *planned {
	p := &planned{l: l, engines: fleet, at: map[*engine]*way.Engine{}}
	for _, e := range fleet {
		p.at[e] = &way.Engine{}
	}
	return p
}

func (p *planned) choose(a *arrival) {
	var all []way.Candidate
	var alive []*engine
	for _, e := range p.engines {
		if !e.dead {
			all, alive = append(all, way.Candidate{Engine: p.at[e], Cached: e.cached(a), Prefills: true, Decodes: true}), append(alive, e)
		}
	}
	t := p.fleet.Choose(p.l.clock, way.Request{Prompt: a.tokens}, all)
	a.mine = t
	for _, e := range alive {
		if p.at[e] == t.Way.Prefill {
			a.on = e
		}
		if p.at[e] == t.Way.Decode {
			a.to = e
		}
	}
}

func (p *planned) prefilled(a *arrival) { p.fleet.Prefilled(p.l.clock, a.mine.(*way.Trip)) }
func (p *planned) first(a *arrival)     { p.fleet.First(p.l.clock, a.mine.(*way.Trip)) }
func (p *planned) done(a *arrival)      { p.fleet.Ended(p.l.clock, a.mine.(*way.Trip), a.answer) }
func (p *planned) lost(a *arrival)      { p.fleet.Ended(p.l.clock, a.mine.(*way.Trip), 0) }
