package proxy_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"xpyd/proxy"
	"xpyd/sim"
)

// expectBroken fails unless a stream that had begun ended the only way it may: with some complete
// events, one error event, and a connection that breaks off.
func (r *rig) expectBroken(c call, a answer, code string) {
	r.t.Helper()
	if a.status != 200 || a.err == nil {
		r.t.Fatalf("status %d, error %v: a cut stream must not end cleanly\n%q", a.status, a.err, a.body)
	}
	if a.code() != code || strings.Contains(a.body, "[DONE]") || strings.Count(a.body, `data: {"error"`) != 1 {
		r.t.Fatalf("code %q, want %q, once, and no [DONE]\n%q", a.code(), code, a.body)
	}
	if !strings.HasPrefix(c.want(), a.text()) {
		r.t.Fatalf("text %q is no prefix of %q", a.text(), c.want())
	}
	for _, ev := range strings.Split(strings.TrimSuffix(a.body, "\n\n"), "\n\n") {
		if data, ok := strings.CutPrefix(ev, "data: "); !ok || !json.Valid([]byte(data)) {
			r.t.Fatalf("a fragment of an event was relayed: %q", ev)
		}
	}
}

// streamed is a form that streams. The role event shifts chat by one.
func streamed(chat bool, tokens int, marker string) call {
	return call{chat: chat, stream: true, prompt: prompt + marker, tokens: tokens}
}

// An engine that dies under load must not drown the log.
func TestLinesOfFailedLegsAreBounded(t *testing.T) {
	r := newRig(t, rigOptions{})
	began := time.Now()
	for range 2000 {
		r.server.LogFailedLeg()
		r.server.LogStays()
	}
	seconds := 2 + int(time.Since(began)/time.Second)
	for message, bound := range map[string]int{"failed": 100, "backend fails, but stays": 10} {
		if n := strings.Count(r.logs.String(), `"message":"`+message); n < bound || n > bound*seconds {
			t.Errorf("%d lines %q, want %d a second", n, message, bound)
		}
	}
}

func TestDecodeDiesInTheStream(t *testing.T) {
	together(t)
	for _, end := range []string{"fin", "rst"} {
		for _, chat := range []bool{false, true} {
			first := 1 // events that make a first token reach the client
			if chat {
				first = 2
			}
			for at := first; at < 8; at++ {
				t.Run(fmt.Sprintf("%s/chat=%v/event %d", end, chat, at), func(t *testing.T) {
					r := newRig(t, rigOptions{})
					c := streamed(chat, 9, fmt.Sprintf("[[D:die@%d:%s]]", at, end))
					a := r.call(c)
					if end == "rst" && a.code() == "<nil>" {
						t.Fatalf("no error event: %q", a.body)
					}
					r.expectBroken(c, a, "decode_failed")
					r.expectNothingHeld()
				})
			}
		}
	}
}

// fetch drops what was not read when a transfer breaks, so its reader gets the event first.
func TestStreamBreaksOffSomeTimeAfterItsErrorEvent(t *testing.T) {
	together(t)
	for _, marker := range []string{"[[D:die@4:fin]]", "[[D:die@4:rst]]", "[[D:error-done@4]]"} {
		t.Run(marker, func(t *testing.T) {
			const while = 25 * time.Millisecond
			longest := time.Duration(0) // of some, because a busy machine reads the event late
			for i := 0; i < 40 && longest < while; i++ {
				longest = max(longest, breaksAfterItsEvent(t, streamed(true, 9, marker)))
			}
			if longest < while {
				t.Errorf("broken %v after the event at the most; want it a while later", longest)
			}
		})
	}
}

// breaksAfterItsEvent is how long after its error event a stream breaks off.
func breaksAfterItsEvent(t *testing.T, c call) time.Duration {
	t.Helper()
	r := newRig(t, rigOptions{})
	resp, err := r.client.Post(r.url+c.path(), "application/json", strings.NewReader(c.body()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var event time.Time
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), `data: {"error"`) {
			event = time.Now()
		}
	}
	took := time.Since(event)
	if lines.Err() == nil || event.IsZero() {
		t.Fatalf("%v, event at %v; want the stream broken after it", lines.Err(), event)
	}
	r.expectNothingHeld()
	return took
}

