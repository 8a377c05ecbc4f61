package proxy_test

import (
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"xpyd/intake/limits"
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

// When the prefills for nobody are over, all that have waited for them go on, and not only as others end.
func TestAllGoOnAfterPrefillsForNobody(t *testing.T) {
	const next = 9
	var orphans, streams atomic.Int32
	settled, ended := make(chan struct{}), make(chan struct{})
	var once sync.Once
	settle, end := func() { once.Do(func() { close(settled) }) }, sync.OnceFunc(func() { close(ended) })
	defer end()
	defer settle()
	r := newRig(t, rigOptions{engine: func(o *sim.Options) {
		o.Hook = func(e sim.Event) {
			switch {
			case e.Phase == sim.PhasePrefillEnding && orphans.Load() < 2:
				orphans.Add(1)
				<-settled
			case e.Phase == sim.PhaseStreamEvent && e.Index == 2 && o.Role == sim.RoleDecode:
				streams.Add(1)
				<-ended
			}
		}
	}, config: func(c *proxy.Config) { c.Timeouts.PrefillAbortGrace = patience }})
	body := `{"model":"sim","prompt":"hello there","max_tokens":4,"stream":true}`
	send := func() net.Conn {
		conn := r.dialRaw()
		_, _ = fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		return conn
	}
	for i := range 2 {
		conn := send()
		r.await("a prefill", func() bool { return int(orphans.Load()) == i+1 })
		defer conn.Close()
		_ = conn.(*net.TCPConn).CloseWrite()
		r.await("its client has left", func() bool { return int(r.server.Departed()) == i+1 })
	}
	for range next {
		defer send().Close()
	}
	r.await("all sent", func() bool { return r.server.View().Running() == next+2 })
	settle()
	r.await("all have begun", func() bool { return streams.Load() == next })
	end()
}
