package router

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"xpyd/router/way"
)

// Where engines have no role, pd.mode auto chooses both engines of a request together, by package way: a plan of the
// traffic says how many of them only prefill, and each request takes the cheapest way within it. With fixed roles, and
// where anything ties a request to an engine, Decide chooses as before.

// Errand is the way of one request, from the choice to its last token. A lease on D follows it and ends it.
type Errand struct {
	router *Router
	fleet  *way.Fleet
	trip   *way.Trip
	// Decode makes the answer. Prefill computes the prompt, and is nil if Decode does that too.
	Prefill, Decode *Backend
}

// fleets are what is known of engines without a role, by the model that they serve; "" where all serve the same.
type fleets struct {
	mu      sync.Mutex
	engines sync.Mutex // guards the lanes of all engines, and what the fleets know
	byModel map[string]*way.Fleet
	tell    atomic.Pointer[func(PlanNow)]
}

// of is the fleet of a model. When another one comes, those of models that no engine lists any more are forgotten. That of
// engines that all serve the same stays, as they often list the same again soon.
func (f *fleets) of(model string, listed *listing) *way.Fleet {
	f.mu.Lock()
	defer f.mu.Unlock()
	x := f.byModel[model]
	if x == nil {
		if x = way.New(&f.engines); f.byModel == nil {
			f.byModel = map[string]*way.Fleet{}
		}
		maps.DeleteFunc(f.byModel, func(id string, _ *way.Fleet) bool { return id != "" && !listed.lists([]byte(id)) })
		f.byModel[model] = x
	}
	return x
}

// laneOf is what an engine has to do in all its roles.
func laneOf(b *Backend) *way.Engine {
	if t := b.Twin(); t != nil && b.Role == Prefill {
		return &t.lane
	}
	return &b.lane
}

func seconds(now int64) float64 { return float64(now) / 1e9 }

// Route chooses the way of a request that wants a decode backend and may have a prefill. most is the tokens that its answer
// may have, or -1, and whole says that it does not stream. It returns nil if Decide is to choose.
func Route(s *Snapshot, w Want, most int, whole bool) *Errand {
	if !routes(s, &w) {
		return nil
	}
	decode, prefill := s.poolFor(Decode, &w), s.poolFor(Prefill, &w)
	if decode.byConnector != nil || s.severalReleases() {
		return nil
	}
	var room [16]way.Candidate
	all := candidates(s, &w, prefill, decode, room[:0])
	if all == nil {
		return nil
	}
	e, model := &Errand{router: s.router}, ""
	if decode != s.decode { // so the model is one that engines have
		model = string(w.Model)
	}
	e.fleet = s.router.fleets.of(model, s.decode.models.Load())
	e.trip = e.fleet.Choose(seconds(s.router.now()), way.Request{Prompt: w.Tokens, Most: most, Quiet: whole, Sender: mix(w.Flow) ^ hashOf(string(w.Model))}, all)
	if e.trip == nil {
		return nil
	}
	if f := s.router.fleets.tell.Load(); f != nil && e.trip.Planned {
		(*f)(planNow(s.router, model, e.fleet))
	}
	e.Decode = ownerOfLane(decode, e.trip.Way.Decode)
	if !e.trip.Way.Whole() {
		e.Prefill = ownerOfLane(prefill, e.trip.Way.Prefill)
	}
	return e
}

// routes reports that nothing but the cost chooses the engines of the request.
func routes(s *Snapshot, w *Want) bool {
	return plans(s) && w.Key == 0 && w.Like == nil && w.Peer == nil && !w.Alone && !w.Unbound && len(w.Skip)+len(w.Gone) == 0
}

// plans reports that the cost may choose the engines of requests.
func plans(s *Snapshot) bool {
	return s.pd.Mode == PDAuto && s.pd.ThresholdTokens == 0 && s.router.shared.Load()
}

// planFor reports that a plan for the model is in force. Where engines serve several models, each has its own.
func planFor(s *Snapshot, model string) bool {
	p, lists := s.decode, s.decode.models.Load()
	switch {
	case lists.mixed():
		p = lists.byModel[model]
	case model != "":
		return false
	}
	return p != nil && plans(s) && slices.ContainsFunc(p.backends, func(b *Backend) bool { return b.Twin() != nil })
}

