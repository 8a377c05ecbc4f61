package proxy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
	"xpyd/sim/faultnet"
)

// The rows T12, T13 and T14 of the fault matrix, in which the connection to D fails, slows down or
// freezes at an exact byte. tools/faults names the tests of each row.

// relayed is a rig with a relay before each decode engine. Every connection that the proxy makes to
// D after the start is a completion's, because idle ones are not used again and there are no
// probes. Failures eject no backend.
func relayed(t *testing.T, o rigOptions) (*rig, []*faultnet.Relay) {
	t.Helper()
	var relays []*faultnet.Relay
	target := o.router
	o.router = func(c *router.Config) {
		if target != nil {
			target(c)
		}
		c.Health.EjectAfter = 0
		for i, e := range c.Decode {
			relay, err := faultnet.Listen(strings.TrimPrefix(e.URL, "http://"), faultnet.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = relay.Close() })
			relays = append(relays, relay)
			c.Decode[i].URL = relay.URL()
		}
	}
	config := o.config
	o.config = func(c *proxy.Config) {
		c.Timeouts.UpstreamIdle = time.Nanosecond
		if config != nil {
			config(c)
		}
	}
	r := newRig(t, o)
	r.server.StopChecks() // a failed stream would have its engine checked at once
	r.flush(relays)
	return r, relays
}

