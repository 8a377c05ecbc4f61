package sim_test

import (
	"fmt"
	"testing"
	"time"

	"xpyd/sim"
)

// p2pLegs sends a prefill and a decode at once, with these parameters, and returns what decode answered.
func p2pLegs(t *testing.T, p, d *sim.Engine, prefill, decode body) (status int, answer []byte) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		post(t, p.URL()+"/v1/completions", body{"model": "sim", "prompt": longPrompt(), "max_tokens": 1, "kv_transfer_params": prefill})
	}()
	status, answer = post(t, d.URL()+"/v1/completions", body{"model": "sim", "prompt": longPrompt(), "max_tokens": 3, "kv_transfer_params": decode})
	<-done
	return status, answer
}

// longPrompt has more than one block.
func longPrompt() (text string) {
	for i := range 100 {
		text += fmt.Sprint("word ", i, " ")
	}
	return text
}

func prefiller(p *sim.Engine, id string) body {
	return body{"remote_prefiller": body{"kv_request_id": id, "remote_host": "127.0.0.1", "remote_port": p.BootstrapPort()}}
}

func TestP2PFetchesByItsID(t *testing.T) {
	p, d := pair(t, sim.Options{Connector: sim.ConnectorP2P})
	status, answer := p2pLegs(t, p, d, body{"remote_decoder": body{"kv_request_id": "x"}}, prefiller(p, "x"))
	if status != 200 || p.Ledger().FreedBy["read"] != 1 || p.Ledger().Pinned != 0 || d.Requests()[0].WrongKV {
		t.Errorf("%d %s, freed by %v, %d pinned", status, answer, p.Ledger().FreedBy, p.Ledger().Pinned)
	}
}

// Two ids are two transfers. Decode waits for its own until its limit and then computes the prompt, and
// the blocks of the other wait for theirs.
func TestP2PWithoutAPartnerEndsByItsLimit(t *testing.T) {
	p, d := pair(t, sim.Options{Connector: sim.ConnectorP2P, Lease: 300 * time.Millisecond, FetchTimeout: 300 * time.Millisecond})
	status, answer := p2pLegs(t, p, d, body{"remote_decoder": body{"kv_request_id": "x"}}, prefiller(p, "y"))
	if status != 200 || d.Requests()[0].WrongKV {
		t.Errorf("%d %s", status, answer)
	}
	for end := time.Now().Add(10 * time.Second); p.Ledger().Pinned > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if by := p.Ledger().FreedBy; by["lease"] != 1 || by["read"] != 0 {
		t.Errorf("freed by %v", by)
	}
}

// A decode request that does not name the id, the host and the port is a plain one.
func TestP2PNeedsAWholeAddress(t *testing.T) {
	_, d := pair(t, sim.Options{Connector: sim.ConnectorP2P})
	for _, role := range []body{{"kv_request_id": "x", "remote_host": "127.0.0.1"}, {"kv_request_id": "x", "remote_port": 1}, {"remote_host": "127.0.0.1", "remote_port": 1}} {
		status, answer := post(t, d.URL()+"/v1/completions", body{"model": "sim", "prompt": longPrompt(), "max_tokens": 3, "kv_transfer_params": body{"remote_prefiller": role}})
		if status != 200 {
			t.Errorf("%v: %d %s", role, status, answer)
		}
	}
}
