package proxy_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

// The rows T10, T11 and T27 to T29 of the fault matrix, in which a handle is out, or the proxy
// itself fails. tools/faults names the tests of each row.

func TestPrefillKilledBeforeDecodePulls(t *testing.T) {
	together(t)
	for _, c := range forms(prompt, 6) {
		t.Run(c.name(), func(t *testing.T) {
			b := newBarrier(sim.PhaseDecodeReceived, 0)
			r := newRig(t, rigOptions{prefill: 2, engine: func(o *sim.Options) { o.Hook = b.hook }})
			t.Cleanup(b.open)
			got := make(chan answer, 1)
			go func() { got <- r.call(c, "X-Request-Id", "orphan") }()
			<-b.reached
			dead, other := r.prefill[0], r.prefill[1]
			if len(legsOf(dead, "orphan")) == 0 {
				dead, other = other, dead
			}
			dead.Kill()
			b.open()
			r.expectWhole(c, <-got)
			if n := len(legsOf(other, "orphan")); n != 1 {
				t.Errorf("the living prefill engine was asked %d times, want a new round", n)
			}
			if n := len(legsOf(r.decode[0], "orphan")); n != 2 {
				t.Errorf("decode was asked %d times, want 2", n)
			}
			if err := dead.Restart(); err != nil { // what it held has gone with it
				t.Fatal(err)
			}
			r.expectNothingHeld()
		})
	}
}

func TestFailedDecodeNeverSeesAHandleAgain(t *testing.T) {
	together(t)
	for _, tc := range []struct {
		kind     string
		status   int // for the client whose request meets the fault
		prefills int // handles issued for that request
	}{
		{"status=400", 400, 1},
		{"status=422", 422, 1},
		{"status=429", 200, 2},
		{"status=500", 200, 2},
		{"error-first", 200, 2},
		{"zero", 200, 2},
		{"truncate@40", 200, 2},
		{"fin", 200, 2},
		{"rst", 200, 2},
	} {
		for _, c := range forms(prompt, 4)[:2] {
			t.Run(tc.kind+"/"+c.name(), func(t *testing.T) {
				r := newRig(t, rigOptions{decode: 2, router: inTurn})
				r.fault(r.decode[0], tc.kind)
				met := 0
				for i := range 4 {
					id := fmt.Sprint("once", i)
					a := r.call(c, "X-Request-Id", id)
					r.await("recorded", func() bool { // engines do that after their answers
						n := len(legsOf(r.decode[0], id)) + len(legsOf(r.decode[1], id))
						return n > 0 && n >= len(legsOf(r.prefill[0], id))
					})
					prefills, first := len(legsOf(r.prefill[0], id)), legsOf(r.decode[0], id)
					// An engine whose error was read and hung up on may call itself aborted.
					if len(first) == 0 || !strings.HasPrefix(first[0].Outcome, "fault:") && a.status == 200 {
						r.expectWhole(c, a)
						continue
					}
					met++
					if tc.status == 200 {
						r.expectWhole(c, a)
					} else if a.status != tc.status {
						t.Errorf("%d %s, want %d", a.status, a.body, tc.status)
					}
					if prefills != tc.prefills || len(first) != 1 {
						t.Errorf("%d prefills, %d requests to the faulty decode engine; want %d and 1", prefills, len(first), tc.prefills)
					}
				}
				if met != 1 && !(tc.kind == "truncate@40" && c.stream) { // that is no fault of a stream
					t.Errorf("%d requests met the fault, want 1", met)
				}
				r.expectEachHandleOnce()
				r.expectNothingHeld()
			})
		}
	}
}

// No D has seen a handle whose dial failed, so the same handle goes to the next D.
func TestHandleOfARefusedDialGoesElsewhere(t *testing.T) {
	together(t)
	for _, c := range forms(prompt, 4) {
		t.Run(c.name(), func(t *testing.T) {
			r := newRig(t, rigOptions{decode: 2})
			if err := r.decode[0].SetFault(sim.Fault{Kind: sim.FaultRefuse}); err != nil {
				t.Fatal(err)
			}
			met := func() bool { return r.legOutcome(r.decode[0].URL(), "decode", "refused") > 0 }
			r.until(met, func(i int) {
				id := fmt.Sprint("refused", i)
				r.expectWhole(c, r.call(c, "X-Request-Id", id))
				p, d := legsOf(r.prefill[0], id), legsOf(r.decode[1], id)
				if len(p) != 1 || len(d) != 1 || p[0].RemoteRequestID != d[0].RemoteRequestID {
					t.Errorf("prefills %+v, decodes %+v, want one each with the same handle", p, d)
				}
			})
			r.expectEachHandleOnce()
			r.expectNothingHeld()
		})
	}
}

// fault makes an engine misbehave on the next request of the leg of its role.
func (r *rig) fault(e *sim.Engine, kind string) {
	r.t.Helper()
	f, err := sim.ParseFault(kind)
	if err != nil {
		r.t.Fatal(err)
	}
	f.Count = 1
	if err := e.SetFault(f); err != nil {
		r.t.Fatal(err)
	}
}

