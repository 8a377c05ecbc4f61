package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"xpyd/netio/upstream/nametest"
	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

// T22, the bound: on every socket to a client or a backend the kernel gives up on a silent peer
// within 30 s, whether or not bytes wait to be acknowledged.
func TestSocketsGiveUpOnADeadPeerIn30Seconds(t *testing.T) {
	alone(t)
	prefills, streams := newBarrier(sim.PhasePrefillStart, 0), newBarrier(sim.PhaseStreamEvent, 3)
	r := newRig(t, rigOptions{
		engine: func(o *sim.Options) { o.Hook = func(e sim.Event) { prefills.hook(e); streams.hook(e) } },
		config: func(c *proxy.Config) { c.Timeouts.UpstreamIdle = 50 * time.Millisecond },
		router: func(c *router.Config) { c.Health.Interval, c.Health.SuspectInterval = time.Hour, time.Hour },
	})
	t.Cleanup(prefills.open)
	t.Cleanup(streams.open)
	c := forms(prompt, 9)[1]
	got := make(chan answer, 1)
	go func() { got <- r.call(c) }()
	expect := func(who string, want ends) {
		var fds []int
		// What else is open is idle, or of the first checks, and closes.
		r.await("one connection: "+who, func() bool { fds = sockets(t, want); return len(fds) == 1 })
		fd := fds[0]
		get := func(level, opt int) int {
			v, err := unix.GetsockoptInt(fd, level, opt)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		idle, every, count := get(unix.IPPROTO_TCP, unix.TCP_KEEPIDLE), get(unix.IPPROTO_TCP, unix.TCP_KEEPINTVL), get(unix.IPPROTO_TCP, unix.TCP_KEEPCNT)
		if get(unix.SOL_SOCKET, unix.SO_KEEPALIVE) != 1 || idle+every*count > 30 {
			t.Errorf("%s: keep-alive after %d s, %d times every %d s", who, idle, count, every)
		}
		if ms := get(unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT); ms < 1 || ms > 30_000 {
			t.Errorf("%s: TCP_USER_TIMEOUT %d ms", who, ms)
		}
	}
	<-prefills.reached
	expect("prefill", ends{peer: port(t, r.prefill[0].URL())})
	prefills.open()
	<-streams.reached
	expect("client", ends{local: port(t, r.url)})
	expect("decode", ends{peer: port(t, r.decode[0].URL())})
	streams.open()
	r.expectWhole(c, <-got)
}

// A closed window counts as silence, so a longer timeouts.write_stall must lengthen the wait.
func TestPatienceWithAClientIsAtLeastTheWriteStall(t *testing.T) {
	alone(t)
	b := newBarrier(sim.PhaseStreamEvent, 3)
	r := newRig(t, rigOptions{
		engine: func(o *sim.Options) { o.Hook = b.hook },
		config: func(c *proxy.Config) { c.Timeouts.WriteStall = 2 * time.Minute },
	})
	t.Cleanup(b.open)
	c := forms(prompt, 9)[1]
	client := ends{local: port(t, r.url)}
	patience := func(fd int) (int, error) { return unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT) }
	listening := client
	listening.listening = true
	r.await("the port is served", func() bool { // what waited in its queue before is as patient as the kernel
		ms, err := patience(sockets(t, listening)[0])
		return err == nil && ms >= 120_000
	})
	got := make(chan answer, 1)
	go func() { got <- r.call(c) }()
	<-b.reached
	r.await("one connection", func() bool { return len(sockets(t, client)) == 1 })
	ms, err := patience(sockets(t, client)[0])
	if err != nil || ms < 120_000 {
		t.Errorf("TCP_USER_TIMEOUT %d ms (%v), want timeouts.write_stall at least", ms, err)
	}
	b.open()
	r.expectWhole(c, <-got)
}

