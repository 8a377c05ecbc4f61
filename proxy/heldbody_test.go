package proxy_test

import (
	"strings"
	"testing"

	"xpyd/kvparams"
	"xpyd/sim"
)

// Once both legs have their answers, a stream holds nothing of its request, so that long prompts in streams
// leave limits.body_budget to others.
func TestStreamHoldsNothingOfItsRequest(t *testing.T) {
	body := `{"model":"sim","stream":true,"max_tokens":5,"prompt":"` + strings.Repeat("a ", 2_000) + `"}`
	eachConnector(t, func(t *testing.T, d kvparams.Dialect) {
		b := newBarrier(sim.PhaseStreamEvent, 2)
		r := newRig(t, rigOptions{dialect: d, engine: func(o *sim.Options) { o.Hook = b.hook }})
		t.Cleanup(b.open)
		got := make(chan answer, 1)
		go func() { got <- r.post("/v1/completions", body) }()
		<-b.reached
		r.answeredPrefill()
		r.await("given back", func() bool { return r.metric("xpyd_request_bytes_buffered") == 0 })
		b.open()
		if a := r.soon(got); a.status != 200 || a.err != nil || a.header.Get("X-Xpyd-Path") != "disaggregated" {
			t.Errorf("%d %v, went %s", a.status, a.err, pathOf(a))
		}
	})
}
