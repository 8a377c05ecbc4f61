package router

// consistentHash keeps prompts that begin alike on the same backend. Without a prompt it walks
// the pool. A request with a key never comes here: see pool.pick.
type consistentHash struct{ roundRobin }

func (p consistentHash) pick(backends []*Backend, q query) *Backend {
	if len(q.prefix) == 0 {
		return p.roundRobin.pick(backends, q)
	}
	return rendezvous(backends, &q, q.prefix[0])
}
