package client

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"xpyd/sim"
)

// TestFirstTokenIsNoRole: the role event does not end the time to the first token, but an empty token
// does.
func TestFirstTokenIsNoRole(t *testing.T) {
	const wait = 40 * time.Millisecond
	for name, first := range map[string]string{
		"text": firstEvent, "empty": emptyEvent,
		"role and text": `{"choices":[{"delta":{"role":"assistant","content":"x"}}]}`,
		"reasoning":     `{"choices":[{"delta":{"reasoning":"x"}}]}`,
		"tool":          `{"choices":[{"delta":{"role":"assistant","tool_calls":[{"index":0}]}}]}`,
		"completion":    `{"choices":[{"index":0,"text":"","finish_reason":null}]}`,
	} {
		sent := make(chan time.Time, 1) // when the role was
		a := ask(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
			stream(roleEvent)(w, r)
			sent <- time.Now()
			time.Sleep(wait)
			stream(first, lastEvent, usageEvent, "[DONE]")(w, r)
		})
		if a.Failure != "" {
			t.Fatalf("%s: %s: %s", name, a.Failure, a.Detail)
		}
		if got := a.First.Sub(<-sent); got < wait {
			t.Errorf("%s: first token %v after the role", name, got)
		}
		if len(a.Gaps) != 1 || a.Last.Sub(a.First) != a.Gaps[0] {
			t.Errorf("%s: gaps %v, from first to last %v", name, a.Gaps, a.Last.Sub(a.First))
		}
	}
}

// TestUsageIsNoToken: the usage event and [DONE] do not extend any latency. A client that takes usage for
// a token never has its last token before the usage is sent; one that was held up then may in the next try.
func TestUsageIsNoToken(t *testing.T) {
	for tries := range 10 {
		sent := make(chan time.Time, 1) // before usage is
		a := ask(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
			stream(roleEvent, firstEvent, lastEvent)(w, r)
			time.Sleep(time.Duration(tries+1) * 40 * time.Millisecond)
			sent <- time.Now()
			stream(usageEvent, "[DONE]")(w, r)
		})
		if a.Failure != "" || a.Prompt != 7 || a.Output != 3 || a.Cached != 4 || a.Finish != "length" || a.Status != 200 {
			t.Fatalf("answer %+v", a)
		}
		usage := <-sent
		if a.End.Before(usage) {
			t.Errorf("the end is %v before the usage", usage.Sub(a.End))
		}
		if a.Last.Before(usage) {
			break
		}
		if tries == 9 {
			t.Errorf("in no try was the last token before the usage, now %v after it", a.Last.Sub(usage))
		}
	}
	if a := ask(t, Options{}, stream(inlineUsage, "[DONE]")); a.Failure != "" || a.Output != 1 || len(a.Gaps) != 0 {
		t.Errorf("usage beside a token: %+v", a)
	}
}

// TestFramings has the framings that servers and proxies are known to send.
func TestFramings(t *testing.T) {
	long := fmt.Sprintf(`{"choices":[{"delta":{"content":%q}}]}`, strings.Repeat("x", 200<<10))
	for name, text := range map[string]string{
		"crlf":     "data: " + firstEvent + "\r\n\r\ndata: " + lastEvent + "\r\n\r\ndata: " + usageEvent + "\r\n\r\ndata: [DONE]\r\n\r\n",
		"no space": "data:" + firstEvent + "\n\ndata:" + lastEvent + "\n\ndata:" + usageEvent + "\n\ndata:[DONE]\n\n",
		"comments": ": ping\n\ndata: " + firstEvent + "\n\n: ping\n\nevent: x\nid: 3\ndata: " + lastEvent + "\n\ndata: " + usageEvent + "\n\ndata: [DONE]\n\n",
		"long":     "data: " + long + "\n\ndata: " + lastEvent + "\n\ndata: " + usageEvent + "\n\ndata: [DONE]\n\n",
	} {
		a := ask(t, Options{}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, text)
		})
		if a.Failure != "" || a.Output != 3 || len(a.Gaps) != 1 {
			t.Errorf("%s: %s %s, %d tokens, gaps %v", name, a.Failure, a.Detail, a.Output, a.Gaps)
		}
	}
}

