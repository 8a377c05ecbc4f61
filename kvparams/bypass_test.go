package kvparams

import (
	"fmt"
	"testing"
)

func TestBypass(t *testing.T) {
	const both = APIs // of the table: the same on chat and completions
	cases := []struct {
		api  API
		body string
		want Reason
	}{
		{both, `{}`, ReasonNone},
		{both, `{"n":1,"best_of":1,"use_beam_search":false,"echo":false,"logprobs":3,"prompt_logprobs":null,"background":false}`, ReasonNone},
		{both, `{"n":null,"best_of":null,"use_beam_search":null,"echo":null,"previous_response_id":null,"background":null}`, ReasonNone},
		{both, `{"a":{"n":2,"best_of":2},"messages":"\"n\":2"}`, ReasonNone},
		{both, `{"n":2}`, ReasonN},
		{both, `{"n":1.0}`, ReasonN},
		{both, `{"n":"1"}`, ReasonN},
		{both, `{"n":0}`, ReasonN},
		{both, `{"\u006e":2}`, ReasonN},
		{both, `{"best_of":2}`, ReasonBestOf},
		{both, `{"best_of":"1"}`, ReasonBestOf},
		{both, `{"use_beam_search":true}`, ReasonBeamSearch},
		{both, `{"use_beam_search":1}`, ReasonBeamSearch},
		{both, `{"prompt_logprobs":0}`, ReasonPromptLogprobs},
		{both, `{"prompt_logprobs":-1}`, ReasonPromptLogprobs},
		{both, `{"previous_response_id":"resp_1"}`, ReasonStateful},
		{both, `{"background":true}`, ReasonStateful},

		{Completions, `{"prompt":"a"}`, ReasonNone},
		{Completions, `{"prompt":["a"]}`, ReasonNone},
		{Completions, `{"prompt":[1,2,3]}`, ReasonNone},
		{Completions, `{"prompt":[[1,2,3]]}`, ReasonNone},
		{Completions, `{"prompt":[]}`, ReasonNone},
		{Completions, `{"prompt":["a","b"]}`, ReasonPromptList},
		{Completions, `{"prompt":[[1],[2]]}`, ReasonPromptList},
		{Completions, `{"prompt":[[1],"a"]}`, ReasonPromptList},
		{Completions, `{"prompt":[1,"a"]}`, ReasonPromptList},
		{Completions, `{"prompt":[1,true]}`, ReasonPromptList},
		{Completions, `{"prompt":[1,[2]]}`, ReasonPromptList},
		{Completions, `{"prompt":[null,null]}`, ReasonPromptList},
		{Completions, `{"prompt_embeds":"a"}`, ReasonPromptEmbeds},
		{Completions, `{"prompt_embeds":["a"],"prompt":null}`, ReasonPromptEmbeds},
		{Completions, `{"prompt_embeds":[],"prompt":"b"}`, ReasonNone},
		{Completions, `{"prompt_embeds":null,"prompt":"b"}`, ReasonNone},
		{Completions, `{"prompt_embeds":["a","b"]}`, ReasonPromptList},
		{Completions, `{"prompt_embeds":"a","prompt":"b"}`, ReasonPromptList},
		{Chat, `{"prompt":["a","b"],"prompt_embeds":["a","b"]}`, ReasonNone},

		{Completions, `{"echo":true}`, ReasonNone},
		{Completions, `{"echo":true,"logprobs":null}`, ReasonNone},
		{Completions, `{"echo":true,"logprobs":0}`, ReasonEchoLogprobs},
		{Completions, `{"echo":"yes","logprobs":1}`, ReasonEchoLogprobs},
		{Completions, `{"echo":1,"logprobs":1}`, ReasonEchoLogprobs},
		{Chat, `{"echo":true}`, ReasonEchoLogprobs},
		{Chat, `{"echo":true,"logprobs":false}`, ReasonEchoLogprobs},

		{both, `{"max_tokens":0}`, ReasonMaxTokensZero},
		{both, `{"max_tokens":-0}`, ReasonMaxTokensZero},
		{Chat, `{"max_completion_tokens":0}`, ReasonMaxTokensZero},
		{Chat, `{"max_completion_tokens":0,"max_tokens":5}`, ReasonMaxTokensZero},
		{Completions, `{"max_completion_tokens":0}`, ReasonNone}, // vLLM ignores it there
		{Completions, `{"max_completion_tokens":"x"}`, ReasonNone},

		{both, `{"stream":true,"stream_options":{}}`, ReasonNone},
		{both, `{"stream":true,"stream_options":null}`, ReasonNone},
		{both, `{"stream":null,"stream_options":null}`, ReasonNone},
		{both, `{"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":null,"x":7}}`, ReasonNone},
		{both, `{"stream":"true"}`, ReasonInvalidFields},
		{both, `{"stream":1}`, ReasonInvalidFields},
		{both, `{"stream":[]}`, ReasonInvalidFields},
		{both, `{"stream_options":{}}`, ReasonInvalidFields},
		{both, `{"stream_options":{"include_usage":true}}`, ReasonInvalidFields},
		{both, `{"stream":false,"stream_options":{"include_usage":true}}`, ReasonInvalidFields},
		{both, `{"stream":true,"stream_options":[]}`, ReasonInvalidFields},
		{both, `{"stream":true,"stream_options":"x"}`, ReasonInvalidFields},
		{both, `{"stream":true,"stream_options":{"include_usage":"yes"}}`, ReasonInvalidFields},
		{both, `{"stream":true,"stream_options":{"include_usage":1}}`, ReasonInvalidFields},
		{both, `{"stream":true,"stream_options":{"continuous_usage_stats":[]}}`, ReasonInvalidFields},
		{both, `{"stream":true,"stream_options":{"include_\u0075sage":{}}}`, ReasonInvalidFields},

		{both, `{"max_tokens":1}`, ReasonNone},
		{both, `{"max_tokens":null}`, ReasonNone},
		{both, `{"max_tokens":999999999999999999}`, ReasonNone},
		{both, `{"max_tokens":9223372036854775808}`, ReasonInvalidFields},
		{both, `{"max_tokens":-1}`, ReasonInvalidFields},
		{both, `{"max_tokens":1.5}`, ReasonInvalidFields},
		{both, `{"max_tokens":16.0}`, ReasonInvalidFields},
		{both, `{"max_tokens":1e2}`, ReasonInvalidFields},
		{both, `{"max_tokens":"16"}`, ReasonInvalidFields},
		{both, `{"max_tokens":true}`, ReasonInvalidFields},
		{both, `{"max_tokens":[]}`, ReasonInvalidFields},
		{Chat, `{"max_completion_tokens":7}`, ReasonNone},
		{Chat, `{"max_completion_tokens":"7"}`, ReasonInvalidFields},
		{Chat, `{"max_completion_tokens":-7,"max_tokens":7}`, ReasonInvalidFields},

		{both, `{"min_tokens":0}`, ReasonNone},
		{both, `{"min_tokens":5,"max_tokens":5}`, ReasonNone},
		{both, `{"min_tokens":6,"max_tokens":5}`, ReasonInvalidFields},
		{both, `{"min_tokens":null}`, ReasonInvalidFields}, // vLLM's field has a default, but takes no null
		{both, `{"min_tokens":-1}`, ReasonInvalidFields},
		{both, `{"return_token_ids":true}`, ReasonNone},
		{both, `{"return_token_ids":null}`, ReasonNone},
		{both, `{"return_token_ids":1}`, ReasonInvalidFields},
		{Completions, `{"echo":"yes"}`, ReasonInvalidFields},
		{both, `{"min_tokens":"1"}`, ReasonInvalidFields},
		{both, `{"min_tokens":1.0}`, ReasonInvalidFields},
		{Chat, `{"min_tokens":6,"max_tokens":5,"max_completion_tokens":7}`, ReasonNone},
		{Chat, `{"min_tokens":6,"max_tokens":7,"max_completion_tokens":5}`, ReasonInvalidFields},
		{Chat, `{"min_tokens":1000}`, ReasonNone}, // the limit is the model's
		{Completions, `{"min_tokens":16}`, ReasonNone},
		{Completions, `{"min_tokens":17}`, ReasonInvalidFields}, // the default limit is 16
		{Completions, `{"min_tokens":17,"max_tokens":null}`, ReasonInvalidFields},
		{Completions, `{"min_tokens":17,"max_completion_tokens":20}`, ReasonInvalidFields},
		{both, `{"min_tokens":99999999999999999999}`, ReasonInvalidFields},
	}
	for _, c := range cases {
		for _, api := range []API{Chat, Completions} {
			if c.api != both && c.api != api {
				continue
			}
			t.Run(fmt.Sprintf("%d %s", api, c.body), func(t *testing.T) {
				r := parse(t, api, c.body)
				if got := r.Bypass(); got != c.want {
					t.Errorf("got %q, want %q", got, c.want)
				}
				if got := join(r.AppendPlain(nil)); got != c.body {
					t.Errorf("plain body changed to %s", got)
				}
			})
		}
	}
}

func TestDeny(t *testing.T) {
	r := Request{Deny: []string{"priority", "n"}}
	if err := r.Parse(Chat, []byte(`{"priority":null,"a":1,"n":{}}`)); err != nil {
		t.Fatal(err)
	}
	if got := join(r.AppendPlain(nil)); got != `{"a":1}` {
		t.Errorf("plain body %s", got)
	}
	if err := r.Parse(Chat, []byte(`{"n":2}`)); err == nil {
		t.Error("a denied field that is also read passes")
	}
	r = Request{}
	if err := r.Parse(Chat, []byte(`{"priority":1}`)); err != nil {
		t.Errorf("without a list: %v", err)
	}
}
