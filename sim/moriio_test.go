package sim_test

import (
	"testing"

	"xpyd/sim"
)

// A decode engine of MoRIIO in read mode counts every prompt as loaded. Nothing says that it was not.
func TestMoriioDecodesWithoutAHandleOnUnloadedBlocks(t *testing.T) {
	_, d := pair(t, sim.Options{Connector: sim.ConnectorMoriio})
	if status, answer := post(t, d.URL()+"/v1/completions", body{"model": "sim", "prompt": "one two three", "max_tokens": 3}); status != 200 {
		t.Fatalf("%d %s", status, answer)
	}
	if r := d.Requests()[0]; !r.WrongKV {
		t.Errorf("answered as if KV had come: %+v", r)
	}
}
