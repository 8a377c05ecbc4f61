package sim_test

import (
	"encoding/json"
	"testing"

	"xpyd/sim"
)

// directedTo is the prefill leg's parameters for a decode engine.
func directedTo(d *sim.Engine) body {
	port := d.BootstrapPort()
	return body{
		"do_remote_decode": true, "do_remote_prefill": false, "remote_engine_id": nil, "remote_block_ids": nil,
		"remote_host": "127.0.0.1", "remote_handshake_port": port, "remote_notify_port": port + 100,
	}
}

// handed is the handle of a prefill for d.
func handed(t *testing.T, p, d *sim.Engine) (handle body) {
	t.Helper()
	status, answer := post(t, p.URL()+"/v1/completions", body{"model": "sim", "prompt": longPrompt(), "max_tokens": 1, "kv_transfer_params": directedTo(d)})
	var a struct {
		KV body `json:"kv_transfer_params"`
	}
	if err := json.Unmarshal(answer, &a); err != nil || status != 200 || a.KV["transfer_id"] == nil {
		t.Fatalf("%d %s", status, answer)
	}
	return a.KV
}

func TestWriteModeWritesIntoTheEngineThatTheLegNames(t *testing.T) {
	p, d := pair(t, sim.Options{Connector: sim.ConnectorWrite})
	other := start(t, sim.Options{Connector: sim.ConnectorWrite, Role: sim.RoleDecode, Name: "d2"})
	for _, e := range []*sim.Engine{d, other} {
		post(t, e.URL()+"/v1/completions", body{"model": "sim", "prompt": longPrompt(), "max_tokens": 3, "kv_transfer_params": handed(t, p, d)})
		if wrong := e.Requests()[0].WrongKV; wrong != (e == other) {
			t.Errorf("%s: wrong KV %v", e.Name(), wrong)
		}
	}
	if l := p.Ledger(); l.StaleReads != 1 || l.Pinned != 0 {
		t.Errorf("%d writes into another engine, %d blocks pinned", l.StaleReads, l.Pinned)
	}
}

// A prefill that names no decode engine kills the engine. A decode without parameters is a plain one.
func TestWriteModeNeedsATarget(t *testing.T) {
	p, d := pair(t, sim.Options{Connector: sim.ConnectorWrite})
	if status, answer := post(t, d.URL()+"/v1/completions", body{"model": "sim", "prompt": longPrompt(), "max_tokens": 3}); status != 200 || d.Requests()[0].WrongKV {
		t.Errorf("%d %s", status, answer)
	}
	kv := directedTo(d)
	delete(kv, "remote_notify_port")
	_, _, _ = tryPost(p.URL()+"/v1/completions", body{"model": "sim", "prompt": longPrompt(), "max_tokens": 1, "kv_transfer_params": kv})
	<-p.Died()
}
