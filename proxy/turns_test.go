package proxy_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"xpyd/intake/limits"
	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

// Requests that wait are served by turns among keys, and the urgent ones first, by their header or else
// by their body.
func TestWaitingTakesTurns(t *testing.T) {
	urgent := func(t *limits.Terms) { t.Priority = true }
	b := newBarrier(sim.PhaseDecodeReceived, 0)
	defer b.open()
	r := newRig(t, rigOptions{
		prefill: -1,
		engine:  func(o *sim.Options) { o.Hook = b.hook },
		config:  func(c *proxy.Config) { c.Keys = []limits.Terms{holder("alpha", urgent), holder("beta", urgent)} },
		router:  func(c *router.Config) { c.DecodeMaxInFlight, c.Queue.Wait = 1, time.Minute },
	})
	c := forms(prompt, 2)[0]
	var got []<-chan answer
	wait := func(key, id, more string, header ...string) {
		next := c
		next.more = more
		got = append(got, r.start(next, slices.Concat(as(key), []string{"X-Request-Id", id}, header)...))
	}
	wait("alpha", "first", "")
	r.await("the slot taken", func() bool { return r.metric("xpyd_in_flight") == 1 })
	for i, join := range []func(){
		func() { wait("alpha", "alpha-1", "") },
		func() { wait("alpha", "alpha-2", "") },
		func() { wait("beta", "beta-1", "") },
		func() { wait("beta", "late", `,"priority":3`) },
		func() { wait("beta", "soon", `,"priority":7`, "X-Vllm-Priority", "-1") },
		func() { wait("alpha", "sooner", `,"priority":-2`) },
	} {
		join()
		r.await("in the line", func() bool { return r.metric(`xpyd_queued{role="decode"}`) == float64(i+1) })
	}
	b.open()
	for _, a := range got {
		r.expectWhole(c, r.soon(a))
	}
	var order []string
	for _, rec := range legs(r.decode, "plain") {
		order = append(order, rec.RequestID[:strings.LastIndex(rec.RequestID, "-")])
	}
	if want := []string{"first", "sooner", "soon", "alpha-1", "beta-1", "alpha-2", "late"}; !slices.Equal(order, want) {
		t.Errorf("served in the order %q, want %q", order, want)
	}
}

// fasthttp counts the fields behind a chunked body among those of the head. A key that may not name a priority has none
// there either.
func TestPriorityBehindABodyIsNone(t *testing.T) {
	b := newBarrier(sim.PhaseDecodeReceived, 0)
	defer b.open()
	r := newRig(t, rigOptions{
		prefill: -1,
		engine:  func(o *sim.Options) { o.Hook = b.hook },
		config:  func(c *proxy.Config) { c.Keys = []limits.Terms{holder("alpha", nil)} },
		router:  func(c *router.Config) { c.DecodeMaxInFlight, c.Queue.Wait = 1, time.Minute },
	})
	c := forms(prompt, 2)[0]
	first := r.start(c, append(as("alpha"), "X-Request-Id", "first")...)
	<-b.reached
	second := r.start(c, append(as("alpha"), "X-Request-Id", "second")...)
	inLine := func(n float64) func() bool {
		return func() bool { return r.metric(`xpyd_queued{role="decode"`) == n }
	}
	r.await("the second in the line", inLine(1))
	conn, body := r.dialRaw(), c.body()
	_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\n%s: %s\r\nX-Request-Id: third\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\nX-Vllm-Priority: -5\r\n\r\n",
		c.path(), as("alpha")[0], as("alpha")[1], len(body), body)
	r.await("the third in the line", inLine(2))
	b.open()
	r.expectWhole(c, r.soon(first))
	r.expectWhole(c, r.soon(second))
	if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != 200 {
		t.Errorf("%v, %v", resp, err)
	}
	var order []string
	for _, rec := range legs(r.decode, "plain") {
		order = append(order, rec.RequestID[:strings.LastIndex(rec.RequestID, "-")])
	}
	if want := []string{"first", "second", "third"}; !slices.Equal(order, want) {
		t.Errorf("served in the order %q, want %q", order, want)
	}
}

// Where no keys are set, whoever has most in a full queue loses its newest request, and clients are told apart by
// their addresses, those of IPv6 by their /64. No priority is heeded.
func TestFullQueueIsSharedByAddress(t *testing.T) {
	b := newBarrier(sim.PhaseDecodeReceived, 0)
	defer b.open()
	r := newRig(t, balanced(rigOptions{
		prefill: -1,
		engine:  func(o *sim.Options) { o.Hook = b.hook },
		router:  func(c *router.Config) { c.DecodeMaxInFlight, c.Queue.Length, c.Queue.Wait = 1, 3, time.Minute },
	}))
	c := forms(prompt, 2)[0]
	urgent := c
	urgent.more = `,"priority":-7`
	send := func(ip, id string, c call) net.Conn {
		text := strings.Replace(raw(c, id), "Host: x\r\n", "Host: x\r\nX-Vllm-Priority: -9\r\nConnection: close\r\n", 1)
		if c.more == "" {
			text = strings.Replace(text, "X-Vllm-Priority: -9\r\n", "", 1)
		}
		return write(r.dialRaw(), proxyHeader(ip)+text)
	}
	expect := func(conn net.Conn, status int) {
		t.Helper()
		if _, a := r.read10(conn); a.status != status || status == 503 && a.code() != "overloaded" {
			t.Errorf("%d %s, want %d", a.status, a.body, status)
		}
	}
	inLine := func(n float64) {
		t.Helper()
		r.await("in the line", func() bool { return r.metric(`xpyd_queued{role="decode"}`) == n })
	}
	first := send("192.0.2.1", "first", c)
	<-b.reached
	var line []net.Conn
	for i, ip := range []string{"2001:db8::1", "2001:db8::ffff:0:0:2", "2001:db8::3"} {
		line = append(line, send(ip, fmt.Sprintf("six-%d", i), c))
		inLine(float64(i + 1))
	}
	other := send("2001:db8:0:1::1", "other", urgent)
	expect(line[2], 503)
	inLine(3)
	expect(send("2001:db8::4", "six-3", urgent), 503)
	b.open()
	for _, conn := range []net.Conn{first, line[0], line[1], other} {
		expect(conn, 200)
	}
	var order []string
	for _, rec := range legs(r.decode, "plain") {
		order = append(order, rec.RequestID[:strings.LastIndex(rec.RequestID, "-")])
	}
	if want := []string{"first", "six-0", "other", "six-1"}; !slices.Equal(order, want) {
		t.Errorf("served in the order %q, want %q", order, want)
	}
}

