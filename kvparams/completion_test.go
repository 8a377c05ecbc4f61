package kvparams

import (
	"errors"
	"strings"
	"testing"
)

func TestRecordedCompletions(t *testing.T) {
	for file, want := range map[string][2]int{"d-chat.json": {225, 6}, "d-completions.json": {220, 6}, "plain-chat-logprobs.json": {225, 3}} {
		body := testdata(t, file)
		var c Completion
		if err := c.Parse(body); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if u := c.Usage(); [2]int{u.Prompt, u.Completion} != want {
			t.Errorf("%s: usage %+v, want %v", file, u, want)
		}
		if got := join(c.AppendClient(nil, -1)); got != string(body) {
			t.Errorf("%s changed to %s", file, got)
		}
		edited := strings.Replace(string(body), `"cached_tokens":0`, `"cached_tokens":208`, 1)
		if edited == string(body) {
			t.Fatalf("%s reports no cached_tokens", file)
		}
		if got := join(c.AppendClient(nil, 208)); got != edited {
			t.Errorf("%s\n got %s\nwant %s", file, got, edited)
		}
	}
}

func TestCompletionForClient(t *testing.T) {
	const choices = `"choices":[{"index":0,"text":"\"kv_transfer_params\":{}","finish_reason":"stop"}]`
	const cached = `"usage":{"prompt_tokens":9,"prompt_tokens_details":{"x":1.50,"cached_tokens": 123 }}`
	cases := []struct{ name, in, want string }{
		{"kv before usage", `{"kv_transfer_params":{"remote_host":"h"},` + choices + `,` + cached + `}`,
			`{"kv_transfer_params":null,` + choices + `,"usage":{"prompt_tokens":9,"prompt_tokens_details":{"x":1.50,"cached_tokens": 7 }}}`},
		{"kv behind usage", ` {` + cached + `,` + choices + `, "kv_tr\u0061nsfer_params" : [1] } `,
			` {"usage":{"prompt_tokens":9,"prompt_tokens_details":{"x":1.50,"cached_tokens": 7 }},` + choices + `, "kv_tr\u0061nsfer_params" : null } `},
		{"encodings before kv and usage", `{"ec_transfer_params":{"8f3a":{"peer_host":"h"}},"kv_transfer_params":{"remote_host":"h"},` + cached + `,` + choices + `}`,
			`{"ec_transfer_params":null,"kv_transfer_params":null,"usage":{"prompt_tokens":9,"prompt_tokens_details":{"x":1.50,"cached_tokens": 7 }},` + choices + `}`},
		{"encodings behind kv and usage", `{"kv_transfer_params":[1],` + cached + `,` + choices + `,"ec_transf\u0065r_params":{"8f3a":{"peer_host":"h"}}}`,
			`{"kv_transfer_params":null,"usage":{"prompt_tokens":9,"prompt_tokens_details":{"x":1.50,"cached_tokens": 7 }},` + choices + `,"ec_transf\u0065r_params":null}`},
		{"encodings alone", `{` + choices + `,"ec_transfer_params":{},"kv_transfer_params":null}`, `{` + choices + `,"ec_transfer_params":null,"kv_transfer_params":null}`},
		{"no figure to replace", `{` + choices + `,"usage":{"prompt_tokens_details":null}}`, `{` + choices + `,"usage":{"prompt_tokens_details":null}}`},
		{"figure null", `{` + choices + `,"usage":{"prompt_tokens_details":{"cached_tokens":null}}}`,
			`{` + choices + `,"usage":{"prompt_tokens_details":{"cached_tokens":null}}}`},
		{"kv null", `{"kv_transfer_params":null,` + choices + `}`, `{"kv_transfer_params":null,` + choices + `}`},
		{"look-alikes", `{` + choices + `,"x":{"kv_transfer_params":1,"cached_tokens":5,"usage":{"prompt_tokens_details":{"cached_tokens":5}}}}`,
			`{` + choices + `,"x":{"kv_transfer_params":1,"cached_tokens":5,"usage":{"prompt_tokens_details":{"cached_tokens":5}}}}`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var p Completion
			if err := p.Parse([]byte(c.in)); err != nil {
				t.Fatal(err)
			}
			if got := join(p.AppendClient(nil, 7)); got != c.want {
				t.Errorf("\n got %s\nwant %s", got, c.want)
			}
			want := strings.Replace(c.want, `"cached_tokens": 7 `, `"cached_tokens": 123 `, 1)
			if got := join(p.AppendClient(nil, -1)); got != want {
				t.Errorf("figure left\n got %s\nwant %s", got, want)
			}
		})
	}
}

