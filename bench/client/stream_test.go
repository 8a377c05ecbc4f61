package client

import (
	"testing"
	"time"
)

// vllmEvent is an event of a completion as vLLM 0.32 writes it.
const vllmEvent = `{"id":"cmpl-bench-4d1f-17","object":"text_completion","created":1763800000,"model":"Qwen/Qwen3-8B","choices":[{"index":0,"text":" hello","logprobs":null,"finish_reason":null,"stop_reason":null,"token_ids":null}],"usage":null}`

// TestPlainEventsArePlain: if plain says that an event is a token and nothing else, decoding the event
// says the same. Texts that look like something else mislead neither.
func TestPlainEventsArePlain(t *testing.T) {
	for event, want := range map[string]bool{
		vllmEvent: true, firstEvent: true, emptyEvent: true,
		roleEvent: false, lastEvent: false, usageEvent: false, inlineUsage: false,
		`{"error":{"message":"x"},"choices":[{"text":"","finish_reason":null}]}`:           false,
		`{"object":"error","choices":[{"text":"","finish_reason":null}]}`:                  false,
		`{"choices":[{"text":"\"finish_reason\":null","finish_reason":"stop"}]}`:           false,
		`{"choices":[{"text":"\"usage\":{ \"error\" \"role\"","finish_reason":null}]}`:     true,
		`{"choices":[],"x":"\"choices\":[{","finish_reason":null}`:                         false,
		`{"choices":[{"text":"x","finish_reason":null}]`:                                   false,
		`{"choices":[{"text":"x","finish_reason":null}],"usage":{"completion_tokens":3}}`:  false,
		`{"choices":[{"text":"x","finish_reason":null}],"usage": {"completion_tokens":3}}`: false,
	} {
		if got := plain([]byte(event)); got != want {
			t.Errorf("%s: %v", event, got)
		}
	}
}

// BenchmarkEvent is the cost of one event of a stream without its system call.
func BenchmarkEvent(b *testing.B) {
	a := &Answer{Gaps: make([]time.Duration, 0, b.N)}
	now, data := time.Now(), []byte(vllmEvent)
	b.ReportAllocs()
	for b.Loop() {
		a.Gaps = a.Gaps[:0]
		if err := a.take(data, now); err != nil {
			b.Fatal(err)
		}
	}
}

// TestTextIsKeptOnRequest: only then, of a whole answer only, and the counts stay the same.
func TestTextIsKeptOnRequest(t *testing.T) {
	const done = "[DONE]"
	for _, c := range []struct {
		keep   bool
		events []string
		want   string
	}{
		{true, []string{roleEvent, firstEvent, emptyEvent, lastEvent, usageEvent, done}, "onethree"},
		{false, []string{roleEvent, firstEvent, emptyEvent, lastEvent, usageEvent, done}, ""},
		{true, []string{roleEvent, firstEvent, emptyEvent, lastEvent, done}, ""}, // no usage: failed
	} {
		a := ask(t, Options{KeepText: c.keep}, stream(c.events...))
		if a.Text != c.want || len(a.Gaps) != 2 || (a.Failure == "") != (len(c.events) == 6) {
			t.Errorf("%+v: %q, %d gaps, %s", c, a.Text, len(a.Gaps), a.Failure)
		}
	}
}
