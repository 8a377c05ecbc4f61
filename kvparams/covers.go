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
// block holds. Covers does not check the number of blocks if there are several lists (a cache group may keep only a window or
// a state), or if the blocks are spread over ranks. If blockTokens is 0, used is what a good handle of the same engine
// held, unless that is unknown too.
func (a Answer) Covers(blockTokens int, used Extent) error {
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
	if h.lists == 1 && (h.ranks <= 1 && blockTokens > 0 && h.Blocks < (need+blockTokens-1)/blockTokens || used.short(need, h.Blocks)) {
		return badHandoff("kv_transfer_params.remote_block_ids", "block numbers for all of the prompt, see usage.prompt_tokens")
	}
	return nil
}

// Extent is how many tokens of a prompt how many blocks have held. The zero value is for a handle that does not tell.
type Extent struct{ tokens, blocks int }

// Extent returns that of the answer's handle.
func (a Answer) Extent() Extent {
	if a.PromptTokens <= 0 || a.Handle.lists != 1 {
		return Extent{}
	}
	return Extent{a.PromptTokens, a.Handle.Blocks}
}

// TellsMoreThan reports that fewer blocks for a prompt are found too few with e than with was.
func (e Extent) TellsMoreThan(was Extent) bool {
	return e.blocks > was.blocks || e.blocks == was.blocks && e.tokens < was.tokens
}

// short reports that the blocks are too few for so many tokens on the engine that gave e. All but e's last block were
// full, and an engine that keeps only a window, or looks ahead of the prompt, has no more blocks for a longer prompt, or
// some more for a shorter one.
func (e Extent) short(tokens, blocks int) bool {
	if tokens > e.tokens {
		return blocks < e.blocks
	}
	return blocks*e.tokens <= tokens*(e.blocks-1)
}
