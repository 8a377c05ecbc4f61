package kvparams

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"testing"
)

func FuzzRequest(f *testing.F) {
	for _, body := range jsonCases {
		f.Add([]byte(body), false)
	}
	f.Add(chatBody(600), true)
	for _, body := range []string{
		`{"model":"m","prompt":[[1,2],[3]],"n":2,"stream":true,"stream_options":{"include_usage":true},"max_tokens":5,"min_tokens":2}`,
		`{"kv_transfer_params":null,"a":1,"vllm_xargs":{"kv_transfer_params":{},"x":1},"sampling_params":{"extra_args":{"ec_transfer_params":null}}}`,
		`{"max_\u0074okens":1.50,"max_completion_tokens":null,"tool_choice":"required","echo":true,"disagg_a":{ } }`,
	} {
		f.Add([]byte(body), true)
		f.Add([]byte(body), false)
	}
	f.Fuzz(func(t *testing.T, body []byte, chat bool) {
		api := Completions
		if chat {
			api = Chat
		}
		checkValidity(t, api, body)
		var r Request
		if r.Parse(api, body) == nil {
			checkBodies(t, &r, api, body)
			checkFacts(t, &r, api, slow(t, body))
		}
	})
}

// FuzzPrompt looks for bodies whose images, sounds and videos overlap or are not in the prompt, on any API.
func FuzzPrompt(f *testing.F) {
	apis := [...]API{Chat, Completions, Messages, Responses, Generate}
	for api := range apis {
		f.Add([]byte(`{"messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"image_url","image_url":{"url":"y"}}]}]}`), api)
		f.Add([]byte(`{"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"image"},{"type":"document"}]}]}],"system":"s"}`), api)
		f.Add([]byte(`{"messages":[{"content":[{"type":"image","content":[{"type":"image"}]},{"image_url":1}]}]}`), api)
		f.Add([]byte(`{"input":[{"content":[{"file_data":"x","type":"input_file"}]},{"type":"function_call_output","output":[{"image_url":"x"}]}]}`), api)
	}
	f.Fuzz(func(t *testing.T, body []byte, api int) {
		var r Request
		if r.Parse(apis[uint(api)%uint(len(apis))], body) != nil {
			return
		}
		at := r.promptSpan().at
		for _, m := range r.parts {
			if m.at < at || m.end < m.at || m.end > r.promptSpan().end {
				t.Fatalf("%q: %v is not in the prompt, or overlaps another", body, m)
			}
			at = m.end
		}
		size, media := r.PromptText()
		if size < 0 || media == 0 && size != r.PromptBytes() {
			t.Errorf("%q: %d bytes of text, %d media", body, size, media)
		}
		if n := len(r.Blocks(blockBytes)); n > r.PromptBytes()/blockBytes+mediaBlocks*media {
			t.Errorf("%q: %d blocks", body, n)
		}
	})
}

// checkBodies fails unless each body means the request with its edits, and holds only the proxy's
// KV parameters.
func checkBodies(t *testing.T, r *Request, api API, body []byte) {
	in := slow(t, body)
	for name, v := range in {
		if kvDoor([]byte(name)) && !voidValue(v) {
			t.Fatalf("%q accepted with %s", body, name)
		}
	}
	plain, h := withoutDoors(in), Handle{Raw: []byte(goodHandle)}
	if len(r.marks) == 0 && join(r.AppendPlain(nil)) != string(body) {
		t.Errorf("plain body of %q changed", body)
	}
	decode := maps.Clone(plain)
	decode["kv_transfer_params"] = any(slow(t, h.Raw))
	drain := oneTokenOracle(t, api, in, h.Raw)
	drained := nixl{}.AppendDrain(nil, r, h, "a-1")
	drain["cache_salt"] = saltOf(t, []byte(join(drained)))
	for _, c := range []struct {
		name string
		got  Segments
		want map[string]any
	}{
		{"plain", r.AppendPlain(nil), plain},
		{"decode", nixl{}.AppendDecode(nil, r, h, nil), decode},
		{"prefill", nixl{}.AppendPrefill(nil, r, nil), oneTokenOracle(t, api, in, nixlPrefill)},
		{"drain", drained, drain},
	} {
		got := []byte(join(c.got))
		if !strict(got) {
			t.Fatalf("%s body of %q is no strict JSON: %q", c.name, body, got)
		}
		if m := slow(t, got); !reflect.DeepEqual(m, c.want) {
			t.Errorf("%s body of %q\n got %v\nwant %v", c.name, body, m, c.want)
		}
		if c.got.Len() != len(got) {
			t.Errorf("%s body: Len %d of %d", c.name, c.got.Len(), len(got))
		}
	}
	if release := join(nixl{}.AppendRelease(nil, r, h)); !strict([]byte(release)) {
		t.Errorf("release body of %q: %q", body, release)
	}
}

