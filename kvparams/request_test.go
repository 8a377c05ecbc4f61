package kvparams

import (
	"bytes"
	"testing"
)

func join(s Segments) string { return string(bytes.Join(s, nil)) }

func parse(t testing.TB, api API, body string) *Request {
	t.Helper()
	r := &Request{}
	if err := r.Parse(api, []byte(body)); err != nil {
		t.Fatalf("parse %s: %v", body, err)
	}
	return r
}

func TestPrefillBody(t *testing.T) {
	const kv = `"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,` +
		`"remote_block_ids":null,"remote_host":null,"remote_port":null}`
	const chatTail = `"max_tokens":1,"max_completion_tokens":1,"min_tokens":1,` + kv
	const completionsTail = `"max_tokens":1,"min_tokens":1,` + kv
	cases := []struct {
		name string
		api  API
		in   string
		want string
	}{
		{"empty object", Chat, `{}`, `{` + chatTail + `}`},
		{"empty object with space", Completions, ` { } `, ` { ` + completionsTail + `} `},
		{"nothing to replace", Completions, `{"prompt":"a"}`, `{"prompt":"a",` + completionsTail + `}`},
		{"all replaced in place", Chat,
			`{"min_tokens":3,"max_completion_tokens":7,"stream": true ,"max_tokens":9,"messages":[]}`,
			`{"min_tokens":1,"max_completion_tokens":1,"stream": false ,"max_tokens":1,"messages":[],` + kv + `}`},
		{"completions keeps max_completion_tokens only if sent", Completions,
			`{"max_completion_tokens":7,"prompt":"a"}`,
			`{"max_completion_tokens":1,"prompt":"a",` + completionsTail + `}`},
		{"stream_options first", Chat, `{"stream_options":{"include_usage":true},"stream":true}`,
			`{"stream":false,` + chatTail + `}`},
		{"stream_options middle", Chat, `{"stream":true , "stream_options" : {} , "a":1}`,
			`{"stream":false  , "a":1,` + chatTail + `}`},
		{"stream_options last", Chat, "{\"stream\":true,\n\"stream_options\":null\n}", "{\"stream\":false\n," + chatTail + `}`},
		{"stream_options only", Chat, `{ "stream_options":null }`, `{  ` + chatTail + `}`},
		{"stream_options and null KV side by side", Chat,
			`{"kv_transfer_params":null,"stream_options":null, "ec_transfer_params":{ } ,"a":1.50,"disagg_id":null}`,
			`{"a":1.50,` + chatTail + `}`},
		{"bytes stay", Completions,
			`{ "z" : 1.50 , "seed":9007199254740993,"prompt":"\u00e9\"\n\\ \/ é","a":-0.0e+10, "m\u0061x_tokens" : 5 }`,
			`{ "z" : 1.50 , "seed":9007199254740993,"prompt":"\u00e9\"\n\\ \/ é","a":-0.0e+10, "m\u0061x_tokens" : 1 ,` +
				`"min_tokens":1,` + kv + `}`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := parse(t, c.api, c.in)
			got := nixl{}.AppendPrefill(nil, r, nil)
			if join(got) != c.want {
				t.Errorf("prefill body\n got %s\nwant %s", join(got), c.want)
			}
			if got.Len() != len(c.want) {
				t.Errorf("Len %d, want %d", got.Len(), len(c.want))
			}
		})
	}
}