func TestRequest(t *testing.T) {
	warm := 0.5
	type request struct {
		head http.Header
		body map[string]any
	}
	asked := make(chan request, 1)
	o := Options{Header: http.Header{"X-Team": {"a", "b"}}, Key: "secret", Temperature: &warm, IgnoreEOS: true, Extra: map[string]any{"min_tokens": 3}}
	a := ask(t, o, func(w http.ResponseWriter, r *http.Request) {
		got := request{head: r.Header}
		if err := json.NewDecoder(r.Body).Decode(&got.body); err != nil {
			t.Error(err)
		}
		asked <- got
		stream(firstEvent, lastEvent, usageEvent, "[DONE]")(w, r)
	})
	if a.Failure != "" {
		t.Fatal(a.Failure, a.Detail)
	}
	got := <-asked
	want := map[string]any{
		"model": "m", "stream": true, "stream_options": map[string]any{"include_usage": true}, "temperature": 0.5, "ignore_eos": true, "min_tokens": 3.0,
		"messages": []any{map[string]any{"role": "user", "content": "hello"}}, "max_completion_tokens": 3.0,
	}
	if !reflect.DeepEqual(got.body, want) {
		t.Errorf("body %v, want %v", got.body, want)
	}
	if head := got.head; head.Get("Authorization") != "Bearer secret" || len(head["X-Team"]) != 2 || head.Get("X-Request-Id") != "id" {
		t.Errorf("head %v", head)
	}
}

func TestBadAddress(t *testing.T) {
	for _, o := range []Options{{URL: "localhost:8000", API: Chat}, {URL: "ftp://h", API: Chat}, {URL: "http://h", API: "responses"}} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}

// TestEngineAnswers: a simulated engine's answers are whole in both APIs, and its faults are failures.
func TestEngineAnswers(t *testing.T) {
	e, err := sim.Start(sim.Options{}.Fast())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, api := range []string{Completions, Chat} {
		c, err := New(Options{URL: e.URL(), API: api, Stall: time.Minute, Timeout: time.Minute, IgnoreEOS: true})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		model, err := c.FirstModel(t.Context())
		if err != nil || model != "sim" {
			t.Fatal(model, err)
		}
		c.SetModel(model)
		for marker, want := range map[string]string{
			"": "", "[[text:comments]]": "", "[[text:crlf]]": "", "[[text:empty]]": "", "[[text:eos@2]]": "", "[[text:done]]": "",
			"[[D:no-done]]": FailNoDone, "[[D:no-finish]]": FailNoFinish, "[[D:cut@3]]": FailCut, "[[D:die@3:rst]]": FailCut, "[[D:stall@3]]": FailStall,
			"[[D:error-done@3]]": FailError, "[[D:zero]]": FailNoToken, "[[D:status=429]]": "http_429", "[[D:rst]]": FailReset, "[[D:corrupt@3]]": FailEvent,
		} {
			c.Close() // an engine that dies takes its idle connections with it
			c.o.Stall = time.Minute
			if want == FailStall {
				c.o.Stall = 100 * time.Millisecond
			}
			a := c.Do(t.Context(), "id", c.Body("four words stand here "+marker, 6), 6)
			if a.Failure != want {
				t.Errorf("%s %s: %q (%s), want %q", api, marker, a.Failure, a.Detail, want)
			}
			if want == "" && (a.Output != 6 || len(a.Gaps) != 5) {
				t.Errorf("%s %s: %d tokens with %d gaps", api, marker, a.Output, len(a.Gaps))
			}
		}
	}
}
