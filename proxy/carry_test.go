package proxy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"xpyd/intake/limits"
	"xpyd/proxy"
	"xpyd/router"
	"xpyd/sim"
)

// carrying are a rig's options under which streams are carried on, once.
func carrying(prefill, decode int) rigOptions {
	return rigOptions{
		prefill: prefill, decode: decode,
		router: func(c *router.Config) {
			inTurn(c)
			c.Health.EjectAfter = 0
		},
		config: func(c *proxy.Config) { c.Carry.Max = 1 },
	}
}

// chunk is what tests read of an event.
type chunk struct {
	ID      string
	Created int64
	Model   string
	Object  string
	Choices []struct {
		Index  int
		Text   *string
		Delta  *struct{ Role, Content string }
		Reason string          `json:"finish_reason"`
		Stop   json.RawMessage `json:"stop_reason"`
		IDs    json.RawMessage `json:"token_ids"`
		Prompt json.RawMessage `json:"prompt_token_ids"`
	}
	Prompt json.RawMessage `json:"prompt_token_ids"`
	Usage  *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Total      int `json:"total_tokens"`
		Details    *struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
}

// expectOneStream fails unless a is one whole stream: c's text, one id, one role, one end, no ids, and c's usage if it asks for it.
func (r *rig) expectOneStream(c call, a answer, tokens int) {
	r.t.Helper()
	r.expectWhole(c, a)
	var first chunk
	roles, ends, usages := 0, 0, 0
	for _, ev := range strings.Split(strings.TrimSuffix(a.body, "\n\n"), "\n\n") {
		data, ok := strings.CutPrefix(ev, "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var e chunk
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			r.t.Fatalf("%q: %v", ev, err)
		}
		if first.ID == "" {
			first = e
		}
		if e.ID != first.ID || e.Created != first.Created || e.Model != first.Model || e.Object != first.Object || strings.Contains(ev, `token_ids":[`) {
			r.t.Fatalf("%s: event %q in a stream that began with %+v", c.name(), ev, first)
		}
		for _, ch := range e.Choices {
			if (ch.Text == nil) != c.chat || ch.Index != 0 {
				r.t.Fatalf("%s: event %q is of another API", c.name(), ev)
			}
			if c.chat && ch.Delta.Role != "" {
				roles++
			}
			if ch.Reason != "" {
				ends++
			}
		}
		if u := e.Usage; u != nil {
			usages++
			if u.Completion != tokens || u.Total != u.Prompt+tokens || u.Prompt != len(tokenIDs(c.promptText())) {
				r.t.Fatalf("%s: usage %q, want %d of %d", c.name(), ev, tokens, len(tokenIDs(c.promptText())))
			}
		}
	}
	if want := map[bool]int{true: 1}[c.chat]; roles != want || ends != 1 || usages != strings.Count(c.more, "include_usage") {
		r.t.Fatalf("%s: %d roles, %d ends, %d usages\n%s", c.name(), roles, ends, usages, a.body)
	}
}

// promptText is the prompt as engines render it.
func (c call) promptText() string {
	if c.chat {
		return sim.ChatPrompt(sim.Message{Role: "user", Content: c.prompt})
	}
	return c.prompt
}

const withUsage = `,"stream_options":{"include_usage":true}`

// askAll sends all calls at once.
func (r *rig) askAll(calls []call) []answer {
	answers := make([]answer, len(calls))
	var all sync.WaitGroup
	for i, c := range calls {
		all.Go(func() { answers[i] = r.call(c) })
	}
	all.Wait()
	return answers
}

// carriedOn is how many streams were carried on.
func (r *rig) carriedOn() float64 { return r.metric(`xpyd_streams_carried_total{not_carried="none"}`) }

// A stream whose decode engine fails goes on, wherever the failure falls: as one stream, with nothing twice and nothing lost.
func TestStreamIsCarriedOn(t *testing.T) {
	r := newRig(t, carrying(2, 2))
	var calls []call
	styles := []string{"", "[[text:utf8]]", "[[text:escape]]", "[[text:empty]]", "[[text:comments]]"}
	for i, fault := range []string{"die@%d", "die@%d:rst", "cut@%d", "error-done@%d", "error-cut@%d", "corrupt@%d"} {
		for at := range 12 {
			for j, chat := range []bool{false, true} {
				for twin := range 2 { // one of them goes to the engine that fails
					c := streamed(chat, 9, styles[(at+i+j)%len(styles)]+fmt.Sprintf("[[decode-0:"+fault+"]]%s%d%d", at, fault, j, twin))
					c.more = withUsage
					calls = append(calls, c)
				}
			}
		}
	}
	for i, a := range r.askAll(calls) {
		r.expectOneStream(calls[i], a, 9)
	}
	if n := r.carriedOn(); n < 40 {
		t.Errorf("%v streams were carried on\n%s", n, r.logs)
	}
	r.expectNothingHeld()
}