func TestFailuresBeforeTheFirstTokenAreMended(t *testing.T) {
	together(t)
	for _, tc := range []struct{ name, kind string }{
		{"reset", "rst"}, {"closed", "fin"}, {"status 500", "status=500"}, {"status 503", "status=503"},
		{"KV load failed", "kvfail"}, {"error first", "error-first"}, {"nothing but [DONE]", "zero"}, {"truncated", "truncate@40"},
	} {
		for _, c := range forms(prompt, 6) {
			t.Run(tc.name+"/"+c.name(), func(t *testing.T) {
				r := newRig(t, rigOptions{decode: 2})
				f, err := sim.ParseFault(tc.kind)
				if err != nil {
					t.Fatal(err)
				}
				f.Leg, f.Count = "D", 1
				if err := r.decode[0].SetFault(f); err != nil {
					t.Fatal(err)
				}
				met := func() bool { return len(r.decode[0].Requests()) > 0 }
				r.until(met, func(int) { r.expectWhole(c, r.call(c)) })
				r.expectNothingHeld()
				if strings.Contains(r.logs.String(), `"error":""`) {
					t.Errorf("a failure without a reason in the log\n%s", r.logs)
				}
			})
		}
	}
}

func TestFailuresBeforeTheFirstTokenEndAfterTwoRounds(t *testing.T) {
	together(t)
	for _, c := range forms(prompt, 6) {
		t.Run(c.name(), func(t *testing.T) {
			r := newRig(t, rigOptions{decode: 2})
			c.prompt += "[[D:status=500]]"
			a := r.call(c)
			if a.status != 500 || a.code() != "decode_failed" || a.header.Get("X-Should-Retry") != "false" {
				t.Fatalf("%d %s %v", a.status, a.body, a.header)
			}
			if n := r.metric(`xpyd_kv_handles_issued_total`); n != 2 {
				t.Errorf("%v prefills, want 2 rounds", n)
			}
			r.expectNothingHeld()
		})
	}
}

func TestErrorEventThenDone(t *testing.T) {
	r := newRig(t, rigOptions{})
	c := streamed(true, 9, "[[D:error-done@4]]")
	a := r.call(c)
	if a.err == nil || strings.Contains(a.body, "[DONE]") || strings.Count(a.body, `data: {"error"`) != 1 {
		t.Fatalf("%v %q", a.err, a.body)
	}
}

func TestStreamsThatOnlyLookWhole(t *testing.T) {
	together(t)
	for _, kind := range []string{"no-done", "no-finish"} {
		for _, chat := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/chat=%v", kind, chat), func(t *testing.T) {
				r := newRig(t, rigOptions{})
				c := streamed(chat, 5, "[[D:"+kind+"]]")
				r.expectBroken(c, r.call(c), "decode_failed")
			})
		}
	}
}

func TestAdversarialTextIsContent(t *testing.T) {
	together(t)
	for _, marker := range []string{"[[text:done]]", "[[text:finish]]", "[[text:big]]", "[[text:crlf]]", "[[text:comments]]", "[[text:empty]]", "[[text:utf8]]", "[[D:slice@1]]"} {
		for _, chat := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/chat=%v", marker, chat), func(t *testing.T) {
				r := newRig(t, rigOptions{})
				c := streamed(chat, 12, marker)
				a := r.call(c)
				plain := r.post(c.path(), strings.Replace(c.body(), `"stream":true`, `"stream":false`, 1))
				ends := strings.HasSuffix(a.body, "data: [DONE]\n\n") || strings.HasSuffix(a.body, "data: [DONE]\r\n\r\n")
				if a.err != nil || a.status != 200 || !ends {
					t.Fatalf("%d %v %q", a.status, a.err, a.body[max(0, len(a.body)-300):])
				}
				if marker != "[[text:crlf]]" && a.text() != plain.text() {
					t.Fatalf("streamed %.200q, whole %.200q", a.text(), plain.text())
				}
			})
		}
	}
}

func TestPrefillFaults(t *testing.T) {
	together(t)
	for _, tc := range []struct {
		kind   string
		status int // with every prefill engine at fault; 200: decode alone, which is off for the others
		code   string
	}{
		{"rst", 502, "prefill_failed"},
		{"fin", 502, "prefill_failed"},
		{"status=500", 500, "prefill_failed"},
		{"status=503", 200, ""},
		{"status=429", 200, ""},
		{"truncate@30", 502, "prefill_failed"},
		{"badjson", 502, "prefill_failed"},
		{"nohandle", 200, ""},
		{"status=404", 404, ""},
		{"status=302", 502, "prefill_failed"},
	} {
		t.Run(tc.kind, func(t *testing.T) {
			r := newRig(t, rigOptions{prefill: 2, config: func(c *proxy.Config) { c.DecodeOnly.Enabled = tc.status == 200 }})
			f, err := sim.ParseFault(tc.kind)
			if err != nil {
				t.Fatal(err)
			}
			f.Leg = "P"
			if err := r.prefill[0].SetFault(f); err != nil {
				t.Fatal(err)
			}
			c := forms(prompt, 4)[0]
			if tc.kind != "status=404" {
				for range 4 {
					a := r.call(c)
					r.expectWhole(c, a)
					if a.header.Get("X-Xpyd-Path") != "disaggregated" {
						t.Errorf("path %v", a.header)
					}
				}
			}
			if err := r.prefill[1].SetFault(f); err != nil {
				t.Fatal(err)
			}
			a := r.call(c)
			if a.status != tc.status || tc.code != "" && a.code() != tc.code {
				t.Fatalf("%d %s, want %d %s", a.status, a.body, tc.status, tc.code)
			}
			if tc.status == 200 {
				r.expectWhole(c, a)
			}
		})
	}
}

