package main

import (
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestConnectorsNameChecksAndEngines(t *testing.T) {
	for _, kv := range connectors() {
		if got, err := connectorNamed(kv.name); err != nil || got.name != kv.name {
			t.Errorf("%s: %v, %v", kv.name, got.name, err)
		}
		if kv.moves != "prefill" && kv.moves != "decode" && (kv.moves != "" || kv.stored == nil) {
			t.Errorf("%s: no engine of role %q counts transfers, and nothing says what a folder holds", kv.name, kv.moves)
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

// The check counters holds these figures to real engines.
func TestExampleConnectorFindsWholeBlocks(t *testing.T) {
	for prompt, want := range map[int]int{2: 0, 31: 0, 32: 0, 34: 32, 64: 32, 65: 0, 66: 64, 540: 512, 1025: 0} {
		if got := exampleStored(prompt); got != want {
			t.Errorf("a prompt of %d tokens: %d found, want %d", prompt, got, want)
		}
	}
}

func TestLMCacheFindsWholeBlocks(t *testing.T) {
	for prompt, want := range map[int]int{1: 0, 31: 0, 32: 31, 33: 32, 64: 63, 65: 64, 540: 512} {
		if got := lmcacheStored(prompt); got != want {
			t.Errorf("a prompt of %d tokens: %d found, want %d", prompt, got, want)
		}
	}
}

// Each engine gets a configuration that is JSON, with the place of its blocks if the connector has one.
func TestEngineConfig(t *testing.T) {
	for _, kv := range connectors() {
		place := "/some/folder"
		if kv.store {
			place = "19338"
		}
		for role, pool := range map[string]string{"prefill": "kv_producer", "decode": "kv_consumer"} {
			cmd := exec.Command("../../scripts/real-vllm/engine.sh", "show", role, "9000")
			cmd.Env = append(os.Environ(), append(kv.env(role, place), "KV_LEASE=7")...)
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%s: %v", kv.name, err)
			}
			_, rest, _ := strings.Cut(string(out), "--kv-transfer-config ")
			text, _, _ := strings.Cut(strings.ReplaceAll(rest, `\`, ""), " ")
			var config struct {
				Connector string         `json:"kv_connector"`
				Role      string         `json:"kv_role"`
				Extra     map[string]any `json:"kv_connector_extra_config"`
			}
			if err := json.Unmarshal([]byte(text), &config); err != nil {
				t.Fatalf("%s: %v in %s", kv.name, err, text)
			}
			if want := cmp.Or(kv.engines, "NixlConnector"); config.Connector != want {
				t.Errorf("%s: %s is a %q, want %q", kv.name, role, config.Connector, want)
			}
			if want := cmp.Or(kv.role, pool); config.Role != want {
				t.Errorf("%s: %s is a %q, want %q", kv.name, role, config.Role, want)
			}
			if config.Extra["kv_lease_duration"] != 7.0 || strings.Contains(kv.extra, "FOLDER") != strings.Contains(text, "/some/folder") ||
				kv.store != strings.Contains(text, ":19338,") {
				t.Errorf("%s: %s has %s", kv.name, role, text)
			}
		}
	}
}
