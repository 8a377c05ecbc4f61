package kvparams

// lookahead is how many tokens at the end of a prompt an engine may leave to the decode engine. A
// state space model leaves one, and an engine whose draft model looks ahead leaves a few.
const lookahead = 64

// extent notes a member that says how much the blocks hold.
func (r *handleReader) extent(name, raw []byte) {
	switch string(name) {
	case "remote_num_tokens":
		r.h.tokens, _ = integer(raw)
	case "dcp_size":
		r.h.ranks, _ = integer(raw)
	}
}

// Covers fails with an *AnswerError if the handle's blocks cannot hold the prompt that P has counted. A
// decode engine asserts that they can, and would die. blockTokens is how many tokens of a sequence a
// block holds. Covers checks only the handle's own count of tokens if blockTokens is 0, if there are
// several lists (a cache group may keep only a window or a state), or if the blocks are spread over
// ranks.
func (a Answer) Covers(blockTokens int) error {
	h := &a.Handle
	if a.PromptTokens < 0 || h.None() {
		return nil
	}
	need := a.PromptTokens
	if h.tokens > 0 && h.tokens < need {
		if h.tokens+lookahead < need {
			return badHandoff("kv_transfer_params.remote_num_tokens", "the prompt's tokens, as usage.prompt_tokens")
		}
		need = h.tokens
	}
	if h.lists == 1 && h.ranks <= 1 && blockTokens > 0 && h.Blocks < (need+blockTokens-1)/blockTokens {
		return badHandoff("kv_transfer_params.remote_block_ids", "block numbers for all of the prompt, see usage.prompt_tokens")
	}
	return nil
}
