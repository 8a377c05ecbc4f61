package router

import (
	"fmt"
	"math"
	"sync/atomic"

	"xpyd/router/prefix"
)

// pool is the backends of one role, or those of them that serve one model. Nothing in it changes
// once its snapshot is in force, except what requests and engines change behind pointers.
type pool struct {
	role       Role
	members    []Member   // all, in the order of the configuration
	backends   []*Backend // those that are ready: choices see no others
	weights    []float64  // as configured, in the order of backends
	gpus       []float64  // likewise; 0: not said
	bootstrap  []int      // likewise
	policyName string
	policy     policy
	turns      *atomic.Uint64 // see query.turn
	partners   int            // for decode, the size of the prefill pool
	cycle      uint64         // see cycleOf
	limit      int64          // leases on one backend; 0 means no limit

	prefix *prefix.Table // which backend has had which prompts; nil if that is not remembered
	block  int64         // Routing.PrefixBlock of the hashes in it

	models *atomic.Pointer[listing] // what they list; holds nil while nothing is known

	connectors  map[string]int   // of both pools, each with its number of prefill backends; nil: there is one
	byConnector map[string]*pool // the parts by connector; nil: there is one
}

// newPool makes the pool of a role. A backend that is in old stays the same object, unless its engine
// has another connector now.
func (r *Router) newPool(role Role, cfg Config, old *pool) (*pool, error) {
	policyName := cfg.policy(role)
	p := &pool{
		role: role, policyName: policyName, policy: old.policy, turns: old.turns,
		models: new(atomic.Pointer[listing]),
	}
	if p.policy == nil || old.policyName != policyName {
		p.policy, p.turns = newPolicy(policyName), new(atomic.Uint64)
	}
	known := map[string]*Backend{}
	for _, b := range old.all() {
		known[b.URL] = b
	}
	for _, e := range cfg.Pooled(role) {
		b, err := newBackend(r, role, e.URL)
		if err != nil {
			return nil, fmt.Errorf("build pool: %w", err)
		}
		if e.Connector != cfg.Connector {
			b.Connector = e.Connector
		}
		if k := known[b.URL]; k != nil && k.Connector == b.Connector {
			b = k
		}
		p.members = append(p.members, Member{b, e})
		if e.State == Ready {
			p.backends, p.weights, p.gpus = append(p.backends, b), append(p.weights, e.Weight), append(p.gpus, e.GPUs)
			p.bootstrap = append(p.bootstrap, e.Bootstrap)
		}
	}
	return p, nil
}

func (s *Snapshot) pool(role Role) *pool {
	switch role {
	case Prefill:
		return s.prefill
	case Decode:
		return s.decode
	case Encode:
		return s.encode
	}
	return &pool{models: new(atomic.Pointer[listing])}
}

// pools returns those of all roles.
func (s *Snapshot) pools() [roleCount]*pool { return [...]*pool{s.prefill, s.decode, s.encode} }

// Policy is the name of the role's policy; see Config.ChosenDecodePolicy.
func (s *Snapshot) Policy(role Role) string { return s.pool(role).policyName }

// weigh puts the weights into force, each as a part of the largest. It marks each backend, so that
// choices look at it again under the new rules.
func (p *pool) weigh() {
	most := 0.0
	for _, w := range p.weights {
		most = max(most, w)
	}
	for i, b := range p.backends {
		weigh(b, p.weights[i]/most)
		b.bootstrap.Store(int32(p.bootstrap[i]))
	}
}

// weigh sets b's part of the heaviest weight. A slow engine takes less of it.
func weigh(b *Backend, part float64) {
	b.Trouble.configured.Store(math.Float64bits(part))
	b.setWeight(b.Trouble.weight())
}
