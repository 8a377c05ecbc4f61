package sim

import (
	"encoding/json"
	"testing"
)

// The ids take the place of the messages, whatever these say. Ids that no engine takes are refused, and
// older engines and messages with more than text do not read them.
func TestPromptIDsTakeThePlaceOfMessages(t *testing.T) {
	const text = `[{"role":"user","content":"hello"}]`
	own := ChatPrompt(Message{"user", "hello"})
	for _, c := range []struct{ name, ids, messages, version, want string }{
		{"ids", `[1684234849]`, text, "0.32.0", "abcd"},
		{"parts of text", `[1684234849]`, `[{"role":"user","content":[{"type":"text","text":"hello"}]}]`, "0.32.0", "abcd"},
		{"older", `[1684234849]`, text, "0.31.0", own},
		{"media", `[1684234849]`, `[{"role":"user","content":[{"type":"image_url","text":""}]}]`, "0.32.0", ChatPrompt(Message{"user", "<image_url>"})},
		{"null", `null`, text, "0.32.0", own},
		{"empty", `[]`, text, "0.32.0", ""},
		{"negative", `[-1]`, text, "0.32.0", ""},
		{"no vocabulary has it", `[4294967296]`, text, "0.32.0", ""},
		{"no list", `"1"`, text, "0.32.0", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, err := Options{Role: RoleDecode, Version: c.version}.withDefaults()
			if err != nil {
				t.Fatal(err)
			}
			body, _ := json.Marshal(map[string]json.RawMessage{
				"messages": json.RawMessage(c.messages), "kv_transfer_params": json.RawMessage(`{"prompt_token_ids":` + c.ids + `}`),
			})
			r, rejection := parseRequest(body, chatAPI{})
			if rejection != nil {
				t.Fatal(rejection)
			}
			rejection = r.verify(o)
			switch {
			case c.want == "" && (rejection == nil || rejection.status != 400 || rejection.param != "kv_transfer_params.prompt_token_ids"):
				t.Errorf("not refused: %+v", rejection)
			case c.want != "" && rejection != nil:
				t.Error(rejection)
			case c.want != "" && r.prompts[0].text != c.want:
				t.Errorf("prompt %q, want %q", r.prompts[0].text, c.want)
			}
		})
	}
}
