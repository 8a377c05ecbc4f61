package sim

import "encoding/json"

// maxTokenID is above each id that the toy tokeniser has.
const maxTokenID = 1<<32 - 1

// reuseIDs takes the prompt from kv_transfer_params.prompt_token_ids, as vLLM 0.32 and later does for a
// chat of text. It does not compare the ids with the messages: other ids are another prompt, and its
// answer is another text.
func (r *request) reuseIDs(o Options) *apiError {
	raw := r.kv["prompt_token_ids"]
	if len(raw) == 0 || string(raw) == "null" || !r.textChat || !o.since(32) {
		return nil
	}
	const param = "kv_transfer_params.prompt_token_ids"
	var ids []int
	if json.Unmarshal(raw, &ids) != nil || len(ids) == 0 {
		return badRequest(param, "`kv_transfer_params['prompt_token_ids']` must be a non-empty list of non-negative integers. (parameter=%s)", param)
	}
	for _, id := range ids {
		if id < 0 {
			return badRequest(param, "`kv_transfer_params['prompt_token_ids']` must be a non-empty list of non-negative integers. (parameter=%s)", param)
		}
		if id > maxTokenID {
			return badRequest(param, "Token id %d is out of vocabulary (parameter=%s)", id, param)
		}
	}
	r.prompts, r.reused = []prompt{idsPrompt(ids)}, true
	return nil
}

// textOnly reports whether the content of each message is text.
func textOnly(messages json.RawMessage) bool {
	var all []struct{ Content json.RawMessage }
	if json.Unmarshal(messages, &all) != nil {
		return false
	}
	for _, m := range all {
		var parts []struct{ Type string }
		if json.Unmarshal(m.Content, &parts) != nil {
			continue // a string, or null
		}
		for _, p := range parts {
			if p.Type != "text" {
				return false
			}
		}
	}
	return true
}