// checkFacts fails unless a request that may be disaggregated is also fine as encoding/json reads
// it.
func checkFacts(t *testing.T, r *Request, api API, in map[string]any) {
	if want := in["stream"] == true; r.Stream() != want {
		t.Errorf("Stream %v", r.Stream())
	}
	if want := object(in["stream_options"])["include_usage"] == true; r.IncludeUsage() != want {
		t.Errorf("IncludeUsage %v", r.IncludeUsage())
	}
	if want, _ := in["model"].(string); string(r.Model()) != want {
		t.Errorf("Model %q, want %q", r.Model(), want)
	}
	if tokens, _ := r.PromptTokens(4, 1000); r.Choices() < 1 || r.PromptBytes() < 0 || tokens < 0 {
		t.Errorf("Choices %d, PromptBytes %d, PromptTokens %d", r.Choices(), r.PromptBytes(), tokens)
	}
	reason := r.Bypass()
	if reason != ReasonNone {
		if reason >= Reasons {
			t.Errorf("unknown reason %d", reason)
		}
		return
	}
	for name, fine := range map[string][]any{
		"n": {nil, json.Number("1")}, "best_of": {nil, json.Number("1")}, "use_beam_search": {nil, false}, "prompt_logprobs": {nil},
		"previous_response_id": {nil, false}, "background": {nil, false}, "stream": {nil, true, false},
	} {
		if !slices.ContainsFunc(fine, func(v any) bool { return reflect.DeepEqual(v, in[name]) }) {
			t.Errorf("disaggregated with %s %v", name, in[name])
		}
	}
	if v := in["max_tokens"]; v != nil {
		limit, _ := v.(json.Number)
		if n, err := limit.Int64(); err != nil || n < 1 {
			t.Errorf("disaggregated with max_tokens %v: %v", v, err)
		}
	}
	if list, ok := in["prompt"].([]any); ok && api == Completions && len(list) > 1 {
		for _, v := range list {
			if _, ok := v.(json.Number); !ok {
				t.Errorf("disaggregated with prompts %v", list)
			}
		}
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(testdata(f, "p-chat.json"))
	f.Add(testdata(f, "p-completions.json"))
	f.Add([]byte(`{"kv_transfer_params":` + goodHandle + `}`))
	f.Add([]byte(`{"kv_\u0074ransfer_params":{ },"usage":{"prompt_tokens":7,"prompt_tokens_details":{"cached_tokens":5}}}`))
	f.Add([]byte(`{"kv_transfer_params":{"remote_block_ids":[1,2],"do_remote_prefill":true,"remote_port":1}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := nixl{}.ParseAnswer(body)
		if err != nil {
			if a.Handle.Raw != nil {
				t.Error("a handle beside an error")
			}
			return
		}
		if !strict(body) || !isObject(body) {
			t.Fatalf("%q accepted, but is no strict JSON object", body)
		}
		var raw map[string]json.RawMessage
		if err := json.Unmarshal(body, &raw); err != nil {
			t.Fatal(err)
		}
		kv := slow(t, body)["kv_transfer_params"]
		if a.Handle.None() != voidValue(kv) {
			t.Fatalf("%q: None %v", body, a.Handle.None())
		}
		if a.Handle.None() {
			return
		}
		if !bytes.Equal(a.Handle.Raw, raw["kv_transfer_params"]) {
			t.Errorf("handle %q, want %q", a.Handle.Raw, raw["kv_transfer_params"])
		}
		checkHandle(t, a.Handle, object(kv))
	})
}

func checkHandle(t *testing.T, h Handle, kv map[string]any) {
	blocks := 0
	list, _ := kv["remote_block_ids"].([]any)
	for _, v := range list {
		switch group := v.(type) {
		case json.Number:
			blocks++
		case []any:
			blocks += len(group)
			if len(group) == 0 {
				t.Errorf("an empty group in %v", list)
			}
		default:
			t.Errorf("block ids %v", list)
		}
	}
	port, _ := kv["remote_port"].(json.Number)
	if n, err := port.Int64(); err != nil || n < 1 || n > 65535 || int(n) != h.RemotePort {
		t.Errorf("port %v, got %d", kv["remote_port"], h.RemotePort)
	}
	if kv["do_remote_prefill"] != true || blocks == 0 || blocks != h.Blocks {
		t.Errorf("handle %+v of %v", h, kv)
	}
	request, _ := kv["remote_request_id"].(string)
	if kv["remote_engine_id"] != string(h.EngineID) || kv["remote_host"] != string(h.RemoteHost) || request == "" ||
		len(h.EngineID) == 0 || len(h.RemoteHost) == 0 {
		t.Errorf("handle %+v of %v", h, kv)
	}
}

func FuzzSSE(f *testing.F) {
	for _, stream := range testdataAll(f, "*.sse") {
		f.Add(stream, uint8(7))
		f.Add(bytes.ReplaceAll(stream, []byte("\n"), []byte("\r\n")), uint8(1))
	}
	f.Add([]byte("\r\n\n: x\n\r\ndata: {\"choices\":[\ndata: ]}\n\nid: 1\ndata:[DONE]\r\n\r\ndata: {\"error\":null"), uint8(2))
	f.Fuzz(func(t *testing.T, stream []byte, step uint8) {
		whole, rest := cutAll(stream, len(stream)+1)
		parts, left := cutAll(stream, int(step)+1)
		if !slices.Equal(whole, parts) || rest != left {
			t.Fatalf("%q in steps of %d: %q rest %q, want %q rest %q", stream, step+1, parts, left, whole, rest)
		}
		size := len(rest)
		for _, ev := range whole {
			size += len(ev)
			checkEvent(t, []byte(ev))
		}
		if size != len(stream) {
			t.Errorf("%d of %d bytes", size, len(stream))
		}
	})
}

func checkEvent(t *testing.T, ev []byte) {
	got := Classify(ev)
	got.text, got.ids, got.in = 0, 0, places{} // see TestTokensOfAnEvent and proxy/carry
	if start, end, ok := cachedTokensSpan(ev); ok {
		if _, plain := integer(ev[start:end]); !plain {
			t.Errorf("span %q of %q", ev[start:end], ev)
		}
	}
	data := slowData(ev)
	var want Event
	switch {
	case bytes.HasPrefix(ev, []byte("\xef")) || bytes.Contains(bytes.ReplaceAll(ev, []byte("\r\n"), nil), []byte("\r")):
		want = Event{Kind: EventContent, Malformed: true}
	case len(data) == 0:
		want = Event{Kind: EventComment}
	case string(data) == "[DONE]":
		want = Event{Kind: EventDone}
	case !strict(data) || !isObject(data):
		want = Event{Kind: EventContent, Malformed: true}
	case doubledKeys(t, data):
		return
	default:
		want = slowClassify(t, data)
	}
	if got != want {
		t.Errorf("%q\n got %+v\nwant %+v", ev, got, want)
	}
}

// slowData is the data of an event by the letter of the format, for lines that end in LF or CRLF.
func slowData(ev []byte) []byte {
	var lines [][]byte
	for line := range bytes.SplitSeq(ev, []byte("\n")) {
		line = bytes.TrimSuffix(line, []byte("\r"))
		if v, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			lines = append(lines, bytes.TrimPrefix(v, []byte(" ")))
		}
	}
	return bytes.Join(lines, []byte("\n"))
}

func FuzzCompletion(f *testing.F) {
	for _, name := range []string{"d-chat.json", "d-completions.json", "plain-chat-logprobs.json", "p-chat.json", "d-chat-foreign-engine.json"} {
		f.Add(testdata(f, name), 208)
	}
	f.Add([]byte(`{"usage":{"prompt_tokens_details":{"cached_tokens":1}},"kv_transfer_params":[1],"choices":[{"finish_reason":"stop"}],"error":null}`), 3)
	f.Add([]byte(`{"kv_transfer_params":{},"usage":{"prompt_tokens_details":{"cached_tokens":1}},"choices":[{"finish_reason":"abort"}]}`), -1)
	f.Fuzz(func(t *testing.T, body []byte, cached int) {
		var c Completion
		if c.Parse(body) != nil {
			return
		}
		if !strict(body) {
			t.Fatalf("%q accepted, but is no strict JSON", body)
		}
		in := slow(t, body)
		choices, _ := in["choices"].([]any)
		if len(choices) == 0 || in["error"] != nil {
			t.Errorf("%q accepted", body)
		}
		for _, v := range choices {
			if reason, ok := object(v)["finish_reason"].(string); !ok || reason == "" || reason == "error" || reason == "abort" {
				t.Errorf("%q accepted with choice %v", body, v)
			}
		}
		out := []byte(join(c.AppendClient(nil, cached)))
		if !strict(out) {
			t.Fatalf("client body %q", out)
		}
		if doubledKeys(t, body) {
			return
		}
		if got := slow(t, out); !reflect.DeepEqual(got, clientOracle(in, cached)) {
			t.Errorf("client body of %q\n got %q", body, out)
		}
	})
}

// clientOracle edits an answer in place as AppendClient does.
func clientOracle(in map[string]any, cached int) map[string]any {
	if in["kv_transfer_params"] != nil {
		in["kv_transfer_params"] = nil
	}
	details := object(object(in["usage"])["prompt_tokens_details"])
	if n, ok := details["cached_tokens"].(json.Number); ok && cached >= 0 {
		if v, plain := integer([]byte(n)); plain && v >= 0 {
			details["cached_tokens"] = json.Number(strconv.Itoa(cached))
		}
	}
	return in
}
