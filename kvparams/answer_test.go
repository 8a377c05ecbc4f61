package kvparams

import (
	"errors"
	"strings"
	"testing"
)

const goodHandle = `{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[1,2],[3]],"remote_engine_id":"e",` +
	`"remote_request_id":"r","remote_host":"10.0.0.1","remote_port":5601,"tp_size":1}`

func TestRecordedAnswers(t *testing.T) {
	cases := []struct {
		file   string
		prompt int
		blocks int
		raw    string // start and end of the handle
		end    string
	}{
		{"p-chat.json", 225, 8, `{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[227,228,`, `"remote_prefill_cached_tokens":0}`},
		{"p-completions.json", 220, 7, `{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[201,202,`, `"remote_prefill_cached_tokens":0}`},
	}
	for _, c := range cases {
		t.Run(c.file, func(t *testing.T) {
			a, err := nixl{}.ParseAnswer(testdata(t, c.file))
			if err != nil {
				t.Fatal(err)
			}
			if a.PromptTokens != c.prompt || a.CachedTokens != 0 || a.Handle.Blocks != c.blocks {
				t.Errorf("answer %+v", a)
			}
			h := a.Handle
			if string(h.EngineID) != "fe5a6777-3989-49c9-b670-d37c354abcc3" || string(h.RemoteHost) != "127.0.0.1" || h.RemotePort != 5601 {
				t.Errorf("handle %s %s %d", h.EngineID, h.RemoteHost, h.RemotePort)
			}
			if raw := string(h.Raw); !strings.HasPrefix(raw, c.raw) || !strings.HasSuffix(raw, c.end) {
				t.Errorf("handle is not P's bytes: %s", raw)
			}
		})
	}
}

func TestNoHandle(t *testing.T) {
	for _, body := range []string{
		`{}`, `{"kv_transfer_params":null}`, `{"kv_transfer_params":{}}`, `{"kv_transfer_params": { } }`,
		`{"choices":[{"kv_transfer_params":` + goodHandle + `}]}`,
		`{"text":"\"kv_transfer_params\":{\"do_remote_prefill\":true}"}`,
		`{"\"kv_transfer_params":1,"kv_transfer_params\u0000":2}`,
		string(testdata(t, "d-chat.json")),
	} {
		a, err := nixl{}.ParseAnswer([]byte(body))
		if err != nil || !a.Handle.None() {
			t.Errorf("%s: handle %q, error %v", body, a.Handle.Raw, err)
		}
	}
}

func TestHandleByteForByte(t *testing.T) {
	raw := strings.Replace(goodHandle, `"tp_size":1`, `"tp_size" : 1.50,"big":9007199254740993 ,"s":"\u00e9\/"`, 1)
	for _, body := range []string{
		`{"kv_transfer_params":` + raw + `}`,
		` { "usage" : {} , "kv_\u0074ransfer_params" : ` + raw + " ,\"z\":{\"kv_transfer_params\":null}}\n",
	} {
		a, err := nixl{}.ParseAnswer([]byte(body))
		if err != nil || string(a.Handle.Raw) != raw {
			t.Errorf("%s:\n got %s (%v)", body, a.Handle.Raw, err)
		}
	}
}

func TestHandleVariants(t *testing.T) {
	cases := []struct {
		old, new string
		blocks   int
	}{
		{``, ``, 3},
		{`[[1,2],[3]]`, `[1,2,3,4]`, 4}, // versions before KV cache groups
		{`[[1,2],[3]]`, `[ [ 0 ] ]`, 1},
		{`"remote_host"`, `"remote_h\u006fst"`, 3},
		{`5601`, `65535`, 3},
		{`5601`, `1`, 3},
	}
	for _, c := range cases {
		body := `{"kv_transfer_params":` + strings.Replace(goodHandle, c.old, c.new, 1) + `}`
		a, err := nixl{}.ParseAnswer([]byte(body))
		if err != nil || a.Handle.Blocks != c.blocks {
			t.Errorf("%s: %+v, %v", body, a, err)
		}
	}
}

