package kvparams

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

const marker = "s3cr3tvalue" // stands in values; no error may hold it

func TestParseErrors(t *testing.T) {
	cases := []struct {
		name, body, code, param string
	}{
		{"not JSON", `{"prompt":"` + marker + `",}`, CodeInvalidJSON, ""},
		{"list", `["` + marker + `"]`, CodeInvalidType, ""},
		{"text", `"` + marker + `"`, CodeInvalidType, ""},
		{"null", `null`, CodeInvalidType, ""},
		{"model number", `{"model":7}`, CodeInvalidType, "model"},
		{"model list", `{"model":["` + marker + `"]}`, CodeInvalidType, "model"},
		{"kv", `{"kv_transfer_params":{"remote_host":"` + marker + `"}}`, CodeUnsupported, "kv_transfer_params"},
		{"kv escaped", `{"kv_transfer_p\u0061rams":{"a":1}}`, CodeUnsupported, "kv_transfer_params"},
		{"kv string", `{"kv_transfer_params":"` + marker + `"}`, CodeUnsupported, "kv_transfer_params"},
		{"kv list", `{"kv_transfer_params":[]}`, CodeUnsupported, "kv_transfer_params"},
		{"kv false", `{"kv_transfer_params":false}`, CodeUnsupported, "kv_transfer_params"},
		{"ec", `{"ec_transfer_params":{"a":{}}}`, CodeUnsupported, "ec_transfer_params"},
		{"bootstrap_host", `{"bootstrap_host":"` + marker + `"}`, CodeUnsupported, "bootstrap_host"},
		{"bootstrap_port", `{"bootstrap_port":1}`, CodeUnsupported, "bootstrap_port"},
		{"bootstrap_room", `{"bootstrap_room":1}`, CodeUnsupported, "bootstrap_room"},
		{"disagg", `{"disagg_prefill_dp_rank":0}`, CodeUnsupported, "disagg_prefill_dp_rank"},
		{"xargs kv", `{"vllm_xargs":{"a":1,"kv_transfer_params":"` + marker + `"}}`, CodeUnsupported, "vllm_xargs.kv_transfer_params"},
		{"xargs kv escaped", `{"vllm_\u0078args":{"\u006bv_transfer_params":[1]}}`, CodeUnsupported, "vllm_xargs.kv_transfer_params"},
		{"xargs ec", `{"vllm_xargs":{"ec_transfer_params":1}}`, CodeUnsupported, "vllm_xargs.ec_transfer_params"},
		{"extra_args kv", `{"sampling_params":{"a":[],"extra_args":{"b":{},"kv_transfer_params":{"a":1}}}}`, CodeUnsupported,
			"sampling_params.extra_args.kv_transfer_params"},
		{"extra_args ec", `{"sampling_params":{"extra_args":{"ec_transfer_params":0}}}`, CodeUnsupported,
			"sampling_params.extra_args.ec_transfer_params"},
		{"denied", `{"priority":1}`, CodeUnsupported, "priority"},
		{"denied escaped", `{"\u0070riority":1}`, CodeUnsupported, "priority"},
		{"17 null KV fields", `{` + strings.TrimSuffix(manyNulls(17), ",") + `}`, CodeUnsupported, "disagg_16"},
		{"include_usage twice", `{"stream_options":{"include_usage":true,"include_us\u0061ge":true}}`, CodeDuplicate, "stream_options.include_usage"},
		{"continuous twice", `{"stream_options":{"continuous_usage_stats":true,"continuous_usage_stats":true}}`, CodeDuplicate,
			"stream_options.continuous_usage_stats"},
		{"extra_args twice", `{"sampling_params":{"extra_args":1,"extra_args":{}}}`, CodeDuplicate, "sampling_params.extra_args"},
		{"xargs kv twice", `{"vllm_xargs":{"kv_transfer_params":null,"kv_tr\u0061nsfer_params":{}}}`, CodeDuplicate, "vllm_xargs.kv_transfer_params"},
		{"disagg twice", `{"disagg_a":null,"disagg_b":null,"disagg_\u0061":null}`, CodeDuplicate, "disagg_a"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := Request{Deny: []string{"priority"}}
			err := r.Parse(Chat, []byte(c.body))
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("got %v, want an *Error", err)
			}
			if e.Code != c.code || e.Param != c.param {
				t.Errorf("got %s %q, want %s %q", e.Code, e.Param, c.code, c.param)
			}
			if strings.Contains(e.Error(), marker) {
				t.Errorf("message holds a value: %s", e)
			}
			if c.param != "" && !strings.Contains(e.Error(), c.param) {
				t.Errorf("message does not name %s: %s", c.param, e)
			}
		})
	}
}

