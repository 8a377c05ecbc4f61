package proxy_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"xpyd/sim"
)

// The rows T13 (corrupted bytes) and T33 of the fault matrix: streams that D plays back
// byte for byte.

// player is a decode engine that answers every completion with what play writes, and
// then closes the connection.
type player struct {
	*stub
	play atomic.Pointer[func(w io.Writer)]
}

func newPlayer(t *testing.T) *player {
	t.Helper()
	p := &player{}
	p.stub = newStub(t, func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		nc, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Errorf("hijack: %v", err)
			return
		}
		(*p.play.Load())(nc)
		_ = nc.Close()
	})
	return p
}

// plays sets what is written in one go.
func (p *player) plays(raw string) { p.playing(func(w io.Writer) { _, _ = io.WriteString(w, raw) }) }

func (p *player) playing(play func(w io.Writer)) { p.play.Store(&play) }

// verdict is what the proxy has to make of the bytes that D sent.
type verdict struct {
	of   string // which bytes, for the reader of a failure
	good string // events before the end, whole and as they came, [DONE] included
	end  string // "done"; "event": one that is no JSON in UTF-8, or a [DONE] too early; "framing": of the body, or its end
}

// judgeStream reads an answer's body by the specifications of HTTP and of server-sent
// events, with nothing of the proxy's.
func judgeStream(framed string) verdict {
	body, _, _, _ := dechunk([]byte(framed))
	var v verdict
	finished := false
	for {
		event := body[:eventLength(body)]
		if event == "" {
			v.end = "framing"
			return v
		}
		body = body[len(event):]
		data := eventData(event)
		var chunk map[string]json.RawMessage
		var choices []map[string]json.RawMessage
		switch {
		case data == "":
		case data == "[DONE]" && finished:
			v.good += event
			v.end = "done"
			return v
		case !utf8.ValidString(data) || json.Unmarshal([]byte(data), &chunk) != nil:
			v.end = "event"
			return v
		}
		_ = json.Unmarshal(chunk["choices"], &choices) // what replaces it has no choice that finishes
		for _, c := range choices {
			finished = finished || c["finish_reason"] != nil && string(c["finish_reason"]) != "null"
		}
		v.good += event
	}
}

// eventLength is the length of the first event with its blank line, or 0 if it is not whole.
func eventLength(body string) int {
	n := 0
	for line := range strings.Lines(body) {
		if n += len(line); line == "\n" || line == "\r\n" {
			return n
		}
	}
	return 0
}

func eventData(event string) string {
	var data []string
	for line := range strings.Lines(event) {
		if value, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), "data:"); ok {
			data = append(data, strings.TrimPrefix(value, " "))
		}
	}
	return strings.Join(data, "\n")
}

// expectVerdict fails unless the client got what v says of D's bytes.
func expectVerdict(t *testing.T, v verdict, a wireAnswer) {
	t.Helper()
	if !strings.HasPrefix(a.head, "HTTP/1.1 200 ") || a.err != nil || a.ended != (v.end == "done") {
		t.Fatalf("%s: ended %v, %v, want the end %s\n%s%q", v.of, a.ended, a.err, v.end, a.head, a.body)
	}
	if v.end == "done" {
		if a.body != v.good {
			t.Fatalf("%s: got\n%q\nwant\n%q", v.of, a.body, v.good)
		}
		return
	}
	i := strings.LastIndex(strings.TrimSuffix(a.body, "\n\n"), "\n\n") + 2
	expectErrorEvent(t, a.body[i:], "decode_failed")
	// Bytes that come together with broken framing may be lost with it.
	if events := a.body[:i]; v.end == "event" && events != v.good || !strings.HasPrefix(v.good, events) {
		t.Fatalf("%s: got\n%q and an error\nwant\n%q", v.of, events, v.good)
	}
}

func TestStreamWithOneBitFlipped(t *testing.T) {
	p := newPlayer(t)
	r, relays := relayed(t, rigOptions{prefill: -1, router: p.asDecode, before: func(r *rig) { r.server.BreakAtOnce(); r.server.WatchClosely() }})
	e, err := sim.Start(sim.Options{}.Fast())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	c := call{stream: true, prompt: "short", tokens: 4}
	l := layoutOf(t, e, c, "bit")
	p.plays(l.raw)
	ends, flips := map[string]int{}, 0
	done := l.end[len(l.end)-1]
	for range 2 { // another connection, another bit
		for n := l.begin[1]; n < len(l.raw); n++ {
			relays[0].Next(mustScript(t, fmt.Sprintf("down:corrupt@%d", n)))
			a := r.rawCall(c, "bit")
			all := relays[0].Injected()
			flip := all[len(all)-1].Flip
			if len(all) != flips+1 || flip == 0 {
				t.Fatalf("byte %d: nothing was flipped", n)
			}
			flips++
			flipped := []byte(l.raw)
			flipped[n] ^= flip
			v := judgeStream(string(flipped[l.begin[0]:]))
			if n >= done && !a.ended { // [DONE] and broken framing came in one read
				v = verdict{good: v.good, end: "framing"}
			}
			v.of = fmt.Sprintf("byte %d ^ %#x", n, flip)
			expectVerdict(t, v, a)
			ends[v.end]++
		}
	}
	if ends["done"] < 50 || ends["event"] < 50 || ends["framing"] < 20 {
		t.Errorf("ends %v: want many of each", ends)
	}
}