// expectEachHandleOnce fails if the decode engines got one handle in two requests, not counting its
// release.
func (r *rig) expectEachHandleOnce() {
	r.t.Helper()
	seen := map[string]bool{}
	for _, rec := range legs(r.decode, "decode") {
		if strings.HasSuffix(rec.RequestID, "-release") {
			continue
		}
		if seen[rec.RemoteRequestID] {
			r.t.Errorf("the handle of %s was dispatched twice", rec.RemoteRequestID)
		}
		seen[rec.RemoteRequestID] = true
	}
}

func TestHandleThatWaitedTooLongIsReplaced(t *testing.T) {
	hole := "http://" + blackhole(t)
	r := newRig(t, rigOptions{
		router: func(c *router.Config) { c.Decode = append(router.MustEntries(hole), c.Decode...) },
		config: func(c *proxy.Config) {
			// A handle may wait for 1.5 s. The dial takes longer than that to fail.
			c.KV.Lease, c.KV.LeaseMargin, c.Timeouts.Dial = 10*time.Second, 8500*time.Millisecond, 2*time.Second
		}})
	c := forms(prompt, 4)[1]
	id := ""
	for i := 0; i < 40 && r.legOutcome(hole, "decode", "refused") == 0; i++ {
		id = fmt.Sprint("stale", i)
		r.expectWhole(c, r.call(c, "X-Request-Id", id))
	}
	issued, decoded := legsOf(r.prefill[0], id), legsOf(r.decode[0], id)
	if len(issued) != 2 || len(decoded) != 1 {
		t.Fatalf("%d prefills and %d decodes, want a second prefill and one decode", len(issued), len(decoded))
	}
	if decoded[0].RemoteRequestID != issued[1].RemoteRequestID {
		t.Errorf("decode got the handle of %s, want the fresh one of %s", decoded[0].RemoteRequestID, issued[1].RemoteRequestID)
	}
	r.released(r.decode[0], id) // the old one, which was never read
	r.expectNothingHeld()
	if n := r.prefill[0].Ledger().FreedBy["reject"]; n != 1 {
		t.Errorf("%d entries freed by rejection, want the old handle's", n)
	}
}

func TestOnlyThePairThatFailsIsBanned(t *testing.T) {
	var port atomic.Value // of the prefill engine whose blocks the first decode backend cannot load
	port.Store("none")
	var failed atomic.Int32
	var d *front
	r := newRig(t, rigOptions{prefill: 2, decode: 2, router: func(c *router.Config) {
		d = newFront(t, c.Decode[0].URL, func(_ *front, w http.ResponseWriter, _ *http.Request, body []byte) bool {
			if !bytes.Contains(body, []byte(`"remote_port":`+port.Load().(string))) && !bytes.Contains(body, []byte(`"remote_port": `+port.Load().(string))) {
				return false
			}
			failed.Add(1)
			http.Error(w, `{"error":{"message":"x","code":500}}`, http.StatusInternalServerError)
			return true
		})
		c.Decode[0].URL = d.server.URL
	}})
	_, p, err := net.SplitHostPort(r.prefill[0].SideChannelAddr())
	if err != nil {
		t.Fatal(err)
	}
	port.Store(p)
	c := forms(prompt, 3)[0]
	for range 40 {
		r.expectWhole(c, r.call(c))
	}
	if n := failed.Load(); n != 3 {
		t.Errorf("the pair was tried %d times, want 3", n)
	}
	if n := r.metric("xpyd_backend_ejections_total"); n != 0 {
		t.Errorf("%v ejections for the fault of one pair", n)
	}
	if events := r.adminText("/events"); strings.Count(events, `"kind": "banned"`) != 1 || !strings.Contains(events, `"partner": "`+d.server.URL) {
		t.Errorf("the ban is not among the events: %s", events)
	}
	// Each of the two still works with the other partners, before and after the ban.
	count := map[string]int{}
	for i := range 40 {
		id := fmt.Sprint("after", i)
		r.expectWhole(c, r.call(c, "X-Request-Id", id))
		pair := fmt.Sprintf("p%d d%d", len(legsOf(r.prefill[1], id)), 1-d.times(id))
		count[pair]++
	}
	if count["p0 d0"] != 0 || count["p1 d0"] < 5 || count["p0 d1"]+count["p1 d1"] < 5 {
		t.Errorf("pairs used: %v", count)
	}
	r.expectNothingHeld()
}