func TestBrokenCompletions(t *testing.T) {
	const ok = `{"finish_reason":"length"}`
	cases := []struct{ body, code string }{
		{`{"choices":[` + ok + `]}`, ""},
		{`{"choices":[` + ok + `,` + ok + `],"error":null}`, ""},
		{`{"choices":[{"finish_reason":"tool_calls","message":{"finish_reason":null}}]}`, ""},
		{``, CodeInvalidJSON}, {`[]`, CodeInvalidJSON}, {`{"choices":[` + ok + `]`, CodeInvalidJSON},
		{`{"choices":[` + ok + `]} x`, CodeInvalidJSON}, {`{"choices":[{"finish_reason":"stop}]}`, CodeInvalidJSON},
		{"{\"choices\":[{\"finish_reason\":\"stop\",\"text\":\"\xff\"}]}", CodeInvalidJSON},
		{`{}`, CodeIncomplete}, {`{"choices":[]}`, CodeIncomplete}, {`{"choices":null}`, CodeIncomplete}, {`{"choices":{}}`, CodeIncomplete},
		{`{"choices":[` + ok + `,{}]}`, CodeIncomplete}, {`{"choices":[` + ok + `,null]}`, CodeIncomplete},
		{`{"choices":[{"finish_reason":null}]}`, CodeIncomplete}, {`{"choices":[{"finish_reason":"error"}]}`, CodeIncomplete},
		{`{"choices":[` + ok + `,{"finish_reason":"abort"}]}`, CodeIncomplete}, {`{"choices":[{"finish_reason":"\u0061bort"}]}`, CodeIncomplete},
		{`{"choices":[{"finish_reason":""}]}`, CodeIncomplete},
		{`{"choices":[{"finish_reason":1}]}`, CodeIncomplete}, {`{"choices":[{"finish_reason":"stop","finish_reason":null}]}`, CodeIncomplete},
		{`{"choices":[{"finish_reason":"stop","finish_reason":"length"}]}`, CodeIncomplete},
		{`{"choices":[{"message":{"finish_reason":"stop"}}]}`, CodeIncomplete},
		{`{"choices":[{"text":"\"finish_reason\":\"stop\""}]}`, CodeIncomplete},
		{`{"choices":[],"choices":[` + ok + `]}`, CodeIncomplete},
		{`{"choices":[` + ok + `],"error":{"message":"` + marker + `"}}`, CodeIncomplete},
		{`{"choices":[` + ok + `],"error":"` + marker + `"}`, CodeIncomplete},
		{`{"choices":[` + ok + `],"kv_transfer_params":{},"kv_transfer_params":{}}`, CodeIncomplete},
		{`{"choices":[` + ok + `],"ec_transfer_params":{},"ec_transfer_params":{}}`, CodeIncomplete},
		{`{"choices":[` + ok + `],"usage":{"prompt_tokens":1},"usage":{}}`, CodeIncomplete},
		{string(testdata(t, "d-chat-foreign-engine.json")), CodeIncomplete},
	}
	var c Completion
	two := []byte(`{"choices":[` + ok + `,` + ok + `]}`)
	if c.ParseAs(Chat, two, 2) != nil || c.ParseAs(Chat, two, 3) == nil || c.ParseAs(Generate, two, 3) == nil {
		t.Error("an answer of two choices is whole if three were asked for, or is not if two were")
	}
	for _, k := range cases {
		err := c.Parse([]byte(k.body))
		var e *AnswerError
		switch {
		case k.code == "" && err != nil:
			t.Errorf("%s: %v", k.body, err)
		case k.code != "" && (!errors.As(err, &e) || e.Code != k.code):
			t.Errorf("%s: got %v, want %s", k.body, err, k.code)
		case e != nil && strings.Contains(e.Error(), marker):
			t.Errorf("message holds a value: %v", e)
		}
	}
}
