package kvparams

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// typedStream plays a stream as the relay reads it, up to its n-th event. whole says that a client may take
// what came for the whole answer.
func typedStream(api API, events [][]byte, n int) (kinds string, whole bool) {
	finished, done := 0, false
	for _, ev := range events[:n] {
		e := api.Classify(ev)
		kinds += string("croueD"[e.Kind])
		if e.Malformed || e.Broken > 0 || e.Kind == EventError {
			return kinds, false
		}
		finished += e.Finished
		done = done || e.Kind == EventDone
	}
	return kinds, done && finished == 1
}

func TestRecordedTypedStreams(t *testing.T) {
	for api, want := range map[API]string{Messages: "roooooooD", Responses: "rroooooooD"} {
		events := cutEvents(testdata(t, api.String()+".sse.txt"))
		want = want[:1] + strings.Repeat("o", len(events)-2) + want[len(want)-1:]
		if api == Responses {
			want = "r" + "r" + want[2:]
		}
		kinds, whole := typedStream(api, events, len(events))
		if kinds != want || !whole {
			t.Errorf("%v: %s, whole %v, want %s", api, kinds, whole, want)
		}
		for n := range len(events) {
			if _, whole := typedStream(api, events, n); whole {
				t.Errorf("%v: whole after %d of %d events", api, n, len(events))
			}
		}
	}
}

func TestClassifyTyped(t *testing.T) {
	for _, c := range []struct {
		api  API
		data string
		want Event
	}{
		{Messages, `{"type":"ping"}`, Event{Kind: EventComment}},
		{Messages, `{"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":4}}`, Event{Kind: EventContent, Broken: 1}},
		{Messages, `{"type":"message_delta","delta":{"stop_re\u0061son":"end_turn"}}`, Event{Kind: EventContent, Finished: 1}},
		{Messages, `{"type":"message_delta","usage":{"input_tokens":4,"output_tokens":4,"cache_read_input_tokens":16}}`, Event{Kind: EventContent, Usage: Usage{20, 4, 16}}},
		{Messages, `{"type":"content_block_delta","delta":{"type":"message_stop","text":"{\"type\":\"message_stop\"}"}}`, Event{Kind: EventContent}},
		{Messages, `{"type":"content_block_start","content_block":{"type":"message_stop","error":{}}}`, Event{Kind: EventContent}},
		{Messages, `{"type":"error","error":{"type":"internal_error","message":"x"}}`, Event{Kind: EventError}},
		{Messages, `{"error":{"message":"x"}}`, Event{Kind: EventError}},
		{Messages, `{"type":"error"}`, Event{Kind: EventError}},
		{Messages, `{"type":7}`, Event{Kind: EventContent}},
		{Messages, `[]`, Event{Kind: EventContent, Malformed: true}},
		{Messages, `{"type":"message_stop"`, Event{Kind: EventContent, Malformed: true}},
		{Messages, `[DONE]`, Event{Kind: EventContent, Malformed: true}},
		{Responses, `{"type":"response.completed","response":{"status":"completed"}}`, Event{Kind: EventDone, Finished: 1}},
		{Responses, `{"response":{"status":"incomplete"},"type":"response.incomplete"}`, Event{Kind: EventDone, Finished: 1}},
		{Responses, `{"type":"response.completed","response":{"status":"cancelled"}}`, Event{Kind: EventDone, Broken: 1}},
		{Responses, `{"type":"response.completed","response":{"status":null}}`, Event{Kind: EventDone, Broken: 1}},
		{Responses, `{"type":"response.completed"}`, Event{Kind: EventDone, Broken: 1}},
		{Responses, `{"type":"response.completed","response":{"status":"completed","error":{"code":"x"}}}`, Event{Kind: EventError}},
		{Responses, `{"type":"response.failed","response":{"status":"failed"}}`, Event{Kind: EventError}},
		{Responses, `{"type":"error","message":"x"}`, Event{Kind: EventError}},
		{Responses, `{"type":"response.output_item.done","item":{"type":"response.completed","status":"completed"}}`, Event{Kind: EventContent}},
		{Responses, `{"type":"response.queued","response":{"status":"queued"}}`, Event{Kind: EventRole}},
		{Generate, `[DONE]`, Event{Kind: EventDone}},
	} {
		got := c.api.Classify([]byte("event: x\ndata: " + c.data + "\n\n"))
		if got != c.want {
			t.Errorf("%v %s:\n got %+v\nwant %+v", c.api, c.data, got, c.want)
		}
		if want := c.want.Kind == EventContent || c.want.Kind == EventDone && c.want.Finished > 0; got.Commits() != want {
			t.Errorf("%v %s: commits %v", c.api, c.data, got.Commits())
		}
	}
	if e := Messages.Classify([]byte(": keep-alive\n\n")); e != (Event{Kind: EventComment}) {
		t.Errorf("a comment is %+v", e)
	}
}