// Before the first token another round repairs what the proxy can see. What it cannot see must not
// cost a byte of the text.
func TestHeadWithOneBitFlipped(t *testing.T) {
	r, relays := relayed(t, rigOptions{})
	c := call{stream: true, prompt: "short", tokens: 4}
	l := layoutOf(t, r.decode[0], c, "bit")
	for n := 0; n < l.end[0]; n += 29 {
		r.expectNothingHeld() // the release of the last handle has its own connection
		r.flush(relays)
		relays[0].Next(mustScript(t, fmt.Sprintf("down:corrupt@%d", n)))
		a := r.rawCall(c, "bit")
		got := answer{body: a.body}.text()
		if !a.ended || a.err != nil || got != c.want() && n < l.begin[0] {
			t.Errorf("byte %d: ended %v, %v, text %q\n%s%q", n, a.ended, a.err, got, a.head, a.body)
		}
	}
	if n := len(relays[0].Injected()); n < l.end[0]/29 {
		t.Errorf("%d bits flipped of %d", n, l.end[0]/29)
	}
}

const playedHead = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"

// played is an answer with one chunk for each part.
func played(parts ...string) string {
	all := playedHead
	for _, p := range parts {
		all += fmt.Sprintf("%x\r\n%s\r\n", len(p), p)
	}
	return all + "0\r\n\r\n"
}

func tokenEvent(text, reason string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic("BUG: a string has no JSON: " + err.Error())
	}
	return `data: {"choices":[{"index":0,"text":` + string(quoted) + `,"finish_reason":` + reason + `}]}` + "\n\n"
}

func TestOnlyTheEndIsTheEnd(t *testing.T) {
	a, b, last := tokenEvent("a", "null"), tokenEvent("b", "null"), tokenEvent("c", `"stop"`)
	const done = "data: [DONE]\n\n"
	p := newPlayer(t)
	r, relays := relayed(t, rigOptions{prefill: -1, router: p.asDecode})
	for _, tc := range []struct {
		name  string
		parts []string
		want  string // of the client's body; it ends cleanly with [DONE], otherwise with an error event
		short bool   // there is no bad event, and the body just ends
	}{
		{"plain", []string{a, b, last, done}, a + b + last + done, false},
		{"[DONE] is a text", []string{tokenEvent("[DONE]", "null"), tokenEvent(done, "null"), last, done}, tokenEvent("[DONE]", "null") + tokenEvent(done, "null") + last + done, false},
		{"[DONE] is the last text", []string{a, tokenEvent("data: [DONE]", `"stop"`), done}, a + tokenEvent("data: [DONE]", `"stop"`) + done, false},
		{"in a comment", []string{a, ": " + done, last, done}, a + ": " + done + last + done, false},
		{"in another field", []string{a, "event: [DONE]\n\n", last, done}, a + "event: [DONE]\n\n" + last + done, false},
		{"without the blank", []string{a, last, "data:[DONE]\n\n"}, a + last + "data:[DONE]\n\n", false},
		{"behind another field", []string{a, last, "id: 7\ndata: [DONE]\n\n"}, a + last + "id: 7\ndata: [DONE]\n\n", false},
		{"CRLF", []string{crlf(a), crlf(last), crlf(done)}, crlf(a) + crlf(last) + crlf(done), false},
		{"CRLF at the end alone", []string{a, last, crlf(done)}, a + last + crlf(done), false},
		{"one chunk", []string{a + b + last + done}, a + b + last + done, false},
		{"chunks across events", []string{a[:9], a[9:] + b[:30], b[30:] + last + done[:7], done[7:]}, a + b + last + done, false},
		{"an event behind", []string{a, last, done, b}, a + last + done, false},
		{"an event behind in the same chunk", []string{a, last, done + b}, a + last + done, false},
		{"half an event behind", []string{a, last, done + b[:20]}, a + last + done, false},
		{"an error behind", []string{a, last, done, "data: {\"error\":{\"code\":500}}\n\n"}, a + last + done, false},
		{"a second [DONE]", []string{a, last, done + done}, a + last + done, false},
		{"too early", []string{a, done, b, last, done}, a, false},
		{"a look-alike", []string{a, last, "data: [DONE]x\n\n", done}, a + last, false},
		{"a look-alike in quotes", []string{a, last, "data: \"[DONE]\"\n\n", done}, a + last, false},
		{"never whole", []string{a, last, "data: [DONE]\n"}, a + last, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p.plays(played(tc.parts...))
			v := verdict{of: tc.name, good: tc.want, end: "done"}
			if tc.short {
				v.end = "framing"
			} else if !strings.HasSuffix(strings.TrimRight(tc.want, "\r\n"), "[DONE]") {
				v.end = "event"
			}
			for _, script := range []string{"", "down:slice=1", "down:slice=5"} {
				relays[0].Always(mustScript(t, script))
				expectVerdict(t, v, r.rawCall(call{stream: true, prompt: "short", tokens: 3}, "end"))
			}
		})
	}
}

