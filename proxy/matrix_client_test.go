package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

// T15: clients leave in every phase, in every way and for every form of request, all at
// once and on two engines of each role. Not one block may be left to its lease.
func TestClientsLeaveInEveryPhaseAtOnce(t *testing.T) {
	type leaver struct {
		*barrier
		how  func(*net.TCPConn)
		form call
		conn *net.TCPConn
	}
	leavers := map[string]*leaver{}
	for _, phase := range []sim.Phase{sim.PhasePrefillStart, sim.PhasePrefillEnding, sim.PhaseDecodeReceived, sim.PhaseDecodeLoaded, sim.PhaseStreamEvent} {
		for _, form := range forms(prompt, 9) {
			if phase == sim.PhaseStreamEvent && !form.stream {
				continue
			}
			for how, leave := range leaving() {
				id := strings.NewReplacer(" ", "-", "_", ".").Replace(fmt.Sprintf("%s.%s.%s", phase, form.name(), how))
				leavers[id] = &leaver{barrier: newBarrier(phase, 4), how: leave, form: form}
			}
		}
	}
	hook := func(e sim.Event) {
		id := e.RequestID[:max(0, strings.LastIndexByte(e.RequestID, '-'))]
		if l := leavers[id]; l != nil {
			l.hook(e)
		}
	}
	r := newRig(t, rigOptions{prefill: 2, decode: 2, engine: func(o *sim.Options) { o.Hook = hook },
		config: func(c *proxy.Config) { c.Timeouts.PrefillAbortGrace = 5 * time.Second }})
	t.Cleanup(func() {
		for _, l := range leavers {
			l.open()
		}
	})
	for id, l := range leavers {
		l.conn = r.dialRaw()
		_, _ = io.WriteString(l.conn, raw(l.form, id))
	}
	streams := 0.0
	for _, l := range leavers {
		if <-l.reached; l.phase == sim.PhaseStreamEvent {
			streams++
		}
	}
	r.committed(streams)
	for _, l := range leavers {
		l.how(l.conn)
	}
	counted := func(phase string, want float64) {
		t.Helper()
		r.await(fmt.Sprint(want, " counted in ", phase), func() bool { return r.metric(`xpyd_client_gone_total{phase="`+phase+`"}`) == want })
	}
	// The proxy knows that each client has left before any engine goes on. Prefill may still
	// answer.
	counted("decode", 24)
	counted("stream", 6)
	r.await("aware of the rest", func() bool { return r.server.Departed() == 24 })
	for _, l := range leavers {
		l.open()
	}
	counted("prefill", 24)
	r.expectNothingHeld()
	if n := r.metric("xpyd_kv_orphans_total"); n != 0 {
		t.Errorf("%v handles left to their lease", n)
	}
}

// T15: clients leave while they queue for a backend under its cap: for decode, for prefill
// with decode reserved, and for another decode with a handle in hand.
func TestClientsLeaveTheQueues(t *testing.T) {
	together(t)
	for _, tc := range []struct {
		name    string
		held    sim.Phase // where the one that fills the cap is kept
		caps    func(c *router.Config)
		refuse  bool   // decode-0 takes no connection
		counted string // xpyd_client_gone_total's phase
	}{
		{"for decode", sim.PhaseDecodeReceived, func(c *router.Config) { c.DecodeMaxInFlight = 1 }, false, "admitted"},
		{"for prefill", sim.PhasePrefillStart, func(c *router.Config) { c.PrefillMaxInFlight = 1 }, false, "prefill"},
		{"with a handle", sim.PhaseDecodeReceived, func(c *router.Config) { c.DecodeMaxInFlight = 1 }, true, "decode"},
	} {
		for how, leave := range leaving() {
			t.Run(tc.name+"/"+how, func(t *testing.T) {
				b := newBarrier(tc.held, 0)
				r := newRig(t, rigOptions{decode: map[bool]int{true: 2, false: 1}[tc.refuse],
					engine: func(o *sim.Options) { o.Hook = b.hook },
					router: func(c *router.Config) {
						tc.caps(c)
						c.Queue = router.Line{Length: 9, Wait: time.Minute}
						c.Health.EjectAfter = 0
					}})
				t.Cleanup(b.open)
				if tc.refuse {
					if err := r.decode[0].SetFault(sim.Fault{Kind: sim.FaultRefuse}); err != nil {
						t.Fatal(err)
					}
				}
				c := forms(prompt, 4)[0]
				got := make(chan answer, 1)
				go func() { got <- r.call(c) }()
				<-b.reached
				conn := r.dialRaw()
				_, _ = io.WriteString(conn, raw(forms(prompt, 4)[1], "queued"))
				r.await("in the queue", func() bool { return queued(t) == 1 })
				if issued := r.metric(`xpyd_kv_handles_issued_total`); tc.refuse && issued != 2 {
					t.Fatal("no handle in hand: the test proves nothing")
				}
				leave(conn)
				r.await("counted", func() bool { return r.metric(`xpyd_client_gone_total{phase="`+tc.counted+`"}`) == 1 })
				if tc.refuse {
					r.await("handle given back", func() bool { return r.metric(`xpyd_kv_handles_total{end="released"}`) == 1 })
				}
				if n := queued(t); n != 0 {
					t.Errorf("%d still queue", n)
				}
				b.open()
				r.expectWhole(c, <-got)
				r.expectNothingHeld()
			})
		}
	}
}