// A stop string that begins before the seam and ends behind it ends the stream as if there were none.
func TestStopStringOverTheSeam(t *testing.T) {
	r := newRig(t, carrying(2, 2))
	var calls []call
	var stops []string
	const tokens = 12
	for at := 1; at < tokens; at++ {
		for k := 1; k < tokens-2; k += 2 {
			for _, chat := range []bool{false, true} {
				for twin := range 2 {
					c := streamed(chat, tokens, fmt.Sprintf("[[decode-0:die@%d]]%d%d", at, k, twin))
					text := sim.Text(c.promptText(), k+2)
					word := text[len(sim.Text(c.promptText(), k+1)):]
					before := sim.Text(c.promptText(), k+1)
					stop := before[len(before)-3:] + word[:3]
					stops = append(stops, stop)
					c.more = withUsage + fmt.Sprintf(`,"stop":["%s","nowhere to be found"]`, stop)
					calls = append(calls, c)
				}
			}
		}
	}
	for i, a := range r.askAll(calls) {
		c := calls[i]
		whole := sim.Text(c.promptText(), tokens)
		want := whole[:strings.Index(whole, stops[i])]
		if a.err != nil || a.text() != want || strings.Count(a.body, `"finish_reason":"stop","stop_reason":"`+stops[i]+`"`) != 1 {
			t.Fatalf("%s: %v, text %q, want %q, stop %q\n%s\n%s", c.name(), a.err, a.text(), want, stops[i], a.body, r.logs)
		}
		said := 0
		for !strings.Contains(sim.Text(c.promptText(), said), stops[i]) {
			said++
		}
		if !strings.Contains(a.body, fmt.Sprintf(`"completion_tokens":%d`, said)) {
			t.Fatalf("%s: want %d tokens in the usage\n%s", c.name(), said, a.body)
		}
	}
	if n := r.carriedOn(); n < 20 {
		t.Errorf("%v streams were carried on\n%s", n, r.logs)
	}
	r.expectNothingHeld()
}

// A stream is carried on as often as carry.max says, and ends as ever after that.
func TestCarriedAsOftenAsConfigured(t *testing.T) {
	for _, most := range []int{1, 4} {
		o := carrying(1, 3)
		o.config = func(c *proxy.Config) { c.Carry.Max = most }
		r := newRig(t, o)
		for i, c := range []call{streamed(false, 9, "[[D:die@3]]"), streamed(true, 9, "[[D:die@4]]")} {
			c.more = withUsage + `,"min_tokens":8`
			a := r.call(c)
			if most > 1 {
				r.expectOneStream(c, a, 9)
				continue
			}
			if a.err == nil || a.code() != "decode_failed" || a.text() != sim.Text(c.promptText(), 6+i) {
				t.Errorf("%v, %s", a.err, a.body)
			}
			if n := r.metric(`xpyd_streams_carried_total{not_carried="spent"}`); n != float64(i+1) {
				t.Errorf("%v streams ended so\n%s", n, r.logs)
			}
		}
		r.expectNothingHeld()
	}
}

// What cannot be carried on exactly is not: the stream ends as it does without carry.max, and the reason is counted and logged.
func TestWhatIsNotCarried(t *testing.T) {
	o := carrying(1, 2)
	o.engine = func(o *sim.Options) { o.ToolCallParser = "hermes" }
	r := newRig(t, o)
	for why, more := range map[string]string{
		"logprobs": `,"logprobs":true`, "penalties": `,"presence_penalty":0.5`, "stop": `,"stop":"x","temperature":1`, "structured": `,"response_format":{"type":"json_object"}`,
		"tools": `,"tools":[{"type":"function","function":{"name":"f"}}]`, "member": `,"a_new_option":1`, "choices": `,"n":2,"temperature":1`,
	} {
		c := streamed(true, 9, "[[D:die@5]]")
		body := strings.Replace(c.body(), `,"temperature":0`, "", strings.Count(more, "temperature"))
		a := r.post(c.path(), strings.Replace(body, `{"model"`, `{`+more[1:]+`,"model"`, 1))
		if a.code() != "decode_failed" || strings.Contains(a.body, `token_ids":[`) {
			t.Errorf("%s: %s", why, a.body)
		}
		if n := r.metric(`xpyd_streams_carried_total{not_carried="` + why + `"}`); n != 1 || !strings.Contains(r.logs.String(), `"not_carried":"`+why+`"`) {
			t.Errorf("%s: counted %v", why, n)
		}
	}
	c := streamed(true, 9, "[[D:die@5]]")
	if a := r.call(c, "X-Xpyd-Carry", "never"); a.code() != "decode_failed" || r.metric(`xpyd_streams_carried_total{not_carried="client"}`) != 1 {
		t.Errorf("refused: %s", a.body)
	}
	if n := r.carriedOn(); n != 0 {
		t.Errorf("%v streams were carried on", n)
	}
	r.expectNothingHeld()
}

