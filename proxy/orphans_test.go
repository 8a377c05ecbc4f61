package proxy_test

import (
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"xpyd/limits"
	"xpyd/proxy"
	"xpyd/sim"
)

// A client that sends and leaves has few prefills that run for nobody. Its next requests wait until those are over, and
// others do not. A wait ends when its client leaves.
func TestFewPrefillsRunForNobody(t *testing.T) {
	const leavers = 40
	var computing atomic.Int32
	open := make(chan struct{})
	var once sync.Once
	let := func() { once.Do(func() { close(open) }) }
	defer let()
	r := newRig(t, rigOptions{engine: func(o *sim.Options) {
		o.MaxSeqs = 2 * leavers
		o.Hook = func(e sim.Event) {
			if e.Phase != sim.PhasePrefillEnding {
				return
			}
			computing.Add(1)
			<-open
			computing.Add(-1)
		}
	}, config: func(c *proxy.Config) {
		c.Timeouts.PrefillAbortGrace = patience
		c.Keys = []limits.Terms{holder("alpha", nil), holder("beta", nil)}
	}})
	send := func(id string) net.Conn {
		body := forms(prompt, 3)[0].body()
		conn := r.dialRaw()
		_, _ = fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer sk-alpha\r\nX-Request-Id: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", id, len(body), body)
		return conn
	}
	for i := range leavers {
		conn := send(fmt.Sprint("leaver-", i))
		time.Sleep(3 * time.Millisecond) // so that some have reached an engine
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
	r.await("over, but for the prefills", func() bool { return int(r.metric("xpyd_client_gone_total"))+int(r.server.Departed()) == leavers })
	orphans := computing.Load()
	if orphans < 2 || orphans > 10 {
		t.Errorf("%d prefills for a client that has left %d", orphans, leavers)
	}
	next := send("next")
	honest := r.start(forms(prompt, 3)[0], as("beta")...)
	r.await("another client's prefill", func() bool { return computing.Load() > orphans })
	if n := computing.Load(); n != orphans+1 {
		t.Errorf("%d prefills run, want %d and that of the other client", n, orphans)
	}
	let()
	r.expectWhole(forms(prompt, 3)[0], r.soon(honest))
	if _, err := io.ReadAtLeast(next, make([]byte, 12), 12); err != nil {
		t.Errorf("the client's next request: %v", err)
	}
	_ = next.Close()
	r.expectNothingHeld()
}
