package kvparams

import "testing"

// toy is what a newcomer writes for a connector: this file without the test, and its row in dialects.
// CONTRIBUTING.md shows it. Its engines keep KV in a bag, under a ticket that both legs carry.
type toy struct{ noHandle }

func (toy) Name() string         { return "toy" }
func (toy) Experimental() bool   { return true }
func (toy) Concurrent() bool     { return false }
func (toy) DecodeOnlySafe() bool { return true }
func (toy) Reclaim() Reclaim     { return ReclaimNone }

func (toy) EngineConfig(role Role) string { return engineConfig("ToyConnector", role) }

func (toy) AppendPrefill(dst Segments, r *Request, leg *Leg) Segments {
	return r.appendOneToken(dst, leg.text(`{"put":"`, leg.ID, `"}`))
}

func (toy) AppendDecode(dst Segments, r *Request, _ Handle, leg *Leg) Segments {
	return r.appendWith(dst, leg.text(`{"take":"`, leg.ID, `"}`))
}

func TestToy(t *testing.T) {
	prefill, decode := legsOf(t, toy{}, parse(t, Completions, `{"prompt":"x","max_tokens":5}`), Handle{})
	if want := `{"prompt":"x","max_tokens":1,"min_tokens":1,"kv_transfer_params":{"put":"a-1"}}`; prefill != want {
		t.Errorf("prefill %s", prefill)
	}
	if want := `{"prompt":"x","max_tokens":5,"kv_transfer_params":{"take":"a-1"}}`; decode != want {
		t.Errorf("decode %s", decode)
	}
	if _, pairs := Dialect(toy{}).(Pairing); pairs {
		t.Error("a connector without a bootstrap server would wait for one")
	}
}