func TestClassifyTypedAllocates(t *testing.T) {
	for _, api := range []API{Messages, Responses} {
		events := cutEvents(testdata(t, api.String()+".sse.txt"))
		if n := testing.AllocsPerRun(100, func() {
			for _, ev := range events {
				api.Classify(ev)
			}
			api.Figures(events[len(events)-1], 7)
		}); n != 0 {
			t.Errorf("%v: %v allocations, want 0", api, n)
		}
	}
}

// A handle of the decode engine's own is hidden one level down too, and the name of the event stays.
func TestHandleOfATypedEventIsHidden(t *testing.T) {
	for in, want := range map[string]string{
		"event: x\ndata: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"kv_transfer_params\":{\"a\":[1]}}}\n\n": "event: x\ndata: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"kv_transfer_params\":null}}\n\n",
		"event: x\ndata: {\"response\":\ndata: {\"kv_transfer_params\":\"h\"}}\n\n":                                                        "event: x\ndata: {\"response\": {\"kv_transfer_params\":null}}\n\n",
		"event: x\ndata: {\"kv_transfer_params\":[],\"type\":\"x\"}\n\n":                                                                   "event: x\ndata: {\"kv_transfer_params\":null,\"type\":\"x\"}\n\n",
		"data: {\"response\":{\"ec_transfer_params\":{\"a\":[1]}},\"kv_transfer_params\":{\"a\":1}}\n\n":                                   "data: {\"response\":{\"ec_transfer_params\":null},\"kv_transfer_params\":null}\n\n",
	} {
		e := Responses.Classify([]byte(in))
		if got := string(e.HideTransfers([]byte(in))); !e.Transfers() || got != want {
			t.Errorf("%q: %+v, %q, want %q", in, e, got, want)
		}
	}
	twice := "data: {\"kv_transfer_params\":{\"a\":1},\"response\":{\"kv_transfer_params\":{\"b\":1}}}\n\n"
	if e := Responses.Classify([]byte(twice)); !e.Malformed {
		t.Errorf("two handles: %+v", e)
	}
}

// The client sees P's cached tokens. On Anthropic's API they are not among the input tokens.
func TestFigures(t *testing.T) {
	for _, c := range []struct {
		api      API
		in, want string
	}{
		{Messages, `{"type":"message_delta","usage":{"input_tokens":8,"output_tokens":4,"cache_creation_input_tokens":0,"cache_read_input_tokens":2}}`,
			`{"type":"message_delta","usage":{"input_tokens":3,"output_tokens":4,"cache_creation_input_tokens":0,"cache_read_input_tokens":7}}`},
		{Messages, `{"type":"message_start","message":{"usage":{"cache_read_input_tokens":0,"input_tokens":10}}}`,
			`{"type":"message_start","message":{"usage":{"cache_read_input_tokens":7,"input_tokens":3}}}`},
		{Messages, `{"usage":{"cache_read_input_tokens":0,"input_tokens":2}}`, `{"usage":{"cache_read_input_tokens":7,"input_tokens":0}}`},
		{Messages, `{"usage":{"input_tokens":8}}`, `{"usage":{"input_tokens":8}}`},
		{Responses, `{"response":{"usage":{"input_tokens":8,"input_tokens_details":{"cached_tokens":0}}}}`,
			`{"response":{"usage":{"input_tokens":8,"input_tokens_details":{"cached_tokens":7}}}}`},
		{Generate, `{"choices":[],"usage":{"prompt_tokens":8,"prompt_tokens_details":{"cached_tokens":0}}}`,
			`{"choices":[],"usage":{"prompt_tokens":8,"prompt_tokens_details":{"cached_tokens":7}}}`},
	} {
		ev := "data: " + c.in + "\n\n"
		figures, n := c.api.Figures([]byte(ev), 7)
		got := ev
		for _, f := range figures[:n] {
			got = fmt.Sprintf("%s%d%s", got[:f.At], f.Value, got[f.End:])
		}
		if got != "data: "+c.want+"\n\n" {
			t.Errorf("%v %s\n got %s\nwant %s", c.api, c.in, got, c.want)
		}
	}
}

