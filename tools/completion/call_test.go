package completion

import (
	"fmt"
	"strings"
	"testing"
)

func TestCheckComparesEachByte(t *testing.T) {
	whole := Call{Prompt: "a", Tokens: 3}
	streamed := Call{Prompt: "a", Tokens: 3, Stream: true}
	text := whole.Want()
	event := func(text, finish string) string {
		return fmt.Sprintf("data: {\"choices\":[{\"text\":%q,\"finish_reason\":%s}]}\n\n", text, finish)
	}
	for _, tc := range []struct {
		name string
		call Call
		body string
		want string // in the error; "" means no error
	}{
		{"whole", whole, fmt.Sprintf(`{"choices":[{"text":%q}]}`, text), ""},
		{"one byte less", whole, fmt.Sprintf(`{"choices":[{"text":%q}]}`, text[1:]), "wrong text"},
		{"one byte more", whole, fmt.Sprintf(`{"choices":[{"text":%q}]}`, text+"x"), "wrong text"},
		{"empty body", whole, "", "no JSON"},
		{"error with status 200", whole, `{"error":{"message":"x"}}`, "holds an error"},
		{"stream", streamed, event(text[:2], "null") + event(text[2:], `"length"`) + "data: [DONE]\n\n", ""},
		{"stream without its end", streamed, event(text, `"length"`), "without [DONE]"},
		{"stream without a finish", streamed, event(text, "null") + "data: [DONE]\n\n", "without a finish_reason"},
		{"error event and [DONE]", streamed, event(text, `"length"`) + "data: {\"error\":{}}\n\ndata: [DONE]\n\n", "holds an error"},
		{"empty stream", streamed, "", "without [DONE]"},
	} {
		err := tc.call.Check([]byte(tc.body))
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", tc.name, err, tc.want)
		}
	}
}