func TestPanicInTheRelay(t *testing.T) {
	b := newBarrier(sim.PhaseStreamEvent, 1)
	r := newRig(t, rigOptions{
		engine: func(o *sim.Options) { o.Hook = b.hook },
		before: func(r *rig) { r.server.PanicOnBuffer(2) }, // the first is the handler's
	})
	t.Cleanup(b.open)
	// The second token is too large for its buffer to be kept, so the relay needs another one for
	// what follows.
	c := streamed(false, 6, "[[text:big]]")
	resp, err := r.client.Post(r.url+c.path(), "application/json", strings.NewReader(c.body()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	begin := make([]byte, 200<<10)
	n, _ := io.ReadFull(resp.Body, begin) // less if another buffer was needed before
	b.open()
	rest, err := io.ReadAll(resp.Body)
	r.expectBroken(c, answer{status: resp.StatusCode, body: string(begin[:n]) + string(rest), err: err}, "internal_error")
	r.await("counted", func() bool { return r.metric("xpyd_panics_total") == 1 })
	r.expectNothingHeld()
	r.expectWhole(forms(prompt, 4)[1], r.call(forms(prompt, 4)[1]))
}

// panicOnce is a log that panics, once, at the line that holds text.
type panicOnce struct {
	io.Writer
	text string
	done atomic.Bool
}

func (w *panicOnce) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(w.text)) && w.done.CompareAndSwap(false, true) {
		panic("BUG: planted by a test")
	}
	return w.Writer.Write(p)
}

// A panic that is not caught ends the whole test binary, so each case runs in one of its own.
func TestPanicOutsideAHandler(t *testing.T) {
	together(t)
	const child = "XPYD_TEST_PANIC_CHILD"
	for _, tc := range []struct {
		name string
		text string // the line of the log at which it panics
		play func(t *testing.T, log func(w io.Writer) io.Writer)
	}{
		{"check of a backend", `"role":"decode","backend"`, checksGoOnAfterAPanic},
		{"release of a handle", "prefill blocks wait for their lease", serveGoesOnAfterAPanicInARelease},
		{"prefill beside decode", "the backend refuses xpyd's key", serveGoesOnAfterAPanicInAPrefill},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if os.Getenv(child) == "" {
				cmd := exec.Command(os.Args[0], "-test.run", "^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$", "-test.v", "-test.timeout", "20s")
				cmd.Env = append(os.Environ(), child+"=1")
				if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
					t.Fatalf("%v\n%.3000s", err, out)
				}
				return
			}
			tc.play(t, func(w io.Writer) io.Writer { return &panicOnce{Writer: w, text: tc.text} })
		})
	}
}

// The first check of the decode engine panics after it has found the engine up.
func checksGoOnAfterAPanic(t *testing.T, log func(io.Writer) io.Writer) {
	r := newRig(t, rigOptions{log: log})
	r.await("counted", func() bool { return r.metric("xpyd_panics_total") == 1 })
	c := forms(prompt, 4)[0]
	r.expectWhole(c, r.call(c))
	r.decode[0].Kill()
	if a := r.call(c); a.status != 503 {
		t.Errorf("%d %s", a.status, a.body)
	}
	r.await("down", func() bool { return r.metric(`xpyd_backend_up{backend="`+r.decode[0].URL()) == 0 })
}

// The log names a handle that is too old to be given back.
func serveGoesOnAfterAPanicInARelease(t *testing.T, log func(io.Writer) io.Writer) {
	r := newRig(t, rigOptions{log: log, config: func(c *proxy.Config) {
		c.KV.Lease, c.KV.LeaseMargin = 2*time.Second, 100*time.Millisecond // no release begins in the last 2 s of a lease
	}})
	c := forms(prompt, 4)[0]
	r.fault(r.decode[0], "status=500")
	r.expectWhole(c, r.call(c))
	r.await("counted", func() bool { return r.metric("xpyd_panics_total") == 1 })
	r.expectWhole(c, r.call(c))
	if n := r.metric(`xpyd_kv_handles_issued_total`) - r.metric("xpyd_kv_handles_total{end=\"burnt\"}") - r.metric(`xpyd_kv_handles_total{end="expired"}`); n != 0 {
		t.Errorf("%v handles without an end", n)
	}
}

// With a connector whose legs start together, P has a goroutine to itself.
func serveGoesOnAfterAPanicInAPrefill(t *testing.T, log func(io.Writer) io.Writer) {
	b := newBarrier(sim.PhaseDecodeReceived, 0) // decode needs no blocks here, and would otherwise be faster
	r := newRig(t, rigOptions{log: log, dialect: newPushDialect(),
		engine: func(o *sim.Options) {
			o.Role = sim.RoleBoth
			if o.Hook = b.only("decode-0"); o.Name == "prefill-0" {
				o.APIKey = "another-key"
			}
		},
		config: func(c *proxy.Config) { c.BackendAPIKey = "engine-key" }})
	c := forms(prompt, 4)[0]
	if a := r.call(c); a.status != 500 || a.code() != "internal_error" {
		t.Errorf("%d %s %v", a.status, a.body, a.err)
	}
	b.open()
	r.await("counted", func() bool { return r.metric("xpyd_panics_total") == 1 })
	r.await("idle", func() bool { return r.metric("xpyd_in_flight") == 0 })
	if a := r.call(c); a.err != nil {
		t.Errorf("the next request: %v", a.err)
	}
}