// A stream whose engine says nothing more, and one whose engine is killed, are carried on too. The bounds hold.
func TestHungStreamIsCarriedOn(t *testing.T) {
	o := carrying(1, 2)
	o.config = func(c *proxy.Config) { c.Carry.Max, c.Timeouts.StreamIdle = 1, 300*time.Millisecond }
	r := newRig(t, o)
	var calls []call
	for i := range 8 {
		calls = append(calls, streamed(i%2 == 0, 9, fmt.Sprintf("[[decode-0:stall@%d]]", i+2)))
	}
	for i, a := range r.askAll(calls) {
		r.expectOneStream(calls[i], a, 9)
	}
	if r.carriedOn() == 0 {
		t.Error("none was carried on")
	}
	r.expectNothingHeld()
}

// Each decode engine is killed under streams, one after the other. No stream breaks, and no block stays pinned.
func TestKilledDecodeBreaksNoStream(t *testing.T) {
	o := carrying(2, 3)
	var victim atomic.Pointer[sim.Engine]
	o.engine = func(o *sim.Options) {
		o.Hook = func(e sim.Event) { // its streams do not end before it is killed
			if d := victim.Load(); d != nil && e.Engine == d.Name() && e.Phase == sim.PhaseStreamEvent && e.Index == 3 {
				<-d.Died()
			}
		}
	}
	o.config = func(c *proxy.Config) { c.Carry.Max = 3 }
	r := newRig(t, o)
	const streams, tokens = 12, 20
	carried := 0.0
	for turn := range 3 {
		var calls []call
		for i := range streams {
			c := streamed(i%2 == 0, tokens, fmt.Sprintf(" %d %d", turn, i))
			c.more = withUsage
			calls = append(calls, c)
		}
		begun := r.metric(`xpyd_kv_handles_total{end="burnt"}`)
		done := make(chan []answer, 1)
		d := r.decode[turn]
		victim.Store(d)
		go func() { done <- r.askAll(calls) }()
		r.await("begun", func() bool { return r.metric(`xpyd_kv_handles_total{end="burnt"}`) >= begun+streams })
		d.Kill()
		for i, a := range <-done {
			r.expectOneStream(calls[i], a, tokens)
		}
		if err := d.Restart(); err != nil {
			t.Fatal(err)
		}
		if n := r.carriedOn(); n <= carried {
			t.Errorf("turn %d: none was carried on", turn)
		} else {
			carried = n
		}
	}
	r.expectNothingHeld()
}

// A client leaves while its stream is carried on. Its prefill ends, and no block stays pinned.
func TestClientLeavesWhileItsStreamIsCarriedOn(t *testing.T) {
	r := newRig(t, carrying(1, 2))
	for i := range 6 {
		c := streamed(i%2 == 0, 9, fmt.Sprintf("[[D:die@3]][[P:delay=%dms]]%d", 1+i*40, i))
		req, err := http.NewRequest("POST", r.url+c.path(), strings.NewReader(c.body()))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		ctx, leave := context.WithCancel(t.Context())
		resp, err := r.client.Do(req.WithContext(ctx))
		if err != nil {
			t.Fatal(err)
		}
		r.await("a continuation", func() bool { return r.metric("xpyd_retries_total") > float64(i) })
		leave()
		_ = resp.Body.Close()
		r.await("idle", func() bool { return r.metric("xpyd_in_flight") == 0 })
	}
	r.expectNothingHeld()
}