// flush waits until the relays have accepted what has been dialled so far, for example by a check
// that was cut. Connections are accepted in their order, and each takes the next script.
func (r *rig) flush(relays []*faultnet.Relay) {
	r.t.Helper()
	for _, relay := range relays {
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get(relay.URL() + "/health")
		if err != nil {
			r.t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
}

func mustScript(t *testing.T, text string) faultnet.Script {
	t.Helper()
	s, err := faultnet.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// wireAnswer is an answer byte for byte, as a strict client reads it.
type wireAnswer struct {
	head  string // with its empty line
	body  string // without framing
	ended bool   // by the last chunk, or at its announced length
	err   error  // of the framing; otherwise how the connection ended, nil for FIN
}

// rawCall sends one completion on a connection of its own and reads to the answer's end.
func (r *rig) rawCall(c call, id string) wireAnswer {
	r.t.Helper()
	return readWire(r.t, strings.TrimPrefix(r.url, "http://"), raw(c, id), func(wireAnswer) {})
}

// readWire reports to progress what has come so far.
func readWire(t *testing.T, addr, request string, progress func(wireAnswer)) (a wireAnswer) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(2 * patience))
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	var got []byte
	buf := make([]byte, 64<<10)
	for {
		n, err := conn.Read(buf)
		got = append(got, buf[:n]...)
		if a = parseWire(got); a.ended || a.err != nil {
			return a
		}
		if err == io.EOF {
			return a
		}
		if err != nil {
			a.err = err
			return a
		}
		progress(a)
	}
}

func parseWire(b []byte) (a wireAnswer) {
	i := bytes.Index(b, []byte("\r\n\r\n")) + 4
	if i < 4 {
		return a
	}
	a.head = string(b[:i])
	if strings.Contains(strings.ToLower(a.head), "transfer-encoding: chunked") {
		var rest []byte
		a.body, rest, a.ended, a.err = dechunk(b[i:])
		if len(rest) > 0 {
			a.err = fmt.Errorf("%q behind the last chunk", rest)
		}
		return a
	}
	a.body = string(b[i:])
	_, length, _ := strings.Cut(strings.ToLower(a.head), "content-length: ")
	length, _, _ = strings.Cut(length, "\r\n")
	n, err := strconv.Atoi(length)
	a.ended = err == nil && len(a.body) == n
	return a
}

var sizeLine = regexp.MustCompile(`^[0-9a-fA-F]{1,10}(;[^\r\n]{0,200})?\r\n`)

// dechunk strips chunked framing, as strictly as the grammar says. What is cut short has not ended
// and is no error. A part of a chunk belongs to the body.
func dechunk(b []byte) (body string, rest []byte, ended bool, err error) {
	var out []byte
	for {
		line := sizeLine.Find(b)
		if line == nil {
			if len(b) > 12 || len(b) > 0 && !regexp.MustCompile(`^[0-9a-fA-F]*(;[^\r\n]*)?\r?$`).Match(b) {
				err = fmt.Errorf("size line %.20q", b)
			}
			return string(out), nil, false, err
		}
		digits, _, _ := strings.Cut(strings.TrimRight(string(line), "\r\n"), ";")
		size, _ := strconv.ParseInt(digits, 16, 64) // the pattern's digits
		b = b[len(line):]
		if size == 0 {
			if ended = bytes.HasPrefix(b, []byte("\r\n")); !ended && !bytes.HasPrefix([]byte("\r\n"), b) {
				err = fmt.Errorf("trailer %.20q", b)
			} else if ended {
				rest = b[2:]
			}
			return string(out), rest, ended, err
		}
		out = append(out, b[:min(size, int64(len(b)))]...)
		b = b[min(size, int64(len(b))):]
		switch {
		case bytes.HasPrefix(b, []byte("\r\n")):
			b = b[2:]
		case bytes.HasPrefix([]byte("\r\n"), b):
			return string(out), nil, false, nil
		default:
			return string(out), nil, false, fmt.Errorf("%.20q behind a chunk of %d bytes", b, size)
		}
	}
}

var changing = regexp.MustCompile(`"id":"[^"]*"|"created":\d+|"system_fingerprint":"[^"]*"`)

// stable removes what differs between two answers to the same request.
func stable(body string) string { return changing.ReplaceAllString(body, `"same":0`) }

// layout has the places of the events of a streamed answer on D's wire.
type layout struct {
	raw    string
	events []string // whole, with their empty lines
	begin  []int    // offset of each event's chunk, its size line included
	end    []int    // offset after each event's last byte, without the chunk's own CRLF
}

// layoutOf asks an engine directly. The id must be as long as that of the proxy's leg, so that the
// offsets hold through the proxy too.
func layoutOf(t *testing.T, e *sim.Engine, c call, id string) layout {
	t.Helper()
	a := readWire(t, e.Addr(), raw(c, id+"-00000000"), func(wireAnswer) {})
	if !a.ended || a.err != nil {
		t.Fatalf("%s answers %+v", e.Name(), a)
	}
	l := layout{raw: a.head}
	for _, ev := range strings.SplitAfter(a.body, "\n\n") {
		if ev == "" {
			continue
		}
		l.events = append(l.events, ev)
		l.begin = append(l.begin, len(l.raw))
		l.raw += fmt.Sprintf("%x\r\n%s", len(ev), ev)
		l.end = append(l.end, len(l.raw))
		l.raw += "\r\n"
	}
	l.raw += "0\r\n\r\n"
	return l
}

// whole is the answer's body without what changes.
func (l layout) whole() string { return stable(strings.Join(l.events, "")) }

// before is how many events are complete in the first n bytes.
func (l layout) before(n int) int {
	k, _ := slices.BinarySearch(l.end, n+1)
	return k
}

// cuts are the offsets at both ends of each chunk from event first on, and each byte of the chunks
// of three events: the first, one in the middle, and the last with all that follows it.
func (l layout) cuts(first int) []int {
	var all []int
	for i := first; i < len(l.end); i++ {
		all = append(all, l.begin[i], l.end[i])
	}
	last := len(l.end) - 1
	for _, span := range [][2]int{{l.begin[first], l.begin[first+1]}, {l.begin[last/2], l.begin[last/2+1]}, {l.begin[last-1], len(l.raw)}} {
		for n := span[0]; n <= span[1]; n++ {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// expectCut fails unless a is a stream of the first events and one error event, and then broke off.
// least and most are how many of D's events the client may have.
func expectCut(t *testing.T, l layout, a wireAnswer, least, most int) {
	t.Helper()
	if !strings.HasPrefix(a.head, "HTTP/1.1 200 ") || a.ended || a.err != nil {
		t.Fatalf("ended %v, %v: want a stream that breaks off between two chunks\n%s%q", a.ended, a.err, a.head, a.body)
	}
	got := strings.SplitAfter(stable(a.body), "\n\n")
	if len(got) < 2 || got[len(got)-1] != "" {
		t.Fatalf("the last event is not whole: %q", a.body)
	}
	got = got[:len(got)-1]
	n := len(got) - 1
	if n < least || n > most || strings.Join(got[:n], "") != stable(strings.Join(l.events[:n], "")) {
		t.Fatalf("%d events, want the first %d to %d of D's\n%q", n, least, most, a.body)
	}
	expectErrorEvent(t, got[n], "decode_failed")
}

func expectErrorEvent(t *testing.T, event, code string) {
	t.Helper()
	var e struct{ Error struct{ Code any } }
	data, ok := strings.CutPrefix(event, "data: ")
	if !ok || json.Unmarshal([]byte(data), &e) != nil || e.Error.Code != code {
		t.Fatalf("last event %q, want an error with code %s", event, code)
	}
}

// expectWire fails unless a is the whole answer and ends cleanly.
func expectWire(t *testing.T, l layout, a wireAnswer) {
	t.Helper()
	if !strings.HasPrefix(a.head, "HTTP/1.1 200 ") || !a.ended || a.err != nil || stable(a.body) != l.whole() {
		t.Fatalf("ended %v, %v: want the whole answer\n%s%q\nwant\n%q", a.ended, a.err, a.head, a.body, l.whole())
	}
}

const fortyEvents = 40

// forty are streams of 40 events, the role's and [DONE] included, and the event with
// which their first token comes.
func forty() map[int]call {
	return map[int]call{
		0: {stream: true, prompt: "short", tokens: fortyEvents - 1},
		1: {stream: true, prompt: "short", tokens: fortyEvents - 2, chat: true},
	}
}

func TestStreamCutAtEachByte(t *testing.T) {
	together(t)
	for first, c := range forty() {
		for _, kind := range []string{"fin", "rst"} {
			t.Run(kind+"/"+c.name(), func(t *testing.T) {
				r, relays := relayed(t, rigOptions{before: func(r *rig) { r.server.BreakAtOnce(); r.server.WatchClosely() }})
				l := layoutOf(t, r.decode[0], c, "cut")
				if len(l.events) != fortyEvents {
					t.Fatalf("%d events", len(l.events))
				}
				cuts := l.cuts(first + 1) // a cut before the first token is another story
				if kind == "rst" || c.chat || !eachCut {
					cuts = slices.DeleteFunc(cuts, func(n int) bool { return n%3 > 0 && !slices.Contains(l.end, n) })
				}
				begun := len(relays[0].Injected())
				for _, n := range cuts {
					relays[0].Next(mustScript(t, fmt.Sprintf("down:%s@%d", kind, n)))
					a := r.rawCall(c, "cut")
					k := l.before(n)
					switch {
					case k == fortyEvents && kind == "rst" && !a.ended: // it took [DONE] along
						expectCut(t, l, a, 1, k-1)
					case k == fortyEvents: // nothing but the body's own end is missing
						expectWire(t, l, a)
					case kind == "fin":
						expectCut(t, l, a, k, k)
					default: // a reset may overtake what came before it
						expectCut(t, l, a, 1, k)
					}
				}
				for i, op := range relays[0].Injected()[begun:] {
					if want := fmt.Sprintf("%s@%d", kind, cuts[i]); op.Op != want || !op.Down {
						t.Fatalf("%+v, want %s: not every cut was made", op, want)
					}
				}
				expectWire(t, l, r.rawCall(c, "cut"))
				r.expectNothingHeld()
			})
		}
	}
}

// The client has nothing of the answer before the first token, so another round repairs it.
func TestStreamCutBeforeTheFirstToken(t *testing.T) {
	together(t)
	for first, c := range forty() {
		t.Run(c.name(), func(t *testing.T) {
			r, relays := relayed(t, rigOptions{decode: 2, router: func(c *router.Config) { c.Health.EjectAfter = 0 }}) // each cut is met
			l := layoutOf(t, r.decode[0], c, "cut")
			cuts := []int{0, l.begin[0] - 3, l.begin[0], l.end[first] - 1}
			for i, n := range append(cuts, l.begin[first]) {
				relays[0].Always(mustScript(t, fmt.Sprintf("down:%s@%d", []string{"fin", "rst"}[i%2], n)))
				before := len(relays[0].Injected())
				met := func() bool { return len(relays[0].Injected()) > before }
				r.until(met, func(int) { expectWire(t, l, r.rawCall(c, "cut")) })
			}
			relays[0].Always(faultnet.Script{})
			r.expectNothingHeld()
		})
	}
}

// A decode engine whose connection broke may live, and notice it late. It reads the blocks while
// they are still its own.
func TestReleaseLetsASlowDecodeReadFirst(t *testing.T) {
	r := newRig(t, rigOptions{decode: 2, router: func(c *router.Config) {
		inTurn(c)
		c.Decode[0].URL = oneLateRequest(t, strings.TrimPrefix(c.Decode[0].URL, "http://"))
	}})
	c := forms(prompt, 4)[0]
	for range 2 { // one of them meets it
		r.expectWhole(c, r.call(c, "X-Request-Id", "slow"))
	}
	if rec := r.record(r.decode[0], "slow"); rec.Outcome != "ok" {
		t.Fatalf("%+v: the slow engine did not come to its answer, the test proves nothing", rec)
	}
	r.expectNothingHeld()
}

// oneLateRequest is a way to target that hangs up on its first completion and still
// delivers it, 50 ms later; everything else is passed.
func oneLateRequest(t *testing.T, target string) (url string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { passOrHangUp(near, target, &once) })
		}
	})
	t.Cleanup(func() { _ = ln.Close(); conns.Wait() })
	return "http://" + ln.Addr().String()
}