func crlf(event string) string { return strings.ReplaceAll(event, "\n", "\r\n") }

// The end may come in any two reads. The second is written once the client has everything before
// the end.
func TestEndSplitAcrossReads(t *testing.T) {
	p := newPlayer(t)
	r, _ := relayed(t, rigOptions{prefill: -1, router: p.asDecode})
	tokens := []string{tokenEvent("data: [DONE]\n\n", "null"), tokenEvent("[DONE]", `"stop"`)}
	for _, nl := range []func(string) string{func(s string) string { return s }, crlf} {
		before, done := nl(tokens[0])+nl(tokens[1]), nl("data: [DONE]\n\n")
		all := played(before, done)
		for k := strings.LastIndex(all, before) + len(before); k < len(all); k++ {
			seen := make(chan struct{})
			p.playing(func(w io.Writer) {
				_, _ = io.WriteString(w, all[:k])
				<-seen
				_, _ = io.WriteString(w, all[k:])
			})
			see := sync.OnceFunc(func() { close(seen) })
			c := call{stream: true, prompt: "short", tokens: 2}
			a := readWire(t, strings.TrimPrefix(r.url, "http://"), raw(c, "split"), func(a wireAnswer) {
				if strings.HasPrefix(a.body, before) {
					see()
				}
			})
			see() // [DONE] was in the first part
			expectVerdict(t, verdict{of: fmt.Sprint("split at ", k), good: before + done, end: "done"}, a)
		}
	}
}

// An answer that cannot be read before the first token counts as none.
func TestAnswersThatCannotBeReadAreMended(t *testing.T) {
	together(t)
	for _, kind := range []string{"corrupt@0", "role-error"} {
		for _, c := range forms(prompt, 4) {
			t.Run(kind+"/"+c.name(), func(t *testing.T) {
				r := newRig(t, rigOptions{decode: 2})
				f, err := sim.ParseFault(kind)
				if err != nil {
					t.Fatal(err)
				}
				f.Leg, f.Count = "D", 1
				if err := r.decode[0].SetFault(f); err != nil {
					t.Fatal(err)
				}
				met := func() bool {
					return slices.ContainsFunc(r.decode[0].Requests(), func(rec sim.Record) bool { return rec.Outcome == "fault:"+f.Kind })
				}
				r.until(met, func(int) { r.expectWhole(c, r.call(c)) })
				r.expectNothingHeld()
			})
		}
	}
}

// The client gets what came whole, in however many reads it came.
func TestEventsBeforeTheDamageAreTheClients(t *testing.T) {
	together(t)
	event := func(text, finish string) string {
		return fmt.Sprintf("data: {\"id\":\"c\",\"object\":\"text_completion\",\"created\":1,\"model\":\"sim\",\"choices\":[{\"index\":0,\"text\":%q,\"logprobs\":null,\"finish_reason\":%s}]}\n\n", text, finish)
	}
	chunk := func(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }
	const head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	for name, tc := range map[string]struct {
		rest  string // written at once, when the client has the first event
		want  string
		whole bool
	}{
		"broken framing behind events": {
			rest: chunk(event("b", "null")) + chunk(event("c", "null")) + "zz\r\n", want: "abc",
		},
		"a clean end without [DONE] behind events": {
			rest: chunk(event("b", "null")) + "0\r\n\r\n", want: "ab",
		},
		"broken framing behind the end": {
			rest: chunk(event("b", `"stop"`)) + chunk("data: [DONE]\n\n") + "zz\r\n", want: "ab", whole: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			go1 := make(chan struct{})
			p := newPlayer(t)
			p.playing(func(w io.Writer) {
				_, _ = io.WriteString(w, head+chunk(event("a", "null")))
				<-go1
				_, _ = io.WriteString(w, tc.rest)
			})
			r := newRig(t, rigOptions{router: p.asDecode})
			resp, err := http.Post(r.url+"/v1/completions", "application/json", strings.NewReader(forms(prompt, 3)[1].body()))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			first := make([]byte, len(event("a", "null")))
			if _, err := io.ReadFull(resp.Body, first); err != nil {
				t.Fatal(err)
			}
			close(go1)
			rest, err := io.ReadAll(resp.Body)
			a := answer{status: resp.StatusCode, body: string(first) + string(rest), err: err}
			if a.text() != tc.want {
				t.Errorf("text %q, want %q\n%s", a.text(), tc.want, a.body)
			}
			if tc.whole != (err == nil && strings.HasSuffix(a.body, "data: [DONE]\n\n")) || tc.whole == (a.code() == "decode_failed") {
				t.Errorf("whole %v, error %v\n%s", tc.whole, err, a.body)
			}
		})
	}
}
