package config

import (
	"fmt"
	"slices"
	"strings"

	"xpyd/kvparams"
	"xpyd/router"
)

// member is a backend with its connector.
type member struct {
	path, url, connector string // path is the key that lists it
	role                 router.Role
}

// members lists the backends that hand KV over or take it. Their pools have been checked.
func (c *Config) members() (all []member) {
	for _, e := range c.Router.Entries() {
		if e.Role != router.Encode {
			all = append(all, member{listOf(e.Role), e.URL, c.connectorOf(e), e.Role})
		}
	}
	return all
}

func (c *Config) connectorOf(e router.Entry) string {
	if e.Connector != "" {
		return e.Connector
	}
	return c.Connector
}

// connectors are the names of those that the engines use, in order.
func (c *Config) connectors() (names []string) {
	for _, m := range c.members() {
		names = append(names, m.connector)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Dialect is how the engine of an entry of a pool hands blocks over.
func (c *Config) Dialect(e router.Entry) kvparams.Dialect {
	d, ok := kvparams.Lookup(c.connectorOf(e))
	if !ok {
		panic("BUG: a connector that validation let pass: " + c.connectorOf(e))
	}
	return d
}

// nameConnectors puts xpyd's names of connectors in the place of the engines' own names, such as FlexKVConnectorV1.
func (c *Config) nameConnectors() {
	c.Connector = kvparams.Canonical(c.Connector)
	for _, pool := range [...][]router.Entry{c.Router.Prefill, c.Router.Decode, c.Router.Engines} {
		for i := range pool {
			pool[i].Connector = kvparams.Canonical(pool[i].Connector)
		}
	}
}

// checkConnectors refuses names that are none of a connector's.
func (c *Config) checkConnectors() error {
	known := kvparams.Names()
	if !slices.Contains(known, c.Connector) {
		return invalid("connector", c.Connector, "must be one of "+strings.Join(known, ", ")+severalOf(c.Connector))
	}
	for _, m := range c.members() {
		if !slices.Contains(known, m.connector) {
			return invalid(m.path, m.url+" connector="+m.connector, "must have one of the connectors "+strings.Join(known, ", ")+severalOf(m.connector))
		}
	}
	for _, e := range c.Router.Encode {
		if e.Connector != "" {
			return invalid("encode", e.String(), "has a connector, and an encode engine hands no KV over; remove \" connector="+e.Connector+"\"")
		}
		if e.Bootstrap != 0 {
			return invalid("encode", e.String(), fmt.Sprintf("has a bootstrap port, and an encode engine hands no KV over; remove \" bootstrap=%d\"", e.Bootstrap))
		}
	}
	if err := c.checkEither(); err != nil {
		return err
	}
	return c.checkTargetPorts()
}

// severalOf says which connectors an engine's own name stands for, if it stands for any.
func severalOf(name string) string {
	var all []string
	for _, s := range kvparams.Standings() {
		if slices.Contains(s.Engines, name) {
			all = append(all, s.Name)
		}
	}
	if len(all) == 0 {
		return ""
	}
	return "; " + name + " is " + strings.Join(all, " or ")
}

// checkEither refuses engines without a role for connectors that give each engine one.
func (c *Config) checkEither() error {
	for _, e := range c.Router.Engines {
		if d := c.Dialect(e); !kvparams.EitherRole(d) {
			return invalid("engines", e.URL, "has connector "+d.Name()+", whose engines have one role each; name it in prefill or decode, or use one of the connectors "+strings.Join(kvparams.EitherRoles(), ", "))
		}
	}
	return nil
}

// checkTargetPorts refuses ports of decode engines above which their connector has no room for its others.
func (c *Config) checkTargetPorts() error {
	for _, e := range c.Router.Pooled(router.Decode) {
		if d, ok := c.Dialect(e).(kvparams.Directed); ok && e.Bootstrap > d.LastTargetPort() {
			return invalid(listOf(e.Role), e.String(), fmt.Sprintf("has a bootstrap port above %d, and its connector %s has a further port above that; start the engine with a lower handshake_port", d.LastTargetPort(), d.Name()))
		}
	}
	return nil
}

// checkPartners refuses an engine whose connector no engine of the other pool has. It could never make a
// pair. An engine without a role serves requests whole. Operators who add engines one by one at run time come through such a state, so Fits lets it pass.
func (c *Config) checkPartners() error {
	if len(c.Router.Pooled(router.Prefill)) == 0 {
		return nil
	}
	all := c.members()
	for _, m := range all {
		if m.role == router.Both || slices.ContainsFunc(all, func(o member) bool { return o.path != m.path && o.connector == m.connector }) {
			continue
		}
		other := "decode"
		if m.path == other {
			other = "prefill"
		}
		return invalid(m.path, m.url, "has connector "+m.connector+", and no "+other+" backend has it, so it could never make a pair; add \" connector=NAME\" after the URL with the one that its engine uses, or add a "+other+" backend with connector "+m.connector)
	}
	return nil
}

// ranked returns a backend that is one rank of an engine, or "" if none is.
func (c *Config) ranked() string {
	for _, e := range c.Router.Entries() {
		if _, rank := router.SplitRank(e.URL); rank != router.NoRank {
			return e.URL
		}
	}
	return ""
}

// unproven warns of connectors that have not run with engines, or whose engines have a fault that users must know.
func unproven(c Config) (found []string) {
	for _, name := range c.connectors() {
		s := kvparams.StandingOf(name)
		why := s.Fault
		if s.How() != kvparams.Run {
			why = "it has run with simulated engines only"
		}
		if s.Experimental() && len(c.Router.Pooled(router.Prefill)) > 0 {
			found = append(found, invalid("connector", name, "is experimental: "+why+"; see docs/connectors.md").Error())
		}
	}
	return found
}

// readsHandles reports whether some decode engine reads by a handle.
func (c *Config) readsHandles() bool {
	return slices.ContainsFunc(c.connectors(), func(name string) bool {
		d, ok := kvparams.Lookup(name)
		return ok && d.HandleInAnswer()
	})
}

// shortChecks warns of checks that an engine which is well may fail.
func shortChecks(c Config) (found []string) {
	for _, name := range c.connectors() {
		d, _ := kvparams.Lookup(name)
		f, ok := d.(kvparams.Foreign)
		if timeout := c.Router.Health.Timeout; ok && timeout <= f.HealthTakes() {
			found = append(found, invalid("health.timeout", timeout.String(), "is too short for connector "+name+", whose engines may take "+f.HealthTakes().String()+" over /health; raise it, or see docs/connectors.md").Error())
		}
	}
	return found
}
