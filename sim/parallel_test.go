package sim_test

import (
	"strings"
	"testing"

	"xpyd/sim"
)

// vLLM takes KV over between engines of different sizes if one is a multiple of the other, and from a larger prefill engine
// only if none of its GPUs hold the same heads.
func TestPairsOfDifferentTensorParallelSizes(t *testing.T) {
	for _, c := range []struct {
		prefill, decode, heads int
		fits                   bool
	}{
		{1, 4, 8, true}, {4, 1, 8, true}, {2, 2, 8, true}, {8, 2, 8, true}, {4, 8, 4, true}, {8, 8, 4, true}, {2, 16, 8, true},
		{2, 3, 8, false}, {3, 2, 8, false}, {4, 6, 8, false}, {8, 4, 4, false}, {16, 8, 8, false},
	} {
		p := start(t, sim.Options{Role: sim.RolePrefill, Parallel: sim.Parallel{TP: c.prefill, KVHeads: c.heads}}.Fast())
		d := start(t, sim.Options{Role: sim.RoleDecode, Parallel: sim.Parallel{TP: c.decode, KVHeads: c.heads}}.Fast())
		handle := prefill(t, p, completionsPath, textBody)
		if !strings.Contains(string(handle), `"tp_size":`+itoa(c.prefill)+`,`) {
			t.Errorf("%+v: handle %s", c, handle)
		}
		status, answer := post(t, d.URL()+completionsPath, textBody.with("kv_transfer_params", handle))
		if !c.fits {
			expectLoadFailure(t, status, answer, false, false)
		} else if status != 200 || text(t, answer) != sim.Text(textBody["prompt"].(string), 9) {
			t.Errorf("%+v: %d %s", c, status, answer)
		}
	}
}

func TestTensorParallelSizeIsPositive(t *testing.T) {
	for _, p := range []sim.Parallel{{TP: -1}, {KVHeads: -1}} {
		if err := (sim.Options{Parallel: p}).Validate(); err == nil {
			t.Errorf("%+v was taken", p)
		}
	}
}
