package main

import (
	"fmt"
	"slices"
	"strings"
)

// connector is a way that KV travels, as far as the checks must know it. What a connector cannot do
// is a field of its row here, so that no check asks for a name.
type connector struct {
	name    string // as xpyd's --connector takes it
	engines string // vLLM's class; "" is that of scripts/real-vllm, NIXL's pull
	moves   string // role of the engines that count the transfers
	checks  []string
}

// connectors are those whose engines run on a processor. The first one is the default, and has every
// check.
func connectors() []connector {
	return []connector{
		{name: "nixl", moves: "decode"},
		{name: "nixl-push", engines: "NixlPushConnector", moves: "prefill",
			checks: []string{"exact 1P1D", "exact 2P1D", "counters", "leave"}},
	}
}

// connectorNamed returns a row of the table.
func connectorNamed(name string) (connector, error) {
	var names []string
	for _, c := range connectors() {
		if c.name == name {
			return c, nil
		}
		names = append(names, c.name)
	}
	return connector{}, fmt.Errorf("connector %q: want one of %s", name, strings.Join(names, ", "))
}

// has reports whether a check is one of the connector's.
func (c connector) has(check string) bool { return c.checks == nil || slices.Contains(c.checks, check) }
