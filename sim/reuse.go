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

// firstAnswerID is the lowest id of an answer's token. No id of a text is as high, because the highest byte would be 0xff,
// which UTF-8 does not have.
const firstAnswerID = 0xff000000

// TokenID is the id of one token of an answer. A word has one id, and an empty token has an id too.
func TokenID(token string) int { return firstAnswerID | int(hashText(token)&0xffffff) }

// idsPrompt is the prompt of these ids. Those of an answer at its end are what a model has said so far, and the engine goes
// on with that answer.
func idsPrompt(ids []int) prompt {
	said := len(ids)
	for said > 0 && ids[said-1] >= firstAnswerID {
		said--
	}
	return prompt{text: TokensPrompt(ids[:said]...), tokens: len(ids), ids: ids, said: ids[said:]}
}

func idsOf(tokens []string) []int {
	ids := make([]int, len(tokens))
	for i, token := range tokens {
		ids[i] = TokenID(token)
	}
	return ids
}

// script is the answer to p, from behind what is said of it. What another model has said makes it another answer.
func (p prompt) script(choice int) script {
	s := newScript(p.text, choice)
	for i, id := range p.said {
		if TokenID(s.token(i)) != id {
			for _, id := range p.said {
				s.seed = mix(s.seed, uint64(id))
			}
			break
		}
	}
	s.from = len(p.said)
	return s
}

// endless reports that the request sets no limit to the answer: it has none, or goes on with one up to the length of the
// model.
func (r *request) endless(p prompt, longest int) bool {
	return !r.limited || len(p.said) > 0 && p.tokens+r.maxTokens >= longest
}