// The usage of message_start is from before the answer. A client that leaves in the stream has had tokens
// that no later event counts.
func TestFirstUsageCountsNoAnswer(t *testing.T) {
	ev := []byte("event: message_start\ndata: " + `{"type":"message_start","message":{"usage":{"input_tokens":8,"output_tokens":0,"cache_read_input_tokens":2}}}` + "\n\n")
	if got, want := Messages.Classify(ev).Usage, (Usage{Prompt: 10, Completion: -1, Cached: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestTypedAnswers(t *testing.T) {
	for _, api := range []API{Messages, Responses} {
		body := testdata(t, api.String()+".json.txt")
		var c Completion
		if err := c.ParseAs(api, body, 1); err != nil {
			t.Fatal(err)
		}
		if u := c.Usage(); u != (Usage{8, 4, 0}) {
			t.Errorf("%v: usage %+v", api, u)
		}
		if got := join(c.AppendClient(nil, -1)); got != string(body) {
			t.Errorf("%v changed to %s", api, got)
		}
		for i := range len(body) {
			if c.ParseAs(api, body[:i], 1) == nil && len(bytes.TrimSpace(body[i:])) > 0 {
				t.Errorf("%v: %d of %d bytes are an answer", api, i, len(body))
			}
		}
	}
	var c Completion
	for _, k := range []struct {
		api    API
		in     string
		client string // with 7 cached tokens; empty if the answer is not whole
	}{
		{Messages, `{"stop_reason":"end_turn","kv_transfer_params":{"h":1},"usage":{"input_tokens":9,"cache_read_input_tokens":0}}`,
			`{"stop_reason":"end_turn","kv_transfer_params":null,"usage":{"input_tokens":2,"cache_read_input_tokens":7}}`},
		{Messages, `{"usage":{"cache_read_input_tokens":0,"input_tokens":9},"kv_transfer_params":{"h":1},"stop_reason":"end_turn","status":"failed"}`,
			`{"usage":{"cache_read_input_tokens":7,"input_tokens":2},"kv_transfer_params":null,"stop_reason":"end_turn","status":"failed"}`},
		{Messages, `{"usage":{"cache_read_input_tokens":0,"input_tokens":9},"ec_transfer_params":{"h":{"peer_host":"p"}},"stop_reason":"end_turn"}`,
			`{"usage":{"cache_read_input_tokens":7,"input_tokens":2},"ec_transfer_params":null,"stop_reason":"end_turn"}`},
		{Messages, `{"content":[{"stop_reason":"end_turn"}]}`, ""},
		{Messages, `{"stop_reason":null}`, ""},
		{Messages, `{"stop_reason":"end_turn","stop_reason":"end_turn"}`, ""},
		{Messages, `{"stop_reason":"end_turn","error":{"type":"x"}}`, ""},
		{Messages, `{"choices":[{"finish_reason":"stop"}]}`, ""},
		{Responses, `{"status":"incomplete","stop_reason":null}`, `{"status":"incomplete","stop_reason":null}`},
		{Responses, `{"status":"cancelled"}`, ""},
		{Responses, `{"status":"failed","error":null}`, ""},
		{Responses, `{"output":[{"status":"completed"}]}`, ""},
		{Chat, `{"choices":[{"finish_reason":"stop"}],"":1,"status":null,"stop_reason":null}`, `{"choices":[{"finish_reason":"stop"}],"":1,"status":null,"stop_reason":null}`},
	} {
		err := c.ParseAs(k.api, []byte(k.in), 1)
		if (err == nil) != (k.client != "") {
			t.Errorf("%v %s: %v", k.api, k.in, err)
			continue
		}
		if err == nil && join(c.AppendClient(nil, 7)) != k.client {
			t.Errorf("%v %s\n got %s\nwant %s", k.api, k.in, join(c.AppendClient(nil, 7)), k.client)
		}
	}
}

func TestPrefillAnswersOfOtherAPIs(t *testing.T) {
	for in, want := range map[string][2]int{
		`{"usage":{"input_tokens":3,"cache_creation_input_tokens":1,"cache_read_input_tokens":16}}`: {20, 16},
		`{"usage":{"input_tokens":20,"input_tokens_details":{"cached_tokens":16}}}`:                 {20, 16},
		`{"usage":{"input_tokens":20}}`: {20, -1},
	} {
		a, err := nixl{}.ParseAnswer([]byte(in))
		if err != nil || a.PromptTokens != want[0] || a.CachedTokens != want[1] {
			t.Errorf("%s: %+v, %v", in, a, err)
		}
	}
}

// The prompt of the other APIs: the order of members does not count, and instructions come before messages.
func TestBlocksOfOtherAPIs(t *testing.T) {
	sys, user := prose(1, 3000), prose(2, 5000)
	for _, c := range []struct {
		api  API
		a, b string
		want int // blocks in common; -1 for all
	}{
		{Messages, `{"system":"` + sys + `","messages":["` + user + `"]}`, `{"messages":["` + user + `"],"system":"` + sys + `"}`, -1},
		{Messages, `{"system":"` + sys + `","messages":["` + user + `"]}`, `{"system":"` + sys + `","messages":["x"]}`, 3000 / blockBytes},
		{Messages, `{"system":"` + sys + `","messages":["` + user + `"]}`, `{"messages":["` + user + `"]}`, 0},
		{Messages, `{"thinking":{"type":"adaptive"},"messages":["` + user + `"]}`, `{"messages":["` + user + `"]}`, 0},
		{Responses, `{"instructions":"` + sys + `","input":"` + user + `"}`, `{"input":"` + user + `!","instructions":"` + sys + `"}`, -1},
		{Responses, `{"tools":["` + sys + `"],"input":"` + user + `"}`, `{"tools":["` + sys + `"],"input":"x"}`, 3000 / blockBytes},
		{Generate, `{"token_ids":[` + strings.Repeat("11,", 500) + `1]}`, `{"token_ids":[` + strings.Repeat("11,", 400) + `1]}`, 400 * 3 / blockBytes},
	} {
		var r Request
		parse := func(body string) []uint64 {
			if err := r.Parse(c.api, []byte(body)); err != nil {
				t.Fatal(err)
			}
			return append([]uint64(nil), r.Blocks(blockBytes)...)
		}
		a, b := parse(c.a), parse(c.b)
		want := c.want
		if want < 0 {
			want = len(a)
		}
		if got := common(a, b); got != want || len(a) == 0 {
			t.Errorf("%v: %d blocks in common of %d and %d, want %d\n%.60s\n%.60s", c.api, got, len(a), len(b), want, c.a, c.b)
		}
	}
	var r Request
	if err := r.Parse(Generate, []byte(`{"token_ids":[1,2,3]}`)); err != nil {
		t.Fatal(err)
	}
	if n, exact := r.PromptTokens(4, 1000); n != 3 || !exact {
		t.Errorf("%d tokens, exact %v", n, exact)
	}
}

// laterOracle edits a parsed request as its prefill leg differs.
func laterOracle(api API, in map[string]any) {
	set := func(m map[string]any, name string, v any, add bool) {
		if _, ok := m[name]; ok || add {
			m[name] = v
		}
	}
	set(in, "stream", false, false)
	switch api {
	case Messages:
		set(in, "max_tokens", json.Number("1"), false)
	case Responses:
		set(in, "max_output_tokens", json.Number("1"), true)
		set(in, "store", false, true)
		set(in, "enable_response_messages", false, false)
	case Generate:
		delete(in, "stream_options")
		set(in, "return_token_ids", false, false)
		if sampling, ok := in["sampling_params"].(map[string]any); ok {
			set(sampling, "max_tokens", json.Number("1"), true)
			set(sampling, "min_tokens", json.Number("1"), true)
		}
	}
}

func FuzzAPIs(f *testing.F) {
	for _, body := range []string{
		`{"model":"m","system":"s","max_tokens":5,"stream":true,"messages":[],"tools":[{"type":"x"}],"tool_choice":{"type":"any"}}`,
		`{"model":"m","input":[{"role":"user"}],"store":true,"tools":[{"type":"mcp"},7,{"t\u0079pe":"function"}],"max_output_tokens":null,"background":false}`,
		`{"token_ids":[1,2],"sampling_params":{"max_tokens":3,"extra_args":{"kv_transfer_params":null},"n":1},"stream_options":{},"return_token_ids":true}`,
		`{"sampling_params":{},"kv_transfer_params":{}}`, `{"sampling_params":null}`, `{"sampling_params":{"a":[{}]},"sampling_params":1}`, `{}`,
	} {
		for api := Messages; api < APIs; api++ {
			f.Add([]byte(body), uint8(api))
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, which uint8) {
		api := Messages + API(which)%(APIs-Messages)
		checkValidity(t, api, body)
		var r Request
		if r.Parse(api, body) != nil {
			return
		}
		plain, prefill := join(r.AppendPlain(nil)), join(nixl{}.AppendPrefill(nil, &r, nil))
		r.Bypass()
		r.ForcedTool()
		r.Blocks(blockBytes)
		if !strict([]byte(plain)) || !strict([]byte(prefill)) {
			t.Fatalf("%q: decode gets %q, prefill gets %q", body, plain, prefill)
		}
		if doubledKeys(t, body) {
			return
		}
		want := withoutDoors(slow(t, body))
		if got := slow(t, []byte(plain)); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: decode gets %q", body, plain)
		}
		laterOracle(api, want)
		got := slow(t, []byte(prefill))
		if object(got["kv_transfer_params"])["do_remote_decode"] != true {
			t.Errorf("%q: prefill gets %q", body, prefill)
		}
		delete(got, "kv_transfer_params")
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%v %q: prefill gets %q", api, body, prefill)
		}
	})
}

// FuzzTypedEvents checks that only strict JSON passes, in one piece.
func FuzzTypedEvents(f *testing.F) {
	for _, api := range []API{Messages, Responses} {
		for _, ev := range cutEvents(testdata(f, api.String()+".sse.txt")) {
			f.Add(ev, api == Messages)
		}
	}
	f.Fuzz(func(t *testing.T, ev []byte, messages bool) {
		n := NextEventFrom(ev, 0)
		if n == 0 {
			return
		}
		ev = ev[:n]
		api := Responses
		if messages {
			api = Messages
		}
		e, data := api.Classify(ev), slowData(ev)
		switch ok := strict(data) && isObject(data); {
		case len(data) == 0 && e.Kind != EventComment, len(data) > 0 && !ok && !e.Malformed:
			t.Errorf("%q is %+v", ev, e)
		case ok && e.Transfers() && !e.Malformed:
			hidden := e.HideTransfers(ev)
			if after := api.Classify(hidden); after.Transfers() || after.Kind != e.Kind || after.Finished != e.Finished {
				t.Errorf("%q hidden is %q: %+v", ev, hidden, after)
			}
		}
	})
}