// tokens is an event of a completion with a text and the ids of its tokens.
func tokens(text, ids, reason string) string {
	return fmt.Sprintf(`data: {"id":"c1","object":"text_completion","created":1,"model":"sim","choices":[{"index":0,"text":%q,"logprobs":null,"finish_reason":%s,`+
		`"stop_reason":null,"token_ids":[%s],"prompt_token_ids":[1,2,3]}]}`+"\n\n", text, reason, ids)
}

const (
	boom    = `data: {"error":{"message":"boom","type":"InternalServerError","code":500}}` + "\n\n"
	lastOne = "data: [DONE]\n\n"
)

// scripted is a rig whose only engine answers one request after the other with one of these, and all others with the last: a
// number is the status of a refusal, a text are events, and nil is no answer. A stream without a last event breaks off.
func scripted(t *testing.T, config func(*proxy.Config), turns ...any) *rig {
	var asked atomic.Int32
	d := newStub(t, func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body) // the end of the connection is seen only after that
		switch turn := turns[min(int(asked.Add(1)), len(turns))-1].(type) {
		case nil:
			<-q.Context().Done()
		case int:
			w.WriteHeader(turn)
			_, _ = io.WriteString(w, `{"error":{"message":"no"}}`)
		case string:
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, turn)
			if !strings.HasSuffix(turn, lastOne) {
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}
		}
	})
	return newRig(t, rigOptions{prefill: -1, router: d.asDecode, config: func(c *proxy.Config) {
		c.Carry.Max = 1
		if config != nil {
			config(c)
		}
	}})
}

// expectBrokenAfter fails unless a ends after text with one error event that holds message, and no clean end.
func (r *rig) expectBrokenAfter(a answer, text, message string) {
	r.t.Helper()
	if a.err == nil || a.text() != text || strings.Count(a.body, `"error"`) != 1 || !strings.Contains(a.body, message) || strings.Contains(a.body, "[DONE]") {
		r.t.Errorf("%v: %s\n%s", a.err, a.body, r.logs)
	}
}

// expectJoined fails unless a is a whole stream with this text and so many tokens.
func (r *rig) expectJoined(a answer, text string, prompt, completion int) {
	r.t.Helper()
	usage := fmt.Sprintf(`"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,`, prompt, prompt+completion, completion)
	if a.err != nil || a.text() != text || strings.Count(a.body, `"usage":{`) != 1 || !strings.Contains(a.body, usage) || !strings.HasSuffix(a.body, lastOne) {
		r.t.Errorf("%v: %s\nwant %q and %s\n%s", a.err, a.body, text, usage, r.logs)
	}
}

// The engine that is to go on refuses: the stream ends in an error, its key is free again, and it is logged as ever.
func TestRefusedContinuation(t *testing.T) {
	for _, status := range []int{400, 500, 503} {
		r := scripted(t, func(c *proxy.Config) {
			c.Keys = []limits.Terms{holder("alpha", func(t *limits.Terms) { t.InFlight = 1 })}
		}, tokens("abc", "4", "null"), status)
		r.expectBrokenAfter(r.call(streamed(false, 9, "x"), as("alpha")...), "abc", "decode_failed")
		if r.await("its log line", func() bool { return strings.Contains(r.logs.String(), `"message":"completion"`) }); r.metric("xpyd_panics_total") != 0 {
			t.Errorf("%d: %s", status, r.logs)
		}
		if a := r.call(streamed(false, 9, "x"), as("alpha")...); a.status == http.StatusTooManyRequests {
			t.Errorf("%d: the key is not free: %s", status, a.body)
		}
	}
}

// An answer whose engine gives it up has no clean end: another engine goes on with it, or it ends in an error.
func TestAnswerThatItsEngineGivesUp(t *testing.T) {
	for _, why := range []string{`"error"`, `"abort"`} {
		c := call{stream: true, prompt: "x", tokens: 9, more: withUsage}
		gives := tokens("abc", "4", "null") + tokens("", "5", why) + lastOne
		r := scripted(t, nil, gives, tokens("def", "6", `"stop"`)+lastOne)
		r.expectBrokenAfter(scripted(t, nil, gives, 500).call(c), "abc", "decode_failed")
		if a := r.call(c); a.err != nil || a.text() != "abcdef" || strings.Contains(a.body, why) {
			t.Errorf("%s: %v: %s", why, a.err, a.body)
		}
	}
}

