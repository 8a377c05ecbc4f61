package sim

// generateAPI is POST /inference/v1/generate: token ids in, token ids out.
type generateAPI struct{ openAI }

func (generateAPI) prefix() string                     { return "generate-tokens-" }
func (generateAPI) internalID(id string, _ int) string { return id }

func (generateAPI) read(r *request, f *fields) {
	ids := f.integers("token_ids")
	if len(ids) == 0 {
		f.fail("too_short", "token_ids", "List should have at least 1 item after validation, not 0")
	}
	r.prompts = []prompt{idsPrompt(ids)}
	r.tokenIDs, r.logprobs = true, -1
	if f.members["sampling_params"] == nil {
		f.missing("sampling_params")
	}
	r.readStream(f)
	sampling := &fields{members: f.object("sampling_params")}
	r.maxTokens, r.limited = sampling.integer("max_tokens", true, 0)
	r.minTokens, _ = sampling.integer("min_tokens", false, 0)
	r.n, _ = sampling.integer("n", false, 1)
	r.ignoreEOS = sampling.boolean("ignore_eos", false)
	r.temperature, r.topP = sampling.number("temperature"), sampling.number("top_p")
	r.stop = sampling.stops()
	if sampling.err != nil && f.err == nil {
		f.err = sampling.err
	}
}

func (g *generation) appendGenerated(b []byte) []byte {
	return append(appendString(append(b, `{"request_id":`...), g.id), `,"choices":[`...)
}

// appendChoice appends what a choice says of its tokens.
func (g *generation) appendGeneratedChoice(b []byte, u *unit, ids []int, last bool) []byte {
	b = appendInt(append(b, `{"index":`...), u.index)
	b = g.appendReason(append(b, ','), u, last)
	b = appendStopReason(append(b, ','), u, last)
	b = g.appendTokenIDs(append(b, ','), ids)
	return append(b, `,"routed_experts":null,"sampling_mask":null,"weight_versions":null,"logprobs":null}`...)
}

func (generateAPI) appendRole([]byte, *generation, *unit) []byte { return nil }

func (generateAPI) appendToken(b []byte, g *generation, u *unit, step int) []byte {
	b = g.appendGenerated(b)
	b = g.appendGeneratedChoice(b, u, u.ids[step:step+1], step == len(u.tokens)-1)
	b = append(b, `],"usage":`...)
	if g.r.continuousUsage {
		b = append(g.appendCounts(b[:len(b)-len(`"usage":`)], step+1), '}')
	} else {
		b = append(b, "null"...)
	}
	return append(b, `,"output_mode":"tokens"}`...)
}

func (generateAPI) appendUsageEvent(b []byte, g *generation) []byte {
	b = append(g.appendGenerated(b), "],"...)
	b = g.appendCounts(b, g.outputTokens())
	b = appendInt(append(b, `,"prompt_tokens_details":{"cached_tokens":`...), g.cached)
	return append(b, `}},"output_mode":"tokens"}`...)
}

func (generateAPI) appendAnswer(b []byte, g *generation) []byte {
	b = g.appendGenerated(b)
	for i, u := range g.units {
		b = g.appendGeneratedChoice(appendComma(b, i), u, u.ids, true)
	}
	b = appendString(append(b, `],"model":`...), g.c.o.Model)
	b = appendInt(append(b, `,"created":`...), int(g.created))
	b = g.appendCounts(append(b, ','), g.outputTokens())
	b = appendInt(append(b, `,"prompt_tokens_details":{"cached_tokens":`...), g.cached)
	b = append(b, `}},"prompt_logprobs":null,"prompt_token_ids":null,"mm_placeholders":null,"output_mode":"tokens",`...)
	return g.appendTransfer(b)
}
