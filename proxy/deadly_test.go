package proxy_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"xpyd/kvparams"
	"xpyd/router"
	"xpyd/sim"
)

// deadOf counts the engines that have died.
func deadOf(engines []*sim.Engine) (n int) {
	for _, e := range engines {
		select {
		case <-e.Died():
			n++
		default:
		}
	}
	return n
}

// warmedUp leaves a kept connection to each engine.
func (r *rig) warmedUp() {
	r.t.Helper()
	c := forms(prompt, 2)[0]
	r.until(func() bool {
		for _, e := range append(r.prefill[:len(r.prefill):len(r.prefill)], r.decode...) {
			if len(e.Requests()) == 0 {
				return false
			}
		}
		return true
	}, func(int) { r.expectWhole(c, r.call(c)) })
}

// A request that kills engines ends after the second one, whichever legs they served.
func TestDeadlyRequestEndsAfterTwoEngines(t *testing.T) {
	together(t)
	const six = 6
	for _, tc := range []struct {
		name            string
		prefill, decode int
		marker, more    string
		dialect         kvparams.Dialect
		version         string
		code            string
	}{
		{name: "prefill dies", prefill: six, decode: 1, marker: "[[P:kill]]", code: "prefill_failed"},
		{name: "prefill dies in mid-answer", prefill: six, decode: 1, marker: "[[P:kill@1]]", code: "prefill_failed"},
		{name: "decode dies", prefill: 1, decode: six, marker: "[[D:kill]]", code: "decode_failed"},
		{name: "one prefill, then one decode", prefill: six, decode: six, marker: "[[prefill-0:kill]][[D:kill]]", code: "decode_failed"},
		{name: "both die of it", prefill: six, decode: six, marker: "[[P:kill]][[D:kill]]", code: "prefill_failed"},
		{name: "decode dies, handles are drained", prefill: 1, decode: six, marker: "[[D:kill]]", version: "0.20.0", code: "decode_failed"},
		{name: "no prefill pool", prefill: -1, decode: six, marker: "[[D:kill]]", code: "decode_failed"},
		{name: "n=2", prefill: six, decode: six, marker: "[[D:kill]]", more: `,"n":2`, code: "decode_failed"},
		{name: "legs at once", prefill: six, decode: six, marker: "[[P:kill]][[D:kill]]", dialect: newPushDialect()},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/stream=%v", tc.name, stream), func(t *testing.T) {
				r := newRig(t, rigOptions{
					prefill: tc.prefill, decode: tc.decode, dialect: tc.dialect, router: inTurn,
					engine: func(o *sim.Options) {
						if o.Version = tc.version; tc.dialect != nil {
							o.Role = sim.RoleBoth
						}
					},
				})
				r.server.StopChecks()
				r.warmedUp()
				c := call{prompt: prompt + tc.marker, tokens: 4, more: tc.more, stream: stream}
				a := r.soon(r.start(c))
				if a.status != 502 || tc.code != "" && a.code() != tc.code || a.header.Get("X-Should-Retry") != "false" {
					t.Errorf("%d %s %v", a.status, a.body, a.header)
				}
				if !strings.Contains(a.body, "backends broke off over this request") {
					t.Errorf("the error does not say why: %s", a.body)
				}
				r.await("releases ended", func() bool { return r.metric("xpyd_kv_blocks_pinned") == 0 })
				p, d := deadOf(r.prefill), deadOf(r.decode)
				if together := tc.dialect != nil; together && max(p, d) > 2 || !together && p+d != 2 { // the engine of a leg that was cut may die unseen
					t.Errorf("%d P and %d D died of one request", p, d)
				}
			})
		}
	}
}

// A client leaves, and the drain of its handle kills decode engines.
func TestDeadlyDrainEndsAfterTwoEngines(t *testing.T) {
	b := newBarrier(sim.PhasePrefillEnding, 0)
	r := newRig(t, rigOptions{decode: 6, engine: func(o *sim.Options) { o.Hook, o.Version = b.hook, "0.31.9" }})
	t.Cleanup(b.open)
	conn := r.dialRaw()
	_, _ = io.WriteString(conn, raw(call{prompt: prompt + "[[D:kill]]", tokens: 9}, "leaver"))
	<-b.reached
	_ = conn.Close()
	r.await("aware", func() bool { return r.server.Departed() == 1 })
	b.open()
	r.await("given up", func() bool { return r.metric(`xpyd_kv_orphans_total{reason="release_failed"}`) == 1 })
	if n := deadOf(r.decode); n != 2 {
		t.Errorf("%d D died of one request, want 2", n)
	}
}

