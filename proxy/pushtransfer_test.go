package proxy_test

import (
	"fmt"
	"io"
	"testing"

	"xpyd/kvparams"
	"xpyd/sim"
)

// Engines after vLLM 0.33 pair the legs of nixl-push by a transfer id, and so do those that free an abandoned prefill.
func TestPushPairsByTransferID(t *testing.T) {
	together(t)
	d, _ := kvparams.Lookup("nixl-push")
	for _, release := range []string{"0.33.0", "0.34.0"} {
		t.Run(release, func(t *testing.T) {
			r := newRig(t, rigOptions{dialect: d, engine: func(o *sim.Options) { o.Version = release }})
			for i, c := range apiCalls("", 9) {
				c.prompt = fmt.Sprintf("%d %s", i, prompt)
				r.expectAPI(c, r.post(c.path(), c.body()))
				r.await("moved", func() bool { return r.moved() == i+1 })
			}
			r.expectNothingHeld()
		})
	}
}

func TestPushDrainsByTransferID(t *testing.T) {
	together(t)
	d, _ := kvparams.Lookup("nixl-push")
	for _, c := range apiCalls(prompt, 9) {
		t.Run(c.api, func(t *testing.T) {
			b := newBarrier(sim.PhasePrefillEnding, 0)
			r := newRig(t, rigOptions{dialect: d, engine: func(o *sim.Options) { o.Version, o.Hook = "0.34.0", b.hook }})
			t.Cleanup(b.open)
			conn := r.dialRaw()
			_, _ = io.WriteString(conn, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", c.path(), len(c.body()), c.body()))
			r.reached(b)
			_ = conn.Close()
			r.await("aware that the client left", func() bool { return r.server.Departed() == 1 })
			b.open()
			r.await("drained", func() bool { return r.metric(`xpyd_kv_handles_total{end="drained"`) == 1 })
			r.expectNothingHeld()
		})
	}
}
