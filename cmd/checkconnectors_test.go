package cmd

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"xpyd/sim"
)

// probeOf runs check --probe over simulated engines, and returns what it prints.
func probeOf(t *testing.T, connector sim.Connector, prefill, decode sim.Options) (string, error) {
	t.Helper()
	folder := t.TempDir()
	var entries []string
	var engines []*sim.Engine
	for _, o := range []sim.Options{prefill, decode} {
		if o.Connector == "" {
			o.Connector = connector
		}
		o.Storage = folder
		e, err := sim.Start(o.Fast())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close() })
		engines = append(engines, e)
		entry := e.URL()
		if port := e.BootstrapPort(); port > 0 {
			entry += fmt.Sprintf(" bootstrap=%d", port)
		}
		entries = append(entries, entry)
	}
	t.Cleanup(func() { // while all engines still run, because decode tells prefill on its own
		if decode.Role == sim.RoleDecode { // another engine tells prefill nothing
			expectNothingPinned(t, engines)
		}
	})
	return runCheck("--listen=127.0.0.1:1", "--connector", string(connector), "--probe", "--prefill", entries[0], "--decode", entries[1])
}

func expectNothingPinned(t *testing.T, engines []*sim.Engine) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for _, e := range engines {
		for e.Ledger().Pinned > 0 {
			if time.Now().After(deadline) {
				t.Errorf("%s still pins %d blocks", e.Name(), e.Ledger().Pinned)
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// The version of an engine that is not vLLM is told, and nothing is concluded from it.
func TestCheckTellsTheVersionOfSGLang(t *testing.T) {
	out, err := probeOf(t, sim.ConnectorSGLang, sim.Options{Role: sim.RolePrefill}, sim.Options{Role: sim.RoleDecode})
	if err != nil || strings.Count(out, "0.5.23") != 2 || strings.Contains(out, "vLLM") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestCheckProbesEachConnector(t *testing.T) {
	t.Parallel()
	for _, c := range sim.Connectors() {
		t.Run(string(c), func(t *testing.T) {
			out, err := probeOf(t, c, sim.Options{Role: sim.RolePrefill}, sim.Options{Role: sim.RoleDecode})
			if err != nil || !strings.Contains(out, "ok") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// A decode engine to which the legs' parameters mean nothing computes the prompt itself. Its answer is
// right, and only its own counter shows that no KV came.
func TestCheckFindsASilentNoOp(t *testing.T) {
	t.Parallel()
	for connector, want := range map[sim.Connector]string{
		sim.ConnectorMooncake: `start it with --kv-transfer-config '{"kv_connector":"MooncakeConnector","kv_role":"kv_consumer"}'`,
		sim.ConnectorShared:   `start it with --kv-transfer-config '{"kv_connector":"ExampleConnector","kv_role":"kv_both"}'`,
	} {
		t.Run(string(connector), func(t *testing.T) {
			out, err := probeOf(t, connector, sim.Options{Role: sim.RolePrefill}, sim.Options{Role: sim.RoleBoth})
			if err == nil || !strings.Contains(out, "decode answered without pulling the blocks; "+want) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func TestCheckNamesAMissingBootstrapServer(t *testing.T) {
	out, err := probeOf(t, sim.ConnectorMooncake, sim.Options{Role: sim.RolePrefill, Connector: sim.ConnectorNixl}, sim.Options{Role: sim.RoleDecode})
	if err == nil || !strings.Contains(out, "has no bootstrap server at 127.0.0.1:8998") {
		t.Errorf("%v\n%s", err, out)
	}
}
