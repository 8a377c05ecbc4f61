package router

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
	{"least_request", func() policy { return leastRequest{} }},
	{"round_robin", func() policy { return roundRobin{} }},
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