// start is call, on a goroutine of its own.
func (r *rig) start(c call, header ...string) <-chan answer {
	got := make(chan answer, 1)
	go func() { got <- r.call(c, header...) }()
	return got
}

// mortal is a decode engine that dies of a request whose body holds "deadly".
func mortal(t *testing.T, died chan<- string) (url string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url = "http://" + ln.Addr().String()
	s := &http.Server{}
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if body, _ := io.ReadAll(q.Body); strings.Contains(string(body), "deadly") {
			died <- url
			_ = s.Close()
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"sim","object":"model"}],"version":"0.32.0","tokens":[1]}`)
	})
	go func() { _ = s.Serve(ln) }()
	t.Cleanup(func() { _ = s.Close() })
	return url
}

func TestDeadlyTokenizeEndsAfterTwoEngines(t *testing.T) {
	died := make(chan string, 6)
	r := newRig(t, rigOptions{prefill: -1, decode: 6, router: func(c *router.Config) {
		inTurn(c)
		for i := range c.Decode {
			c.Decode[i].URL = mortal(t, died)
		}
	}})
	r.server.StopChecks()
	for range 6 {
		if a := r.post("/tokenize", `{"prompt":"hello"}`); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	a := r.post("/tokenize", `{"prompt":"deadly"}`)
	if a.status != 502 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if n := len(died); n < 1 || n > 2 {
		t.Errorf("%d engines died of one request", n)
	}
}

// The requests of an engine that is killed obey the retry budget, also those on kept connections.
func TestRequestsOfAKilledPrefillObeyTheBudget(t *testing.T) {
	const each, allowed = 30, 15 // ten at once, and two a second
	var begun [2]atomic.Int64
	var held atomic.Pointer[chan struct{}] // the prefills wait for it
	hold := func() (open func()) {
		ch := make(chan struct{})
		held.Store(&ch)
		return sync.OnceFunc(func() { close(ch) })
	}
	open := hold()
	r := newRig(t, rigOptions{
		prefill: 2, router: inTurn,
		engine: func(o *sim.Options) {
			if o.MaxSeqs = 1000; o.Role == sim.RolePrefill {
				o.Hook = func(e sim.Event) {
					if e.Phase == sim.PhasePrefillStart {
						begun[e.Engine[len(e.Engine)-1]-'0'].Add(1)
						<-*held.Load()
					}
				}
			}
		},
	})
	r.server.StopChecks()
	c := call{prompt: prompt, tokens: 2}
	all := func(request func() answer) <-chan answer {
		got := make(chan answer, 2*each)
		for range 2 * each {
			go func() { got <- request() }()
		}
		r.await("on the engines", func() bool { return begun[0].Load()+begun[1].Load() == 2*each })
		return got
	}
	got := all(func() answer { return r.call(c) }) // leave kept connections
	open()
	for range 2 * each {
		r.expectWhole(c, r.soon(got))
	}
	begun[0].Store(0)
	begun[1].Store(0)
	open = hold()
	t.Cleanup(open)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	got = all(func() answer {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+c.path(), strings.NewReader(c.body()))
		if err != nil {
			return answer{err: err}
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := r.client.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		return answer{err: err}
	})
	first := begun[1].Load()
	r.prefill[0].Kill()
	over := time.Now().Add(400 * time.Millisecond)
	r.await("past the back-offs", func() bool { return time.Now().After(over) && begun[1].Load() > first })
	if n := begun[1].Load() - first; n > allowed {
		t.Errorf("%d of %d requests of the dead engine began at once on the other, %d are allowed", n, each, allowed)
	}
	leave()
	for range 2 * each {
		r.soon(got)
	}
	open()
}