// With errors.expose_upstream, each stream that breaks has one error event: the engine's own if the client is to have it, and
// otherwise xpyd's.
func TestErrorEventOfAnEngineIsShown(t *testing.T) {
	expose := func(c *proxy.Config) { c.Errors.ExposeUpstream = true }
	plain := `data: {"choices":[{"index":0,"text":"abc","finish_reason":null}]}` + "\n\n"
	c := streamed(false, 9, "x")
	r := scripted(t, expose, plain+boom+lastOne) // without ids, it cannot be carried on
	r.expectBrokenAfter(r.call(c), "abc", "boom")
	r = scripted(t, expose, tokens("abc", "4", "null"), tokens("def", "5", "null")+boom+lastOne)
	r.expectBrokenAfter(r.call(c), "abcdef", "boom")
	r = scripted(t, expose, tokens("abc", "4", "null"), boom+lastOne)
	r.expectBrokenAfter(r.call(c), "abc", "decode_failed")
}

// What stops the record of a stream while it is carried on does not change the usage that its client sees.
func TestUsageOfAStreamThatIsCarriedOnOnceOnly(t *testing.T) {
	many := tokens("de", strings.Repeat("77777,", 999)+"8", "null") + tokens("f", "9", `"stop"`)
	many += `data: {"id":"c1","choices":[],"usage":{"prompt_tokens":4,"total_tokens":1005,"completion_tokens":1001}}` + "\n\n" + lastOne
	r := scripted(t, func(c *proxy.Config) { c.Carry.Max, c.Carry.Stream = 2, 1000 }, tokens("abc", "4", "null"), many)
	r.expectJoined(r.call(call{stream: true, prompt: "x", tokens: 3000, more: withUsage}), "abcdef", 3, 1002)
}

// A stream whose next engine makes another text ends there. No engine after that one goes on with it.
func TestContinuationThatDiverges(t *testing.T) {
	r := scripted(t, nil, tokens("a", "4", "null")+tokens("aaa", "5", "null"), tokens("aX", "7", "null")+lastOne, tokens("aaaab", "4", `"stop"`)+lastOne)
	r.expectBrokenAfter(r.call(call{stream: true, prompt: "x", tokens: 9, more: `,"stop":"abcde"`}), "aaaa", "decode_failed")
	if n := r.metric(`xpyd_streams_carried_total{not_carried="diverged"}`); n != 1 {
		t.Errorf("%v were counted as that\n%s", n, r.logs)
	}
}

// The text of an event with several tokens may lack a part of the last one's. So the stream is joined only behind one with a
// single token.
func TestStreamIsJoinedBehindASingleToken(t *testing.T) {
	c, rest := streamed(false, 9, "x"), tokens("c", "9", `"stop"`)+lastOne
	several, single := tokens("a", "4,5", "null"), tokens("b", "6", "null")
	r := scripted(t, nil, several, rest)
	r.expectBrokenAfter(r.call(c), "a", "decode_failed")
	if n := r.metric(`xpyd_streams_carried_total{not_carried="shape"}`); n != 1 {
		t.Errorf("%v were counted as that\n%s", n, r.logs)
	}
	if a := scripted(t, nil, several+single, rest).call(c); a.err != nil || a.text() != "abc" {
		t.Errorf("%v: %s", a.err, a.body)
	}
}

// A stream whose time is over while another engine is to go on with it says so.
func TestDeadlineOfACarriedStream(t *testing.T) {
	r := scripted(t, nil, tokens("abc", "4", "null"), nil)
	r.expectBrokenAfter(r.call(streamed(false, 9, "x"), "X-Request-Timeout", "0.4"), "abc", `"deadline"`)
}

// The tokens of a continuation's prompt, which has the answer so far, do not count as those of the client's text.
func TestCarriedStreamTeachesNoSizeOfTokens(t *testing.T) {
	r := newRig(t, carrying(1, 2))
	learnt := func() (bytes float64) {
		_, after, _ := strings.Cut(r.adminText("/backends"), `"token_bytes": `)
		_, _ = fmt.Sscanf(after, "%f", &bytes)
		return bytes
	}
	for i := range 4 {
		r.call(streamed(false, 1, fmt.Sprint("warm and long enough for that ", i)))
	}
	before := learnt()
	for i := range 4 {
		r.call(streamed(false, 200, fmt.Sprint("[[decode-0:die@190]]long enough for that ", i)))
	}
	if after := learnt(); r.carriedOn() == 0 || before-after > 0.005 {
		t.Errorf("%v bytes a token, and %v before %v streams were carried on", after, before, r.carriedOn())
	}
}
