package kvparams

import (
	"strings"
	"testing"
)

// decodeOf is the decode leg of a chat after a prefill that answered with ids and usage.
func decodeOf(t *testing.T, connector, ids, usage string) (d Dialect, r *Request, h Handle, body string) {
	t.Helper()
	d, ok := Reuse{From: 8, Answer: 1 << 20}.Lookup(connector)
	if !ok {
		t.Fatal("unknown")
	}
	ans, err := d.ParseAnswer([]byte(`{"usage":{"prompt_tokens":` + usage + `},` + ids + `"kv_transfer_params":` + goodHandle + `}`))
	if err != nil {
		t.Fatal(err)
	}
	r = parse(t, Chat, `{"messages":[{"role":"user","content":"abcdefgh"}],"max_tokens":5}`)
	return d, r, ans.Handle, join(d.AppendDecode(nil, r, ans.Handle, &Leg{ID: "a-1"}))
}

func TestPromptIDsOfAPrefillAnswer(t *testing.T) {
	for _, c := range []struct{ ids, usage, want string }{
		{`"prompt_token_ids":[1,20,300],`, "3", `[1,20,300]`},
		{`"prompt_token_ids": [ 1, 20 , 300 ] ,`, "3", `[ 1, 20 , 300 ]`},
		{``, "3", ""},
		{`"prompt_token_ids":null,`, "3", ""},
		{`"prompt_token_ids":[],`, "0", ""},
		{`"prompt_token_ids":"1,2,3",`, "3", ""},
		{`"prompt_token_ids":{"a":1},`, "3", ""},
		{`"prompt_token_ids":[1,-2,3],`, "3", ""},
		{`"prompt_token_ids":[1,2.5,3],`, "3", ""},
		{`"prompt_token_ids":[1,true,3],`, "3", ""},
		{`"prompt_token_ids":[[1,2,3]],`, "1", ""},
		{`"prompt_token_ids":[1,2,3],"prompt_token_ids":[1,2,3],`, "3", ""},
		{`"prompt_token_ids":[1,2,3],"prompt_token_ids":null,`, "3", ""},
		{`"choices":[{"prompt_token_ids":[1,2,3]}],`, "3", ""},
		{`"prompt_token_ids":[1,2,3],`, "4", ""}, // not the whole prompt
		{`"prompt_token_ids":[1,2,3],`, "null", ""},
	} {
		for _, connector := range []string{"nixl", "nixl-push"} {
			d, r, h, body := decodeOf(t, connector, c.ids, c.usage)
			want := string(h.Raw)
			if c.want != "" {
				want = want[:len(want)-1] + `,"prompt_token_ids":` + c.want + `}`
			}
			if connector == "nixl-push" {
				want = want[:len(want)-1] + `,"transfer_id":"xfer-a-1"}`
			}
			want = `{"messages":[{"role":"user","content":"abcdefgh"}],"max_tokens":5,"kv_transfer_params":` + want + `}`
			if body != want {
				t.Errorf("%s after %s of %s tokens\n got %s\nwant %s", connector, c.ids, c.usage, body, want)
			}
			for what, body := range map[string]string{"release": join(d.AppendRelease(nil, r, h)), "drain": join(d.AppendDrain(nil, r, h, "a-1"))} {
				if strings.Contains(body, "prompt_token_ids") {
					t.Errorf("%s has ids: %s", what, body)
				}
			}
		}
	}
}

// Ids that nobody asked for are not used, and only long chats ask for them.
func TestPromptIDsAreAskedForByLongChats(t *testing.T) {
	const ids = `"return_token_ids":true`
	long := strings.Repeat("a", 100)
	chat := `{"messages":[{"role":"user","content":"` + long + `"}]MORE}`
	for _, c := range []struct {
		name, body string
		api        API
		reuse      Reuse
		want       bool
	}{
		{"chat", chat, Chat, Reuse{100, 4096}, true},
		{"a client's false", strings.Replace(chat, "MORE", `,"return_token_ids":false`, 1), Chat, Reuse{100, 4096}, true},
		{"off", chat, Chat, Reuse{0, 4096}, false},
		{"shorter", chat, Chat, Reuse{1000, 4096}, false},
		{"too long for the answer", chat, Chat, Reuse{100, 1000}, false},
		{"truncated", strings.Replace(chat, "MORE", `,"truncate\u005fprompt_tokens":9`, 1), Chat, Reuse{100, 4096}, false},
		{"prompt shown", strings.Replace(chat, "MORE", `,"return_prompt_text":true`, 1), Chat, Reuse{100, 4096}, false},
		{"other members", strings.Replace(chat, "MORE", `,"cache_salt":"a","tools":[]`, 1), Chat, Reuse{100, 4096}, true},
		{"completion", `{"prompt":"` + long + `"}`, Completions, Reuse{100, 4096}, false},
		{"messages", chat, Messages, Reuse{100, 4096}, false},
		{"response", `{"input":"` + long + `"}`, Responses, Reuse{100, 4096}, false},
		{"generate", `{"token_ids":[` + strings.Repeat("1,", 100) + `1]}`, Generate, Reuse{100, 4096}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, _ := c.reuse.Lookup("nixl")
			r := parse(t, c.api, strings.Replace(c.body, "MORE", "", 1))
			if got := strings.Contains(join(d.AppendPrefill(nil, r, &Leg{ID: "a-1"})), ids); got != c.want {
				t.Errorf("asked for ids: %v, want %v", got, c.want)
			}
			h := Handle{Raw: []byte(`{"h":1}`), prompt: []byte(`[7]`)}
			if got := strings.Contains(join(d.AppendDecode(nil, r, h, &Leg{ID: "a-1"})), `{"h":1,"prompt_token_ids":[7]}`); got != c.want {
				t.Errorf("handed ids over: %v, want %v", got, c.want)
			}
		})
	}
}