// T22, backends: a link that dies in silence fails its leg as a reset would.
func TestLinkToABackendDies(t *testing.T) {
	alone(t) // it cuts sockets by their descriptors
	for _, tc := range []struct {
		name   string
		engine string
		phase  sim.Phase
		index  int
	}{
		{"prefill works", "prefill-0", sim.PhasePrefillStart, 0},
		{"decode has sent nothing", "decode-0", sim.PhaseDecodeReceived, 0},
		{"in the stream", "decode-0", sim.PhaseStreamEvent, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newBarrier(tc.phase, tc.index)
			r := newRig(t, rigOptions{prefill: 2, decode: 2, engine: func(o *sim.Options) { o.Hook = b.only(tc.engine) }})
			t.Cleanup(b.open)
			c := forms(prompt, 9)[1]
			got := make(chan answer, 1)
			asked := 0.0
			for met := false; !met; {
				asked++
				go func() { got <- r.call(c) }()
				select {
				case <-b.reached:
					met = true
				case a := <-got: // of another engine
					r.expectWhole(c, a)
				}
			}
			if tc.phase == sim.PhaseStreamEvent {
				r.committed(asked)
			}
			engine := map[string]*sim.Engine{"prefill-0": r.prefill[0], "decode-0": r.decode[0]}[tc.engine]
			at := port(t, engine.URL())
			start := time.Now()
			cut(t, sockets(t, ends{peer: at}), sockets(t, ends{local: at}))
			a := <-got
			if took := time.Since(start); took > patience {
				t.Errorf("noticed after %v, the kernel's timers are at 2 s", took)
			}
			if tc.phase == sim.PhaseStreamEvent {
				r.expectBroken(c, a, "decode_failed")
			} else {
				r.expectWhole(c, a)
			}
			b.open()
			r.await("idle", func() bool { return r.metric("xpyd_in_flight") == 0 })
		})
	}
}

// T22, backends: a link that died while it was idle.
func TestLinkOfAPooledConnectionDies(t *testing.T) {
	alone(t)
	r := newRig(t, rigOptions{})
	c := forms(prompt, 5)[0]
	r.expectWhole(c, r.call(c, "X-Request-Id", "before"))
	for _, e := range []*sim.Engine{r.prefill[0], r.decode[0]} {
		at := port(t, e.URL())
		cut(t, sockets(t, ends{peer: at}), sockets(t, ends{local: at}))
	}
	r.expectWhole(c, r.call(c, "X-Request-Id", "after"))
	served := 0
	for _, rec := range legs(r.decode, "decode") {
		if !strings.HasSuffix(rec.RequestID, "-release") {
			served++
		}
	}
	if served != 2 {
		t.Errorf("%d decode legs reached the engine, want one of each request", served)
	}
	r.expectNothingHeld()
}

// T22, clients: a client whose link dies has left, like one that closes.
func TestLinkToAClientDies(t *testing.T) {
	alone(t) // it cuts sockets by their descriptors
	for _, tc := range []struct {
		name    string
		counted string
	}{{"waiting", "decode"}, {"in the stream", "stream"}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newBarrier(sim.PhaseDecodeReceived, 0)
			r := newRig(t, rigOptions{engine: func(o *sim.Options) {
				o.TokenLatency = 10 * time.Millisecond
				if tc.counted == "decode" {
					o.Hook = b.hook
				}
			}})
			t.Cleanup(b.open)
			conn := r.dialRaw()
			_, _ = io.WriteString(conn, raw(call{stream: true, prompt: prompt, tokens: 2000}, "cut"))
			if tc.counted == "decode" {
				<-b.reached
			} else if _, err := bufio.NewReader(conn).ReadString('{'); err != nil {
				t.Fatal(err)
			}
			at := port(t, r.url)
			cut(t, sockets(t, ends{local: at}), sockets(t, ends{peer: at}))
			r.await("counted", func() bool { return r.metric(`xpyd_client_gone_total{phase="`+tc.counted+`"}`) == 1 })
			b.open()
			r.expectNothingHeld()
			if rec := r.record(r.decode[0], "cut"); rec.Outcome != "aborted" {
				t.Errorf("decode leg %s, want it aborted", rec.Outcome)
			}
		})
	}
}

// T23: TCP deals with a link that loses segments. Nothing is sent twice.
func TestLossyLinks(t *testing.T) {
	alone(t)
	t.Setenv("GODEBUG", "multipathtcp=0") // MPTCP listeners take no filter
	r := newRig(t, rigOptions{prefill: 2, decode: 2})
	for _, base := range []string{r.url, r.prefill[0].URL(), r.prefill[1].URL(), r.decode[0].URL(), r.decode[1].URL()} {
		filter(t, sockets(t, ends{listening: true, local: port(t, base)}), losing(.02))
		if more := sockets(t, ends{local: port(t, base)}); len(more) > 0 {
			filter(t, more, losing(.02)) // what was accepted before
		}
	}
	const n = 40
	type result struct {
		c call
		a answer
	}
	got := make(chan result, n)
	for i := range n {
		c := forms(prompt, 60)[i%4]
		go func() { got <- result{c, r.call(c)} }()
	}
	for range n {
		res := <-got
		r.expectWhole(res.c, res.a)
	}
	if p, d := len(legs(r.prefill, "prefill")), len(legs(r.decode, "decode")); p != n || d != n {
		t.Errorf("%d prefill and %d decode legs for %d requests", p, d, n)
	}
	r.expectNothingHeld()
}

