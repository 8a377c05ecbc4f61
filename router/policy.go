package router

import "math/rand/v2"

// policy chooses one of the backends that are fit for the query, or nil if none is. There is at least one
// backend. All requests to a pool share the policy. A reload that does not change its name keeps it.
type policy interface {
	pick(backends []*Backend, q query) *Backend
}

// policies are the policies that a pool can have, by name.
var policies = [...]struct {
	name string
	make func() policy
}{
	{"least_request", func() policy { return least{} }},
	{"least_tokens", func() policy { return least{tokens: true} }},
	{"round_robin", func() policy { return roundRobin{} }},
	{"random", func() policy { return randomly{rand.Uint64} }},
	{"power_of_two", func() policy { return powerOfTwo{source: rand.Uint64} }},
	{"power_of_two_tokens", func() policy { return powerOfTwo{source: rand.Uint64, tokens: true} }},
	{"consistent_hash", func() policy { return consistentHash{} }},
	{"prefix", func() policy { return prefixed{least{tokens: true}} }},
	// vllm-router calls its own so.
	{"cache_aware", func() policy { return prefixed{least{tokens: true}} }},
}

// Policies lists the names that PrefillPolicy and DecodePolicy accept.
func Policies() []string {
	var names []string
	for _, p := range policies {
		names = append(names, p.name)
	}
	return names
}

// newPolicy makes the policy of that name, or the first one if the name is unknown.
func newPolicy(name string) policy {
	for _, p := range policies {
		if p.name == name {
			return p.make()
		}
	}
	return policies[0].make()
}
