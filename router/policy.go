package router

import "math/rand/v2"

// policy chooses one of the backends that are fit for the query; nil if none is. It is
// one for all requests to a pool, and lives on over reloads that do not change its name.
type policy interface {
	pick(backends []*Backend, q query) *Backend
}

// policies are those that a pool can have, by their names.
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
	{"cache_aware", func() policy { return prefixed{least{tokens: true}} }}, // as vllm-router calls its own
}

// Policies lists the names that PrefillPolicy and DecodePolicy accept.
func Policies() []string {
	var names []string
	for _, p := range policies {
		names = append(names, p.name)
	}
	return names
}

// newPolicy makes the policy of that name; of an unknown one, the first.
func newPolicy(name string) policy {
	for _, p := range policies {
		if p.name == name {
			return p.make()
		}
	}
	return policies[0].make()
}
