package proxy_test

import (
	"fmt"
	"testing"
	"time"

	"xpyd/kvparams"
	"xpyd/router"
	"xpyd/sim"
)

// faultPrefill gives all prefill engines a fault.
func (r *rig) faultPrefill(f sim.Fault) {
	r.t.Helper()
	for _, p := range r.prefill {
		if err := p.SetFault(f); err != nil {
			r.t.Fatal(err)
		}
	}
}

// If every prefill engine fails, decode computes the prompt, whether the legs follow each other or begin together.
func TestFailedPrefillPoolEndsInDecodeAlone(t *testing.T) {
	for kind, reason := range map[string]string{"status=500": "prefill_failed", "refuse": "prefill_unavailable"} {
		for _, engines := range []int{1, 3} {
			eachConnectorThat(t, kvparams.Dialect.DecodeOnlySafe, func(t *testing.T, d kvparams.Dialect) {
				t.Run(fmt.Sprintf("%s/%d engines", kind, engines), func(t *testing.T) {
					r := newRig(t, rigOptions{dialect: d, prefill: engines, decode: 2})
					f, err := sim.ParseFault(kind)
					if err != nil {
						t.Fatal(err)
					}
					r.faultPrefill(f)
					for _, c := range forms(prompt, 3) {
						a := r.call(c)
						r.expectWhole(c, a)
						if path := pathOf(a); path != "decode_only "+reason && path != "decode_only prefill_unavailable" { // once it is down
							t.Errorf("%s went %s, want decode_only %s", c.name(), path, reason)
						}
					}
					r.await("idle", func() bool { return r.server.Live() == 0 && r.metric("xpyd_in_flight") == 0 })
				})
			})
		}
	}
}

// If decode can compute prompts, no request waits for a share of the retries, whatever the connector.
func TestSpentRetriesEndInDecodeAloneWithEachConnector(t *testing.T) {
	const n = 40 // more than may be retried within ten seconds
	eachConnectorThat(t, kvparams.Dialect.DecodeOnlySafe, func(t *testing.T, d kvparams.Dialect) {
		r := newRig(t, rigOptions{dialect: d, prefill: 2, router: func(c *router.Config) { c.Health.EjectAfter = 0 }})
		r.faultPrefill(sim.Fault{Kind: sim.FaultStatus, Value: 500, Leg: "P"})
		began := time.Now()
		got := r.burst(n, prompt)
		for range n {
			if a := <-got; a.status != 200 || pathOf(a) != "decode_only prefill_failed" {
				t.Errorf("%d %s, went %s", a.status, a.code(), pathOf(a))
			}
		}
		if took := time.Since(began); took >= router.RetrySettle {
			t.Errorf("all had an answer after %v: the last ones waited for a retry", took)
		}
		if n := r.metric("xpyd_retries_denied_total"); n != 0 {
			t.Errorf("%v retries counted as denied", n)
		}
	})
}

// A prefill engine without a tool parser refuses or fails a forced call that the decode engine can serve.
func TestForcedToolGoesToDecodeWithEachConnector(t *testing.T) {
	const body = `{"model":"sim","max_tokens":4,"messages":[{"role":"user","content":"hello there"}],` +
		`"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],"tool_choice":"required"}`
	eachConnectorThat(t, kvparams.Dialect.DecodeOnlySafe, func(t *testing.T, d kvparams.Dialect) {
		for _, status := range []int{400, 500} {
			r := newRig(t, rigOptions{dialect: d, engine: func(o *sim.Options) {
				if o.Role == sim.RoleDecode {
					o.ToolCallParser = "hermes"
				}
			}})
			r.faultPrefill(sim.Fault{Kind: sim.FaultStatus, Value: status, Leg: "P"})
			if a := r.post("/v1/chat/completions", body); a.status != 200 || pathOf(a) != "decode_only tool_choice" {
				t.Errorf("prefill says %d: %d %s, went %s", status, a.status, a.code(), pathOf(a))
			}
		}
	})
}
