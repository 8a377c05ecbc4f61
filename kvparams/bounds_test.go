package kvparams

import (
	"errors"
	"strings"
	"testing"
)

func TestModelNameIsBounded(t *testing.T) {
	for _, tc := range []struct {
		name string
		ok   bool
	}{
		{strings.Repeat("m", maxModel), true},
		{strings.Repeat("m", maxModel+1), false},
		{strings.Repeat(`\u006d`, maxModel/6+1), false}, // as the body has it
	} {
		var r Request
		err := r.Parse(Chat, []byte(`{"model":"`+tc.name+`"}`))
		if tc.ok != (err == nil) {
			t.Fatalf("a name of %d bytes: %v", len(tc.name), err)
		}
		var e *Error
		if !tc.ok && (!errors.As(err, &e) || e.Code != CodeInvalidType || e.Param != "model" || !strings.Contains(e.Message, "1024")) {
			t.Errorf("%v", err)
		}
	}
}

// P's answer repeats nothing of the prompt. D's has everything that the client wants.
func TestPrefillRepeatsNoPrompt(t *testing.T) {
	const body = `{"prompt":"a","return_token_ids":true,"echo":true}`
	r := parse(t, Completions, body)
	var leg Leg
	p := join(nixl{}.AppendPrefill(nil, r, &leg))
	if !strings.HasPrefix(p, `{"prompt":"a","return_token_ids":false,"echo":false,`) {
		t.Errorf("prefill leg %s", p)
	}
	if d := join(r.AppendPlain(nil)); d != body {
		t.Errorf("plain %s", d)
	}
	if p = join(nixl{}.AppendPrefill(nil, parse(t, Chat, `{"return_token_ids":true}`), &leg)); !strings.HasPrefix(p, `{"return_token_ids":false,`) {
		t.Errorf("chat's prefill leg %s", p)
	}
}