func passOrHangUp(near net.Conn, target string, once *sync.Once) {
	defer func() { _ = near.Close() }()
	far, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer func() { _ = far.Close() }()
	request := make([]byte, 64<<10)
	n, err := near.Read(request)
	if err != nil {
		return
	}
	pass := true
	if bytes.HasPrefix(request, []byte("POST ")) && !bytes.Contains(request[:n], []byte("-release")) {
		once.Do(func() {
			_ = near.Close()
			time.Sleep(50 * time.Millisecond)
			pass = false
		})
	}
	_, _ = far.Write(request[:n])
	if !pass { // long enough for the whole answer; the engine keeps the connection
		_ = far.SetReadDeadline(time.Now().Add(time.Second))
		_, _ = io.Copy(io.Discard, far)
		return
	}
	go func() {
		_, _ = io.Copy(far, near)
		_ = far.Close()
	}()
	_, _ = io.Copy(near, far)
}

func TestStreamSlowedKeepsItsBytes(t *testing.T) {
	together(t)
	for _, text := range []string{
		"down:slice=1", "down:slice=1,10us", "down:slice=17,50us", "down:delay=5ms", "down:rate=100000", "up:slice=1 down:slice=100", "up:delay=20ms down:delay=1ms",
	} {
		t.Run(text, func(t *testing.T) {
			r, relays := relayed(t, rigOptions{})
			relays[0].Always(mustScript(t, text))
			for _, c := range forms("short", 3) {
				if !c.stream {
					r.expectWhole(c, r.call(c))
					continue
				}
				expectWire(t, layoutOf(t, r.decode[0], c, "slow"), r.rawCall(c, "slow"))
			}
			if len(relays[0].Injected()) == 0 {
				t.Error("nothing was slowed down: the test proves nothing")
			}
			r.expectNothingHeld()
		})
	}
}