func TestRequestTimeout(t *testing.T) {
	r := newRig(t, rigOptions{
		config: func(c *proxy.Config) { c.Timeouts.Request = 4 * time.Second },
		router: func(c *router.Config) { c.DecodeMaxInFlight, c.Queue.Wait = 1, time.Minute },
	})
	c := forms(prompt, 3)[0]
	r.expectWhole(c, r.call(c, "X-Request-Timeout", "30.5"))
	for _, wrong := range []string{"inf", "+Infinity", "0", "-1", "soon", "NaN", "5s"} {
		if a := r.call(c, "X-Request-Timeout", wrong); a.status != 400 || a.code() != "invalid_type" || !strings.Contains(a.body, "X-Request-Timeout must be a number of seconds above 0") {
			t.Errorf("%s: %d %s", wrong, a.status, a.body)
		}
	}
	slow := c
	slow.prompt += "[[D:delay=60s]]"
	for name, header := range map[string][]string{"its own": {"X-Request-Timeout", "0.3"}, "beyond timeouts.request": {"X-Request-Timeout", "60"}} {
		began := time.Now()
		a := r.call(slow, header...)
		if a.status != 504 || a.code() != "deadline" || time.Since(began) > 2*patience {
			t.Errorf("%s: %d %s after %s", name, a.status, a.body, time.Since(began))
		}
	}
	r.await("nothing in flight", func() bool { return r.metric("xpyd_in_flight") == 0 })
	held := r.start(slow)
	r.await("the slot taken", func() bool { return r.metric(`xpyd_in_flight{backend="`+r.decode[0].URL()) == 1 })
	for name, a := range map[string]answer{
		"in the line":          r.call(c, "X-Request-Timeout", "0.1"),
		"relayed, in the line": r.post("/v1/embeddings", `{"model":"sim","input":"x"}`, "X-Request-Timeout", "0.1"),
	} {
		if a.status != 504 || a.code() != "deadline" {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	r.soon(held)
}

// ttft is the time to the first token of a stream.
func (r *rig) ttft(c call, header ...string) time.Duration {
	r.t.Helper()
	req, err := http.NewRequest(http.MethodPost, r.url+c.path(), strings.NewReader(c.body()))
	if err != nil {
		r.t.Error(err)
		return 0
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	began := time.Now()
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Error(err)
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	events := bufio.NewScanner(resp.Body)
	if !events.Scan() || resp.StatusCode != http.StatusOK {
		r.t.Errorf("%d %q", resp.StatusCode, events.Text())
	}
	first := time.Since(began)
	for events.Scan() {
	}
	return first
}

// A flood by one key leaves another its time to the first token. The same flood by its own key does not.
// The figures of docs/keys.md are those of this test on an idle machine.
func TestFloodOfAnotherKey(t *testing.T) {
	alone(t)
	r := newRig(t, rigOptions{
		prefill: 8, decode: 2,
		engine: func(o *sim.Options) {
			if o.Role == sim.RolePrefill {
				o.PrefillTokensPerSecond, o.NoPrefixCaching = 10000, true
			}
		},
		config: func(c *proxy.Config) { c.Keys = []limits.Terms{holder("light", nil), holder("flood", nil)} },
		router: func(c *router.Config) { c.PrefillMaxInFlight, c.Queue.Wait = 1, time.Minute },
	})
	of := func(words int) call {
		return call{stream: true, prompt: strings.Repeat("many words ", words), tokens: 4}
	}
	p90 := func(requests int) time.Duration {
		var all []time.Duration
		for range requests {
			all = append(all, r.ttft(of(150), as("light")...))
		}
		slices.Sort(all)
		return all[len(all)*9/10]
	}
	under := func(key string, requests int) time.Duration {
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for range 60 {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						r.ttft(of(50+rand.IntN(200)), as(key)...) // otherwise all engines would end in step
					}
				}
			})
		}
		r.await("a queue", func() bool { return r.metric(`xpyd_queued{role="prefill"}`) > 20 })
		got := p90(requests)
		close(stop)
		wg.Wait()
		return got
	}
	// A busy machine can spoil one measurement, but not three in a row.
	for try := 1; ; try++ {
		quiet := p90(40)
		another, same := under("flood", 40), under("light", 8)
		ratio := func(d time.Duration) float64 { return float64(d) / float64(quiet) }
		t.Logf("p90 of TTFT: %s alone, %s (%.2f) beside a flood of another key, %s (%.2f) beside one of its own", quiet, another, ratio(another), same, ratio(same))
		if ratio(another) <= 4 && same >= 2*another {
			return
		}
		if try == 3 {
			t.Fatalf("a flood of another key raises TTFT by %.2f, one of its own by %.2f", ratio(another), ratio(same))
		}
	}
}
