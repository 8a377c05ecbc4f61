package main

import (
	"slices"
	"testing"
)

func TestConnectorsNameChecksAndEngines(t *testing.T) {
	for _, kv := range connectors() {
		if got, err := connectorNamed(kv.name); err != nil || got.name != kv.name {
			t.Errorf("%s: %v, %v", kv.name, got.name, err)
		}
		if kv.moves != "prefill" && kv.moves != "decode" {
			t.Errorf("%s: no engine of role %q counts transfers", kv.name, kv.moves)
		}
		for _, name := range kv.checks {
			if !slices.ContainsFunc(checks(), func(c check) bool { return c.name == name }) {
				t.Errorf("%s: there is no check %q", kv.name, name)
			}
		}
		// A connector whose rows nothing turns red proves nothing.
		if !slices.ContainsFunc(wrongs(), func(w wrong) bool { return w.connector() == kv.name && kv.has(w.check) }) {
			t.Errorf("%s: no wrong turns one of its checks red", kv.name)
		}
	}
	if _, err := connectorNamed("nixlpush"); err == nil {
		t.Error("an unknown connector is taken")
	}
}
