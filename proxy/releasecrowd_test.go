package proxy_test

import (
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"xpyd/proxy"
	"xpyd/sim"
)

// Many clients leave at once while one of two decode engines is frozen. The releases that it does
// not answer must not keep the others from the engine that does. A drain is not cut short, so it
// would hold its place until the lease ends.
func TestReleasesOfACrowdPassAFrozenDecode(t *testing.T) {
	together(t)
	for end, version := range map[string]string{"released": "0.32.0", "drained": "0.31.9"} {
		t.Run(end, func(t *testing.T) { crowdLeaves(t, end, version) })
	}
}

func crowdLeaves(t *testing.T, end, version string) {
	const clients, stuck = 64, 16
	var ending atomic.Int32
	open := make(chan struct{})
	r := newRig(t, rigOptions{decode: 2, router: inTurn, engine: func(o *sim.Options) {
		o.MaxSeqs, o.Lease, o.Version = clients, 7*time.Second, version
		o.Hook = func(e sim.Event) {
			if e.Phase == sim.PhasePrefillEnding {
				ending.Add(1)
				<-open
			}
		}
	}, config: func(c *proxy.Config) {
		c.KV.Lease, c.KV.LeaseMargin, c.Timeouts.PrefillAbortGrace = 7*time.Second, time.Second, 5*time.Second
	}})
	r.server.StopChecks()
	var conns []net.Conn
	for i := range clients {
		conn := r.dialRaw()
		conns = append(conns, conn)
		_, _ = io.WriteString(conn, raw(forms(prompt, 6)[0], fmt.Sprintf("leaver-%d", i)))
	}
	r.await("computing", func() bool { return ending.Load() == clients })
	r.decode[0].Freeze()
	t.Cleanup(r.decode[0].Thaw)
	for _, conn := range conns {
		_ = conn.Close()
	}
	r.await("departed", func() bool { return r.server.Departed() == clients })
	close(open)
	back := func() float64 { return r.metric(`xpyd_kv_handles_total{end="` + end + `"}`) }
	r.await("given back, but for those that the frozen one was asked for", func() bool { return back() >= clients-stuck })
	r.decode[0].Thaw()
	r.await("given back", func() bool { return back() == clients })
	r.expectNothingHeld()
}