func TestBadHandles(t *testing.T) {
	cases := []struct{ old, new, member string }{
		{`"do_remote_prefill":true,`, ``, "do_remote_prefill"},
		{`"do_remote_prefill":true`, `"do_remote_prefill":false`, "do_remote_prefill"},
		{`"do_remote_prefill":true`, `"do_remote_prefill":1`, "do_remote_prefill"},
		{`"do_remote_prefill":true`, `"do_remote_prefill":"true"`, "do_remote_prefill"},
		{`"do_remote_prefill":true`, `"do_remote_prefill":true,"do_remote_prefill":true`, "do_remote_prefill"},
		{`"remote_block_ids":[[1,2],[3]],`, ``, "remote_block_ids"},
		{`[[1,2],[3]]`, `null`, "remote_block_ids"},
		{`[[1,2],[3]]`, `[]`, "remote_block_ids"},
		{`[[1,2],[3]]`, `[[]]`, "remote_block_ids"},
		{`[[1,2],[3]]`, `[[1],[]]`, "remote_block_ids"},
		{`[[1,2],[3]]`, `[[],[1]]`, "remote_block_ids"},
		{`[[1,2],[3]]`, `[1,[2]]`, "remote_block_ids"},
		{`[[1,2],[3]]`, `[[1],2]`, "remote_block_ids"},
		{`[[1,2],[3]]`, `[[1,-2]]`, "remote_block_ids"},
		{`[[1,2],[3]]`, `[[1.0]]`, "remote_block_ids"},
		{`[[1,2],[3]]`, `[["1"]]`, "remote_block_ids"},
		{`[[1,2],[3]]`, `[[[1]]]`, "remote_block_ids"},
		{`[[1,2],[3]]`, `[null]`, "remote_block_ids"},
		{`[[1,2],[3]]`, `{"0":[1]}`, "remote_block_ids"},
		{`[[1,2],[3]]`, `[-1]`, "remote_block_ids"},
		{`[[1,2],[3]]`, `[99999999999999999999]`, "remote_block_ids"},
		{`"remote_engine_id":"e",`, ``, "remote_engine_id"},
		{`"remote_engine_id":"e"`, `"remote_engine_id":""`, "remote_engine_id"},
		{`"remote_engine_id":"e"`, `"remote_engine_id":null`, "remote_engine_id"},
		{`"remote_engine_id":"e"`, `"remote_engine_id":7`, "remote_engine_id"},
		{`"remote_engine_id":"e"`, `"remote_engine_id":"e","remote_\u0065ngine_id":"f"`, "remote_engine_id"},
		{`"remote_request_id":"r",`, ``, "remote_request_id"},
		{`"remote_request_id":"r"`, `"remote_request_id":""`, "remote_request_id"},
		{`"remote_request_id":"r"`, `"remote_request_id":["r"]`, "remote_request_id"},
		{`"remote_host":"10.0.0.1",`, ``, "remote_host"},
		{`"remote_host":"10.0.0.1"`, `"remote_host":""`, "remote_host"},
		{`"remote_host":"10.0.0.1"`, `"remote_host":{}`, "remote_host"},
		{`"remote_port":5601,`, ``, "remote_port"},
		{`5601`, `0`, "remote_port"},
		{`5601`, `-1`, "remote_port"},
		{`5601`, `65536`, "remote_port"},
		{`5601`, `"5601"`, "remote_port"},
		{`5601`, `5601.0`, "remote_port"},
		{`5601`, `null`, "remote_port"},
		{`5601`, `56e2`, "remote_port"},
		{goodHandle, `{"tp_size":1}`, "do_remote_prefill"},
		{goodHandle, `{"do_remote_prefill":true}`, "remote_block_ids"},
		{goodHandle, `[]`, ""},
		{goodHandle, `"` + marker + `"`, ""},
		{goodHandle, `false`, ""},
		{goodHandle, goodHandle + `,"kv_transfer_p\u0061rams":null`, ""},
	}
	for _, c := range cases {
		handle := strings.Replace(goodHandle, c.old, c.new, 1)
		if handle == goodHandle {
			t.Fatalf("case %q changes nothing", c.old)
		}
		_, err := nixl{}.ParseAnswer([]byte(`{"kv_transfer_params":` + handle + `}`))
		want := "kv_transfer_params"
		if c.member != "" {
			want += "." + c.member
		}
		checkAnswerError(t, handle, err, CodeHandoff, want)
	}
}

func checkAnswerError(t *testing.T, in string, err error, code, member string) {
	t.Helper()
	var e *AnswerError
	if !errors.As(err, &e) {
		t.Errorf("%s: got %v, want an *AnswerError", in, err)
		return
	}
	if e.Code != code || e.Member != member {
		t.Errorf("%s: got %s %q, want %s %q", in, e.Code, e.Member, code, member)
	}
	if strings.Contains(e.Error(), marker) || strings.Contains(e.Error(), "10.0.0.1") {
		t.Errorf("%s: message holds a value: %s", in, e)
	}
}

func TestAnswerIsStrictJSON(t *testing.T) {
	for _, body := range []string{
		``, `null`, `[]`, `"` + marker + `"`, `{"kv_transfer_params":` + goodHandle, `{"a":1}x`, `{"a":01}`, `{"a":"` + marker + "\x01\"}",
		`{"usage":{"prompt_tokens":}}`, `{"usage":{"prompt_tokens_details":{"cached_tokens":}}}`, `{"kv_transfer_params":}`,
	} {
		_, err := nixl{}.ParseAnswer([]byte(body))
		checkAnswerError(t, body, err, CodeInvalidJSON, "")
		_, err = testDialect().ParseAnswer([]byte(body))
		checkAnswerError(t, body, err, CodeInvalidJSON, "")
	}
}

func TestAnswerUsage(t *testing.T) {
	cases := []struct {
		usage          string
		prompt, cached int
	}{
		{`{"prompt_tokens":7,"prompt_tokens_details":{"cached_tokens":5}}`, 7, 5},
		{`{"prompt_tokens_details":null,"prompt_tokens":7}`, 7, -1},
		{`{"prompt_tokens":7.5,"prompt_tokens_details":{"cached_tokens":null}}`, -1, -1},
		{`{"prompt_tokens":-7,"prompt_tokens_details":{"cached_tokens":"5"}}`, -1, -1},
		{`{"a":{"prompt_tokens":7}}`, -1, -1},
		{`null`, -1, -1}, {`[7]`, -1, -1},
	}
	for _, c := range cases {
		a, err := nixl{}.ParseAnswer([]byte(`{"usage":` + c.usage + `,"prompt_tokens":9,"cached_tokens":9}`))
		if err != nil || a.PromptTokens != c.prompt || a.CachedTokens != c.cached {
			t.Errorf("%s: %+v, %v", c.usage, a, err)
		}
	}
}