func TestUnusableHandlesNeverReachDecode(t *testing.T) {
	together(t)
	for _, what := range []string{"port", "port-zero", "port-high", "no-port", "no-host", "host-empty", "host-null", "no-engine", "no-id", "no-blocks", "null-blocks", "empty-blocks", "empty-group", "string-blocks", "no-flag", "flag-false"} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t, rigOptions{config: noDecodeAlone})
			c := forms(prompt+"[[P:badhandle="+what+"]]", 4)[0]
			a := r.call(c)
			if a.status != 502 || a.code() != "invalid_prefill_handoff" {
				t.Fatalf("%d %s", a.status, a.body)
			}
			if n := len(r.decode[0].Requests()); n != 0 {
				t.Fatalf("decode was asked %d times", n)
			}
		})
	}
}

func TestPrefillTimeout(t *testing.T) {
	r := newRig(t, rigOptions{prefill: 2, config: func(c *proxy.Config) { c.Timeouts.Prefill = 150 * time.Millisecond }})
	a := r.call(forms(prompt+"[[P:hang]]", 4)[0])
	if a.status != 504 || a.code() != "prefill_timeout" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if n := r.metric(`xpyd_leg_requests_total{`); n != 1 {
		t.Errorf("%v legs: another prefill engine would take as long", n)
	}
	r.expectNothingHeld()
}

func TestDecodeTimeouts(t *testing.T) {
	r := newRig(t, rigOptions{config: func(c *proxy.Config) {
		c.Timeouts.FirstEvent, c.Timeouts.StreamIdle = 2*time.Second, 2*time.Second // a busy machine may take a while to the first event
	}})
	a := r.call(forms(prompt+"[[D:hang]]", 4)[1])
	if a.status != 504 || a.code() != "decode_timeout" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	c := streamed(false, 9, "[[D:stall@3]]")
	r.expectBroken(c, r.call(c), "decode_stalled")
	r.expectNothingHeld()
}

func TestRejectedByDecodeFreesPrefill(t *testing.T) {
	together(t)
	for _, version := range []string{"0.32.0", "0.31.4"} {
		t.Run(version, func(t *testing.T) {
			r := newRig(t, rigOptions{engine: func(o *sim.Options) { o.Version, o.MaxModelLen = version, 4000 }})
			// P gets max_tokens 1, so only D can see that the client asks for too many.
			a := r.post("/v1/completions", `{"model":"sim","prompt":"abcdefgh","max_tokens":100000}`)
			if a.status != 400 || a.code() != "400" {
				t.Fatalf("%d %s, want the engine's own 400", a.status, a.body)
			}
			r.expectNothingHeld()
		})
	}
}

func TestForcedToolGoesToDecodeWhenPrefillRefuses(t *testing.T) {
	r := newRig(t, rigOptions{})
	tool := `,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],"tool_choice":"required"`
	c := call{chat: true, prompt: prompt + "[[P:status=400]]", tokens: 8, more: tool}
	a := r.call(c)
	// This engine has no tool parser, and says so itself.
	if a.status != 400 || !strings.Contains(a.body, "tool-call-parser") || a.header.Get("X-Xpyd-Reason") != "tool_choice" {
		t.Fatalf("%d %s %v", a.status, a.body, a.header)
	}
}

// P answers 200 and hangs up in the answer, or ends it early. It then holds blocks whose handle is
// lost.
func TestPrefillAnswerThatIsNotWholeIsCounted(t *testing.T) {
	together(t)
	const half = `{"id":"c","choices":[{"index":0,"text":"a","finish_reason":"length"}],"kv_transfer_params":{"do_remote`
	for name, tc := range map[string]struct {
		length int
		reason string
	}{
		"hangs up":   {2 * len(half), "answer_lost"},
		"ends early": {len(half), "unusable_handle"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newStub(t, func(w http.ResponseWriter, req *http.Request) {
				_, _ = io.Copy(io.Discard, req.Body)
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Content-Length", strconv.Itoa(tc.length))
				_, _ = io.WriteString(w, half)
			})
			r := newRig(t, rigOptions{router: p.asPrefill, config: func(c *proxy.Config) { c.DecodeOnly.Enabled = false }})
			if a := r.call(forms(prompt, 3)[0]); a.status != 502 {
				t.Errorf("%d %s", a.status, a.body)
			}
			if n := r.metric(`xpyd_kv_orphans_total{reason="` + tc.reason); n != 1 {
				t.Errorf("%v counted, want 1", n)
			}
		})
	}
}