// queued is how many of a test's requests wait for a backend under its cap.
func queued(t *testing.T) (n int) {
	for _, stack := range goroutinesOf(t.Name()) {
		if strings.Contains(stack, "router.(*Snapshot).AcquireWait+") {
			n++
		}
	}
	return n
}

// T16: readers that take a byte now and then, or none, and never let a write end. Each is cut off
// and its decode aborted, and holds little until then.
func TestReadersThatHardlyRead(t *testing.T) {
	alone(t)
	const readers, perReader = 20, 256 << 10
	event := []byte(`data: {"choices":[{"index":0,"text":"` + strings.Repeat("x", 8<<10) + `","finish_reason":null}]}` + "\n\n")
	var written atomic.Int64
	aborted := make(chan error, readers)
	d := newStub(t, func(w http.ResponseWriter, req *http.Request) { // a stream without an end
		_, _ = io.Copy(io.Discard, req.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for {
			n, err := w.Write(event)
			written.Add(int64(n))
			if err != nil {
				aborted <- err
				return
			}
		}
	})
	r := newRig(t, rigOptions{router: d.asDecode, config: func(c *proxy.Config) { c.Timeouts.WriteStall = 1500 * time.Millisecond }})
	before := heap()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(stop)
	for i := range readers {
		conn := r.dialRaw()
		_ = conn.SetReadBuffer(4 << 10)
		_, _ = io.WriteString(conn, raw(call{stream: true, prompt: prompt, tokens: 9}, fmt.Sprint("slow", i)))
		if i%2 == 0 {
			wg.Go(func() { sip(conn, stop) })
		}
	}
	for last := int64(-1); last < readers*int64(len(event)) || last != written.Load(); time.Sleep(100 * time.Millisecond) {
		last = written.Load() // until all are stuck
	}
	if grown := heap() - before; grown > readers*perReader {
		t.Errorf("%d readers that do not read hold %d bytes each of the heap", readers, grown/readers)
	}
	stuck := time.Now()
	for range readers {
		<-aborted
	}
	if took := time.Since(stuck); took > patience {
		t.Errorf("cut off after %v, timeouts.write_stall is 1.5 s", took)
	}
	r.await("all counted", func() bool { return r.metric(`xpyd_client_gone_total{phase="stream"}`) == readers })
	r.await("idle", func() bool { return r.metric("xpyd_in_flight") == 0 })
}

// sip reads a byte every 100 ms.
func sip(conn net.Conn, stop chan struct{}) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for b := make([]byte, 1); ; {
		select {
		case <-tick.C:
			if _, err := conn.Read(b); err != nil {
				return
			}
		case <-stop:
			return
		}
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC() // what pools held goes with the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// T16: a stream that is read slowly, but not so slowly that a write stalls, comes whole although it
// takes longer than timeouts.write_stall.
func TestSlowStreamReaderIsServed(t *testing.T) {
	const stall = 2 * time.Second
	r := newRig(t, rigOptions{config: func(c *proxy.Config) { c.Timeouts.WriteStall = stall }})
	conn := r.dialRaw()
	_ = conn.SetReadBuffer(64 << 10)
	c := call{stream: true, prompt: prompt, tokens: 20_000} // 4 MB, more than the sockets hold
	_, _ = io.WriteString(conn, raw(c, "steady"))
	start := time.Now()
	resp, err := http.ReadResponse(bufio.NewReaderSize(&paced{conn}, 64<<10), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	r.expectWhole(c, answer{resp.StatusCode, resp.Header, string(body), err})
	// The deadline is moved at most once a second, so it may be a second later.
	if took := time.Since(start); took < stall+time.Second {
		t.Errorf("read in %v: the test proves nothing", took)
	}
}

// paced reads at most 24 KiB at a time and rests between.
type paced struct{ net.Conn }

func (p *paced) Read(b []byte) (int, error) {
	time.Sleep(20 * time.Millisecond)
	return p.Conn.Read(b[:min(len(b), 24<<10)])
}

// T17: a request that follows one whose stream still runs does not change that stream, which ends
// in its own time although the second request has no answer.
func TestPipelinedRequestDuringAStream(t *testing.T) {
	first, second := newBarrier(sim.PhaseStreamEvent, 3), newBarrier(sim.PhaseDecodeReceived, 0)
	r := newRig(t, rigOptions{engine: func(o *sim.Options) {
		o.Hook = func(e sim.Event) {
			if strings.HasPrefix(e.RequestID, "one-") {
				first.hook(e)
			} else {
				second.hook(e)
			}
		}
	}})
	t.Cleanup(second.open)
	t.Cleanup(first.open)
	conn := r.dialRaw()
	one, two := forms(prompt, 9)[1], forms("another prompt altogether", 4)[2]
	_, _ = io.WriteString(conn, raw(one, "one"))
	<-first.reached
	_, _ = io.WriteString(conn, raw(two, "two"))
	first.open()
	br := bufio.NewReader(conn)
	_ = conn.SetReadDeadline(time.Now().Add(2 * patience))
	read := func() answer {
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		return answer{resp.StatusCode, resp.Header, string(body), err}
	}
	r.expectWhole(one, read()) // to its last chunk, while the second is held
	<-second.reached
	second.open()
	r.expectWhole(two, read())
	if n := r.metric("xpyd_client_gone_total"); n != 0 {
		t.Errorf("%v clients counted as gone", n)
	}
	r.expectNothingHeld()
}

// T31: a caller over its own share gets 429, and one that meets a full pool 503, both with a
// Retry-After. Those that had a place get a right answer, and the places are free afterwards.
func TestTooManyAtOnce(t *testing.T) {
	b := newBarrier(sim.PhaseDecodeReceived, 0)
	r := newRig(t, rigOptions{
		engine: func(o *sim.Options) { o.Hook = b.hook },
		config: func(c *proxy.Config) { c.APIKeys, c.Limits.ClientInFlight = []string{"key-a", "key-b"}, 3 },
		router: func(c *router.Config) {
			c.DecodeMaxInFlight, c.Queue = 1, router.Line{Length: 3, Wait: time.Minute}
		},
	})
	t.Cleanup(b.open)
	c := forms(prompt, 4)[0]
	got := make(chan answer, 16)
	ask := func(key string) { go func() { got <- r.call(c, "Authorization", "Bearer "+key) }() }
	ask("key-a")
	<-b.reached // it has the only slot
	ask("key-a")
	ask("key-a")
	ask("key-b")
	r.await("queue full", func() bool { return queued(t) == 3 })
	for range 4 {
		for key, want := range map[string]string{"key-a": "429 client_limit", "key-b": "503 overloaded"} {
			a := r.call(c, "Authorization", "Bearer "+key)
			if s := fmt.Sprint(a.status, " ", a.code()); s != want || a.header.Get("Retry-After") == "" || a.header.Get("X-Should-Retry") == "false" {
				t.Errorf("%s: %s %v, want %s", key, s, a.header, want)
			}
		}
	}
	b.open()
	for range 4 {
		r.expectWhole(c, <-got)
	}
	for range 3 {
		ask("key-a")
		ask("key-b")
	}
	for range 6 {
		if a := <-got; a.status != 200 && a.status != 503 { // the queue holds three
			t.Errorf("%d %s after all had ended", a.status, a.body)
		}
	}
	r.expectNothingHeld()
}
