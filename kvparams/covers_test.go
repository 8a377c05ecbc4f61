package kvparams

import (
	"errors"
	"fmt"
	"testing"
)

// prefillAnswer is a prefill's answer with these blocks, and more members of the handle.
func prefillAnswer(prompt int, blocks, more string) string {
	return fmt.Sprintf(`{"choices":[],"usage":{"prompt_tokens":%d},"kv_transfer_params":{"do_remote_prefill":true,"remote_block_ids":%s,`+
		`"remote_engine_id":"e","remote_request_id":"r","remote_host":"h","remote_port":5600%s}}`, prompt, blocks, more)
}

func TestHandleCoversItsPrompt(t *testing.T) {
	for _, c := range []struct {
		name        string
		answer      string
		blockTokens int
		member      string // at fault; empty if the handle is sound
	}{
		{"as recorded of vLLM 0.32", prefillAnswer(225, "[[227,228,229,230,231,232,233,234]]", `,"dcp_size":1,"remote_num_tokens":225`), 32, ""},
		{"as recorded, the last block begun", prefillAnswer(220, "[[201,202,203,204,205,206,207]]", `,"remote_num_tokens":220`), 32, ""},
		{"a whole number of blocks", prefillAnswer(64, "[[1,2]]", ""), 32, ""},
		{"one block too few", prefillAnswer(65, "[[1,2]]", ""), 32, "kv_transfer_params.remote_block_ids"},
		{"one block of many", prefillAnswer(5000, "[[1]]", `,"remote_num_tokens":5000`), 16, "kv_transfer_params.remote_block_ids"},
		{"flat list", prefillAnswer(65, "[1,2]", ""), 32, "kv_transfer_params.remote_block_ids"},
		{"more than needed", prefillAnswer(5, "[[1,2,3]]", ""), 32, ""},
		{"the last token is decode's", prefillAnswer(65, "[[1,2]]", `,"remote_num_tokens":64`), 32, ""},
		{"so is the draft model's window", prefillAnswer(70, "[[1,2]]", `,"remote_num_tokens":64`), 32, ""},
		{"it has computed no more than the start", prefillAnswer(500, "[[1,2]]", `,"remote_num_tokens":64`), 32, "kv_transfer_params.remote_num_tokens"},
		{"the same, blocks of an unknown size", prefillAnswer(500, "[[1,2]]", `,"remote_num_tokens":64`), 0, "kv_transfer_params.remote_num_tokens"},
		{"it computed a token more", prefillAnswer(64, "[[1,2]]", `,"remote_num_tokens":65`), 32, ""},
		{"its count is 0", prefillAnswer(64, "[[1,2]]", `,"remote_num_tokens":0`), 32, ""},
		{"its count is no number", prefillAnswer(64, "[[1,2]]", `,"remote_num_tokens":"none"`), 32, ""},
		{"blocks of an unknown size", prefillAnswer(5000, "[[1]]", ""), 0, ""},
		{"no usage", `{"kv_transfer_params":` + goodHandle + `}`, 1, ""},
		{"a window beside full attention", prefillAnswer(5000, "[[1,2,3],[4]]", ""), 16, ""},
		{"blocks spread over ranks", prefillAnswer(64, "[[1]]", `,"dcp_size":2`), 32, ""},
		{"no handle", `{"usage":{"prompt_tokens":9},"kv_transfer_params":null}`, 1, ""},
	} {
		a, err := nixl{}.ParseAnswer([]byte(c.answer))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var fault *AnswerError
		switch err := a.Covers(c.blockTokens, Extent{}); {
		case c.member == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.member != "" && (!errors.As(err, &fault) || fault.Code != CodeHandoff || fault.Member != c.member):
			t.Errorf("%s: %v, want a fault of %s", c.name, err, c.member)
		}
	}
}

// Nothing says how much a block holds, except a handle that decode has used.
func TestHandleIsAsLongAsAUsedOne(t *testing.T) {
	answer := func(prompt, blocks int) Answer {
		return Answer{PromptTokens: prompt, Handle: Handle{Raw: []byte("{}"), Blocks: blocks, lists: 1}}
	}
	blocksOf := func(tokens, size int) int { return (tokens + size - 1) / size }
	for _, engine := range []struct{ size, ahead, window int }{{16, 0, 1 << 20}, {16, 5, 1 << 20}, {128, 64, 1 << 20}, {16, 0, 40}, {1, 0, 1 << 20}} {
		give := func(tokens int) int { return min(blocksOf(tokens+engine.ahead, engine.size), engine.window) }
		for used := 1; used < 1500; used += 7 {
			x := answer(used, give(used)).Extent()
			for prompt := 1; prompt < 3000; prompt += 11 {
				if err := answer(prompt, give(prompt)).Covers(0, x); err != nil {
					t.Fatalf("%+v: %d blocks for %d tokens, after %+v: %v", engine, give(prompt), prompt, x, err)
				}
			}
		}
	}
	for _, c := range []struct{ used, prompt, blocks int }{{20, 20, 1}, {20, 5000, 1}, {5000, 20, 1}, {5000, 5000, 312}, {5000, 600, 37}} {
		if err := answer(c.prompt, c.blocks).Covers(0, answer(c.used, blocksOf(c.used, 16)).Extent()); err == nil {
			t.Errorf("%d blocks for %d tokens, after %d of one for %d", c.blocks, c.prompt, blocksOf(c.used, 16), c.used)
		}
	}
	for _, a := range []Answer{answer(5000, 1), {PromptTokens: 5000, Handle: Handle{Raw: []byte("{}"), Blocks: 2, lists: 2}}} {
		if err := a.Covers(0, (Answer{PromptTokens: -1, Handle: a.Handle}).Extent()); err != nil {
			t.Errorf("%+v: %v, and nothing is known", a, err)
		}
	}
}