// frozen stops D in the middle of a stream, as SIGSTOP does. The sockets stay.
type frozen struct{ freeze, thaw func() }

// ways to freeze: the engine itself, or all that is on its way.
func freezers(r *rig, relay *faultnet.Relay) map[string]frozen {
	return map[string]frozen{
		"engine":  {r.decode[0].Freeze, r.decode[0].Thaw},
		"network": {relay.Freeze, relay.Thaw},
	}
}

func TestStreamFrozenAndThawed(t *testing.T) {
	together(t)
	const at = 20 // the event after which D freezes
	for _, way := range []string{"engine", "network"} {
		for _, inTime := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/in time %v", way, inTime), func(t *testing.T) {
				b := newBarrier(sim.PhaseStreamEvent, at)
				r, relays := relayed(t, rigOptions{
					engine: func(o *sim.Options) { o.Hook = b.hook },
					config: func(c *proxy.Config) {
						c.Timeouts.StreamIdle = 1500 * time.Millisecond // a busy machine may pause for a second
						if inTime {
							c.Timeouts.StreamIdle = patience
						}
					},
				})
				t.Cleanup(b.open)
				c := forty()[0]
				got, seen := make(chan wireAnswer, 1), make(chan struct{})
				go func() {
					see := sync.OnceFunc(func() { close(seen) })
					got <- readWire(t, strings.TrimPrefix(r.url, "http://"), raw(c, "ice"), func(a wireAnswer) {
						if strings.Count(a.body, "\n\n") > at {
							see()
						}
					})
				}()
				<-b.reached
				<-seen
				f := freezers(r, relays[0])[way]
				f.freeze()
				t.Cleanup(f.thaw)
				b.open() // D has more to say, and cannot
				if inTime {
					over := time.Now().Add(150 * time.Millisecond)
					r.await("frozen for a while", func() bool { return time.Now().After(over) })
					f.thaw()
					expectWire(t, layoutOf(t, r.decode[0], c, "ice"), <-got)
				} else {
					a := <-got
					f.thaw()
					expectStalled(t, layoutOf(t, r.decode[0], c, "ice"), a, at)
				}
				expectWire(t, layoutOf(t, r.decode[0], c, "ice"), r.rawCall(c, "ice")) // and nothing of the first
				r.expectNothingHeld()
			})
		}
	}
}

// expectStalled fails unless the stream broke off after event at, because of a stall.
func expectStalled(t *testing.T, l layout, a wireAnswer, at int) {
	t.Helper()
	if a.ended || a.err != nil {
		t.Fatalf("ended %v, %v: want a stream that breaks off", a.ended, a.err)
	}
	got := strings.SplitAfter(stable(a.body), "\n\n")
	n := len(got) - 2 // the error event, and nothing after the last empty line
	if n != at+1 || strings.Join(got[:n], "") != stable(strings.Join(l.events[:n], "")) || got[n+1] != "" {
		t.Fatalf("%d events, want %d of D's\n%q", n, at+1, a.body)
	}
	expectErrorEvent(t, got[n], "decode_stalled")
}