func manyNulls(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"disagg_%d":null,`, i)
	}
	return b.String()
}

// A field that is read or edited may occur only once, whatever its values are and however its name
// is written.
func TestDuplicates(t *testing.T) {
	known := []string{"model", "messages", "prompt", "prompt_embeds", "stream", "stream_options", "max_tokens",
		"max_completion_tokens", "min_tokens", "n", "best_of", "use_beam_search", "prompt_logprobs", "echo", "logprobs",
		"tool_choice", "previous_response_id", "background", "vllm_xargs", "sampling_params", "return_token_ids", "kv_transfer_params",
		"ec_transfer_params", "bootstrap_host", "bootstrap_port", "bootstrap_room", "disagg_x"}
	for _, name := range known {
		escaped := fmt.Sprintf(`\u%04x%s`, name[0], name[1:])
		for _, second := range []string{name, escaped} {
			body := fmt.Sprintf(`{"%s":null,"a":{"%s":null},"%s":null}`, name, name, second)
			var r Request
			err := r.Parse(Completions, []byte(body))
			var e *Error
			if !errors.As(err, &e) || e.Code != CodeDuplicate || e.Param != name {
				t.Errorf("%s: got %v, want %s of %s", body, err, CodeDuplicate, name)
			}
		}
	}
	r := parse(t, Chat, `{"user":"a","user":"b","temperature":1,"temperature":2}`)
	if got := join(r.AppendPlain(nil)); got != `{"user":"a","user":"b","temperature":1,"temperature":2}` {
		t.Errorf("other duplicates: %s", got)
	}
}

// Forbidden fields with null or {} are removed, at every place and with exactly one comma. Nothing
// else changes.
func TestPlainBody(t *testing.T) {
	cases := []struct{ name, in, want string }{
		{"untouched", ` { "a" : 1.50 , "messages":[] } `, ` { "a" : 1.50 , "messages":[] } `},
		{"only", `{"kv_transfer_params":null}`, `{}`},
		{"only with space", `{ "kv_transfer_params" : { } }`, `{  }`},
		{"first", `{"kv_transfer_params":{} , "a":1}`, `{"a":1}`},
		{"middle", `{"a":1 , "kv_transfer_params":null , "b":2}`, `{"a":1  , "b":2}`},
		{"last", "{\"a\":1,\n\"kv_transfer_params\":null\n}", "{\"a\":1\n}"},
		{"all of several", `{"kv_transfer_params":null,"ec_transfer_params":{},"bootstrap_room":null}`, `{}`},
		{"first two", `{"kv_transfer_params":null,"ec_transfer_params":{},"a":1}`, `{"a":1}`},
		{"last two", `{"a":1,"kv_transfer_params":null,"ec_transfer_params":{}}`, `{"a":1}`},
		{"around", `{"disagg_a":null,"a":1,"disagg_b":null,"b":2,"disagg_c":null}`, `{"a":1,"b":2}`},
		{"nested only", `{"vllm_xargs":{"kv_transfer_params":null}}`, `{"vllm_xargs":{}}`},
		{"nested last", `{"vllm_xargs":{"k":1,"kv_transfer_params":null}}`, `{"vllm_xargs":{"k":1}}`},
		{"nested first", `{"vllm_xargs":{"ec_transfer_params":{},"k":1}}`, `{"vllm_xargs":{"k":1}}`},
		{"deep", `{"sampling_params":{"x":1,"extra_args":{"kv_transfer_params":null,"k":[1]}}}`,
			`{"sampling_params":{"x":1,"extra_args":{"k":[1]}}}`},
		{"all doors at once", `{"kv_transfer_params":null,"vllm_xargs":{"kv_transfer_params":null,"ec_transfer_params":null},"ec_transfer_params":null}`,
			`{"vllm_xargs":{}}`},
		{"look-alikes stay", `{"a":{"kv_transfer_params":{"x":1}},"s":"\"kv_transfer_params\":1","KV_transfer_params":1,"sampling_params":{"kv_transfer_params":1},"vllm_xargs":{"extra_args":{"kv_transfer_params":1}}}`,
			`{"a":{"kv_transfer_params":{"x":1}},"s":"\"kv_transfer_params\":1","KV_transfer_params":1,"sampling_params":{"kv_transfer_params":1},"vllm_xargs":{"extra_args":{"kv_transfer_params":1}}}`},
		{"escaped name", `{"a":1,"kv_transfer_\u0070arams":null}`, `{"a":1}`},
		{"other types of the outer fields", `{"vllm_xargs":"kv_transfer_params","sampling_params":[1]}`, `{"vllm_xargs":"kv_transfer_params","sampling_params":[1]}`},
	}
	h := Handle{Raw: []byte(`{"h":1.50}`)}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := parse(t, Chat, c.in)
			if got := join(r.AppendPlain(nil)); got != c.want {
				t.Errorf("plain body\n got %s\nwant %s", got, c.want)
			}
			if got := join(nixl{}.AppendDecode(nil, r, Handle{}, nil)); got != c.want {
				t.Errorf("decode body without a handle\n got %s\nwant %s", got, c.want)
			}
			want := withoutDoors(slow(t, []byte(c.in)))
			if got := slow(t, []byte(join(r.AppendPlain(nil)))); !reflect.DeepEqual(got, want) {
				t.Errorf("plain body means %v, want %v", got, want)
			}
			checkDecode(t, c.in, c.want, join(nixl{}.AppendDecode(nil, r, h, nil)))
		})
	}
}

// checkDecode fails unless the decode body is the plain body with the handle as its last member.
func checkDecode(t testing.TB, in, plain, got string) {
	t.Helper()
	brace := strings.LastIndexByte(plain, '}')
	member := `"kv_transfer_params":{"h":1.50}`
	if len(slow(t, []byte(plain))) > 0 {
		member = "," + member
	}
	if want := plain[:brace] + member + plain[brace:]; got != want {
		t.Errorf("decode body of %s\n got %s\nwant %s", in, got, want)
	}
}

func TestFacts(t *testing.T) {
	type facts struct {
		Stream, Usage, Forced          bool
		Choices, PromptBytes, PromptIn int
		Model                          string
	}
	cases := []struct {
		name string
		api  API
		body string
		want facts
	}{
		{"empty", Chat, `{}`, facts{Choices: 1}},
		{"chat", Chat, `{"model":"m","messages":[{"a":1}],"stream":true,"stream_options":{"include_usage":true}}`,
			facts{Stream: true, Usage: true, Choices: 1, PromptBytes: 9, PromptIn: 2, Model: "m"}},
		{"not literally true", Chat, `{"stream":"true","stream_options":{"include_usage":1}}`, facts{Choices: 1}},
		{"usage in the wrong place", Chat, `{"stream_options":{"a":{"include_usage":true}},"include_usage":true}`, facts{Choices: 1}},
		{"escaped model", Chat, `{"model":"a\/\u00e9\ud83d\ude00"}`, facts{Choices: 1, Model: "a/é😀"}},
		{"model null", Chat, `{"model":null}`, facts{Choices: 1}},
		{"n", Chat, `{"n":3}`, facts{Choices: 3}},
		{"n text", Chat, `{"n":"3"}`, facts{Choices: 3}},
		{"n in quotes, spaced", Chat, `{"n":" 3 "}`, facts{Choices: 3}},
		{"n float", Chat, `{"n":2.0}`, facts{Choices: 2}},
		{"n exponent", Chat, `{"n":2e0}`, facts{Choices: 2}},
		{"n fraction", Chat, `{"n":2.5}`, facts{Choices: 1}},
		{"n NaN", Chat, `{"n":"nan"}`, facts{Choices: 1}},
		{"n list", Chat, `{"n":[2]}`, facts{Choices: 1}},
		{"n 0", Chat, `{"n":0}`, facts{Choices: 1}},
		{"n negative", Chat, `{"n":-2}`, facts{Choices: 1}},
		{"n huge", Completions, `{"n":99999999999,"prompt":["a","b"]}`, facts{Choices: 1<<31 - 1, PromptBytes: 9, PromptIn: 2}},
		{"n beyond int64", Chat, `{"n":99999999999999999999999}`, facts{Choices: 1}},
		{"n times prompts", Completions, `{"n":2,"prompt":["aaaa","b","c"]}`, facts{Choices: 6, PromptBytes: 16, PromptIn: 4}},
		{"ids", Completions, `{"prompt":[1, 2,3]}`, facts{Choices: 1, PromptBytes: 8, PromptIn: 3}},
		{"one list of ids", Completions, `{"prompt":[[1,2,3,4]]}`, facts{Choices: 1, PromptBytes: 11, PromptIn: 4}},
		{"lists of ids", Completions, `{"prompt":[[1,2],[3]]}`, facts{Choices: 2, PromptBytes: 11, PromptIn: 3}},
		{"mixture", Completions, `{"prompt":[1,"a"]}`, facts{Choices: 2, PromptBytes: 7, PromptIn: 1}},
		{"list with text inside", Completions, `{"prompt":[[1,"a"]]}`, facts{Choices: 1, PromptBytes: 9, PromptIn: 2}},
		{"no prompts", Completions, `{"prompt":[]}`, facts{Choices: 1, PromptBytes: 2}},
		{"text", Completions, `{"prompt":"12345678"}`, facts{Choices: 1, PromptBytes: 10, PromptIn: 2}},
		{"other route's field", Completions, `{"messages":[1,2,3,4,5,6]}`, facts{Choices: 1}},
		{"chat has no prompt", Chat, `{"prompt":["a","b"],"messages":[]}`, facts{Choices: 1, PromptBytes: 2}},
		{"embeds", Completions, `{"prompt_embeds":["a","b"]}`, facts{Choices: 2}},
		{"required", Chat, `{"tool_choice":"required"}`, facts{Choices: 1, Forced: true}},
		{"required escaped", Chat, `{"tool_choice":"r\u0065quired"}`, facts{Choices: 1, Forced: true}},
		{"named", Chat, `{"tool_choice":{"type":"function"}}`, facts{Choices: 1, Forced: true}},
		{"auto", Chat, `{"tool_choice":"auto"}`, facts{Choices: 1}},
		{"tool null", Chat, `{"tool_choice":null}`, facts{Choices: 1}},
		{"no tools on completions", Completions, `{"tool_choice":"required"}`, facts{Choices: 1}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := parse(t, c.api, c.body)
			tokens, _ := r.PromptTokens(4, 1000)
			got := facts{r.Stream(), r.IncludeUsage(), r.ForcedTool(), r.Choices(), r.PromptBytes(), tokens, string(r.Model())}
			if got != c.want {
				t.Errorf("%s\n got %+v\nwant %+v", c.body, got, c.want)
			}
		})
	}
}

// Nothing of one body is left for the next.
func TestReuse(t *testing.T) {
	r := parse(t, Completions, `{"model":"a\u0062","n":2,"stream":true,"stream_options":{"include_usage":true},"max_tokens":0,`+
		`"prompt":["a","b"],"prompt_embeds":["a","b"],"kv_transfer_params":null,"vllm_xargs":{"kv_transfer_params":null}}`)
	if err := r.Parse(Chat, []byte(`{"z":1}`)); err != nil {
		t.Fatal(err)
	}
	if tokens, _ := r.PromptTokens(4, 1000); r.Model() != nil || r.Stream() || r.IncludeUsage() || r.Choices() != 1 || tokens != 0 || r.Bypass() != ReasonNone {
		t.Errorf("left over: %+v", r)
	}
	if got := join(r.AppendPlain(nil)); got != `{"z":1}` {
		t.Errorf("plain body %s", got)
	}
	r.Reset()
	if r.s.b != nil || r.Model() != nil {
		t.Error("Reset keeps the body")
	}
	if err := r.Parse(Chat, []byte(`{"a":`)); err == nil {
		t.Error("cut body accepted")
	}
}

func TestParseAllocates(t *testing.T) {
	body := chatBody(4 << 10)
	escaped := []byte(`{"m\u006fdel":"\u0061","kv_transfer_params":null,"prompt":[[1,2,3]],"max_t\u006fkens":7}`)
	var r Request
	var leg Leg
	segs := make(Segments, 0, 32)
	run := func() {
		for _, b := range [][]byte{body, escaped} {
			if err := r.Parse(Completions, b); err != nil {
				t.Fatal(err)
			}
			r.Bypass()
			segs = nixl{}.AppendPrefill(segs[:0], &r, &leg)
			segs = nixl{}.AppendDecode(segs[:0], &r, Handle{Raw: body[:2]}, &leg)
		}
	}
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations a request, want 0", n)
	}
}