// T23: half of the SYNs to one engine of each pool are lost, and with them dials. A
// failed dial costs neither a prefill nor a handle.
func TestLostSYNs(t *testing.T) {
	alone(t)
	t.Setenv("GODEBUG", "multipathtcp=0")
	for range 3 {
		if servesDespiteLostSYNs(t) {
			return
		}
	}
	t.Fatal("each time a dial failed to an engine that gets all SYNs")
}

// servesDespiteLostSYNs reports false, and judges nothing, if the machine was too slow for the time of a dial.
func servesDespiteLostSYNs(t *testing.T) bool {
	t.Helper()
	r := newRig(t, rigOptions{prefill: 2, decode: 2, config: func(c *proxy.Config) {
		c.Timeouts.Dial, c.Timeouts.UpstreamIdle = 900*time.Millisecond, time.Millisecond // each leg dials, and the kernel tries again after 1 s
	}, router: func(c *router.Config) {
		c.Health.Fall = 100 // checks dial too, and the legs of a backend that goes down would move
	}})
	for _, e := range []*sim.Engine{r.prefill[0], r.decode[0]} {
		filter(t, sockets(t, ends{listening: true, local: port(t, e.URL())}), losingSYN(.5))
	}
	const n = 32
	c := forms(prompt, 5)[1]
	got := make(chan answer, n)
	for range n {
		go func() { got <- r.call(c) }()
	}
	var all []answer
	for range n {
		all = append(all, <-got)
	}
	if r.legOutcome(r.prefill[1].URL(), "prefill", "refused")+r.legOutcome(r.decode[1].URL(), "decode", "refused") > 0 {
		return false
	}
	for _, a := range all {
		r.expectWhole(c, a)
		if path := a.header.Get("X-Xpyd-Path"); path != "disaggregated" {
			t.Errorf("served %s although a prefill engine could be reached", path)
		}
	}
	// The chance that all of the 32 dials to the two succeed is one in 2^32.
	if r.metric(`xpyd_leg_requests_total{backend="`+r.prefill[0].URL()+`",leg="prefill",outcome="refused"}`)+
		r.metric(`xpyd_leg_requests_total{backend="`+r.decode[0].URL()+`",leg="decode",outcome="refused"}`) == 0 {
		t.Error("no dial failed: the test proves nothing")
	}
	if p, d := len(legs(r.prefill, "prefill")), len(legs(r.decode, "decode")); p != n || d != n {
		t.Errorf("%d prefill and %d decode legs for %d requests: a failed dial was more than a dial\n%s", p, d, n, r.logs)
	}
	r.expectNothingHeld()
	return true
}

// T24: engines that are configured by name stay up and serve, whatever a name server does.
func TestEnginesByNameOutliveTheirNameServer(t *testing.T) {
	here := netip.MustParseAddr("127.0.0.1")
	ns := nametest.New(t, nametest.Answer{Code: 3})
	r := newRig(t, rigOptions{config: func(c *proxy.Config) { c.Timeouts.UpstreamIdle = time.Millisecond }}) // each leg dials
	r.server.LookUpWith(ns)
	pools := router.DefaultConfig()
	pools.Prefill = router.MustEntries(fmt.Sprintf("http://prefill.test:%d", port(t, r.prefill[0].URL())))
	pools.Decode = router.MustEntries(fmt.Sprintf("http://decode.test:%d", port(t, r.decode[0].URL())))
	if err := r.server.Reload(pools); err != nil {
		t.Fatal(err)
	}
	c := forms(prompt, 5)[1]
	if a := r.call(c); a.status != 503 || a.code() != "decode_unavailable" {
		t.Fatalf("%d %s while no name is known", a.status, a.body)
	}
	ns.Set(nametest.Answer{Addrs: []netip.Addr{here}})
	r.await("up", func() bool { return r.metric(`xpyd_backend_up`) == 2 })
	for name, said := range map[string]nametest.Answer{"server failure": {Code: 2}, "silence": {Silent: true}} {
		ns.Set(said)
		for asked := ns.Asked.Load(); ns.Asked.Load() == asked; {
			r.server.ProbeNow()
			r.expectWhole(c, r.call(c))
		}
		for range 4 { // more than health.fall
			r.server.ProbeNow()
		}
		if n := r.metric(`xpyd_backend_up`); n != 2 {
			t.Errorf("%s: %v of 2 backends are up", name, n)
		}
	}
	if strings.Contains(r.logs.String(), `"state":"down"`) {
		t.Error("a backend went down for its name server")
	}
}