// candidates lists the engines that may serve the request, and those that are full. It is nil if none of them is without a
// role, or if one cannot serve a request alone.
func candidates(s *Snapshot, w *Want, prefill, decode *pool, all []way.Candidate) []way.Candidate {
	d, p := *w, *w
	d.Role, p.Role = Decode, Prefill
	known, knownP := s.router.lookUp(decode, &d), s.router.lookUp(prefill, &p)
	defer func() {
		for _, m := range [...]*lookup{known, knownP} {
			if m != nil {
				s.router.lookups.Put(m)
			}
		}
	}()
	cached := func(m *lookup, b *Backend) int {
		if m == nil {
			return 0
		}
		return w.cached(m.By(&b.cache).Blocks)
	}
	qd, qp, any := s.query(&d, decode), s.query(&p, prefill), false
	for _, b := range decode.backends {
		if b.Bound.Load() {
			return nil
		}
		if !inPlan(b, qd.now) {
			continue
		}
		c := way.Candidate{Engine: &b.lane, Cached: cached(known, b), Decodes: true, Share: qd.share(b), Requests: b.load(qd.now, false), Room: roomOf(b)}
		if c.NoAnswer = c.Share == 0; b.Twin() != nil {
			any = true
			share := qp.share(b.Twin())
			c.Cached, c.Share = max(c.Cached, cached(knownP, b.Twin())), max(c.Share, share)
			c.Prefills, c.NoPrompt = slices.Contains(prefill.backends, b.Twin()), share == 0
		}
		all = append(all, c)
	}
	for _, b := range prefill.backends {
		if b.Twin() == nil && inPlan(b, qp.now) {
			share := qp.share(b)
			all = append(all, way.Candidate{Engine: &b.lane, Cached: cached(knownP, b), Prefills: true, NoPrompt: share == 0, Share: share})
		}
	}
	if !any {
		return nil
	}
	return all
}

// roomOf is how many tokens the engine's KV cache has, by its last reading, or 0. Only a restart changes that.
func roomOf(b *Backend) float64 {
	if e := b.engine.Load(); e != nil {
		return float64(max(0, e.KVTokens()))
	}
	return 0
}

// inPlan reports that the plan counts on b, even if it takes no request at this moment.
func inPlan(b *Backend, now int64) bool { return b.usable() && !b.ejected(now) }

func ownerOfLane(p *pool, lane *way.Engine) *Backend {
	for _, b := range p.backends {
		if laneOf(b) == lane {
			return b
		}
	}
	return nil
}

// To is the backend of the role that the errand names, or nil. It may be called for no errand.
func (e *Errand) To(role Role) *Backend {
	switch {
	case e == nil:
		return nil
	case role == Prefill:
		return e.Prefill
	}
	return e.Decode
}

// Decision is what Decide says of other requests.
func (e *Errand) Decision() Decision {
	return Decision{Split: e.Prefill != nil, Reason: ReasonPrice}
}

// Follow ties the errand to the lease, which ends it. If the lease is on another backend, the errand is over.
func (l *Lease) Follow(e *Errand) {
	if e == nil {
		return
	}
	if e.Decode != l.Backend || !l.Held() {
		e.fleet.Ended(seconds(e.router.now()), e.trip, 0)
		return
	}
	l.errand = e
}

// Errand is the errand that the lease follows, or nil.
func (l *Lease) Errand() *Errand { return l.errand }

// Ended notes that the answer has ended well, with so many tokens.
func (l *Lease) Ended(tokens int) { l.endErrand(tokens) }

func (l *Lease) endErrand(tokens int) {
	if e := l.errand; e != nil {
		l.errand = nil
		e.fleet.Ended(seconds(e.router.now()), e.trip, tokens)
	}
}

// goes tells the fleet of a step of the errand: the backend is about to read blocks, or to compute so many tokens itself,
// or has made the first token.
func (l *Lease) goes(step func(f *way.Fleet, now float64, t *way.Trip)) {
	if e := l.errand; e != nil {
		step(e.fleet, seconds(e.router.now()), e.trip)
	}
}

// wanted is the backend that w names, if it may be taken.
func wanted(p *pool, q *query, w *Want) *Backend {
	if w.To != nil && slices.Contains(p.backends, w.To) && q.fit(w.To) {
		return w.To
	}
	return nil
}

// PlanNow is the plan for the engines without a role that serve a model.
type PlanNow struct {
	Model string `json:"model,omitempty"` // empty where all engines serve the same
	// Prefill of Engines engines only prefill, for Seconds by now. Why says so with its arithmetic.
	Prefill int     `json:"prefill"`
	Engines int     `json:"engines"`
	Seconds float64 `json:"seconds"`
	Why     string  `json:"why"`
	// Gain is the part of an answer's time that the plan is expected to save, beside all engines serving whole, or if they
	// do, beside the best number that prefill. Changes is how often the plan became another one.
	Gain    float64 `json:"gain"`
	Changes int     `json:"changes"`
}

func planNow(r *Router, model string, f *way.Fleet) PlanNow {
	p, since, changes := f.Now()
	return PlanNow{model, p.Prefill, p.Engines, seconds(r.now()) - since, p.String(), p.Gain(), changes}
}

// Plans lists the plans in force, by model. There is none for engines with roles, and before the first few requests.
func Plans(r *Router) (all []PlanNow) {
	s := r.Snapshot()
	r.fleets.mu.Lock()
	defer r.fleets.mu.Unlock()
	for model, f := range r.fleets.byModel {
		if p := planNow(r, model, f); p.Engines > 0 && planFor(s, model) {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b PlanNow) int { return cmp.Compare(a.Model, b.Model) })
	return all
}

// OnPlan makes the router call f when a plan has become another one. Its terms are those of OnEject.
func OnPlan(r *Router, f func(PlanNow)) { r.fleets.tell.Store(&f) }
