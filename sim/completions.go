package sim

// completionsAPI is POST /v1/completions.
type completionsAPI struct{ openAI }

func (completionsAPI) prefix() string { return "cmpl-" }

func (completionsAPI) internalID(id string, promptIndex int) string {
	return string(appendInt(append([]byte(id), '-'), promptIndex))
}

func (completionsAPI) appendRole([]byte, *generation, *unit) []byte { return nil }

func (completionsAPI) appendToken(b []byte, g *generation, u *unit, step int) []byte {
	last := step == len(u.tokens)-1
	b = g.appendEnvelope(b, "text_completion")
	b = appendInt(append(b, `{"index":`...), u.index)
	b = append(b, `,"text":`...)
	if step == 0 && g.r.echo {
		b = appendString(b, u.prompt.text+u.tokens[0])
	} else {
		b = appendString(b, u.tokens[step])
	}
	b = append(b, `,"logprobs":`...)
	b = append(g.appendTextLogprobs(b, u.tokens[step:step+1], 0), ',')
	b = g.appendReason(b, u, last)
	b = appendStopReason(append(b, ','), u, last)
	if step == 0 {
		b = g.appendPromptIDs(append(b, ','), u)
	} else {
		b = append(b, `,"prompt_token_ids":null`...)
	}
	b = g.appendTokenIDs(append(b, ','), u.ids[step:step+1])
	b = append(g.appendWeightVersions(b), ']')
	if g.r.continuousUsage {
		b = append(g.appendCounts(append(b, ','), step+1), '}')
	}
	if g.lastOfAll(u, step) {
		b = g.appendFingerprint(append(b, ','))
	}
	return g.appendStreamTransfer(b, last)
}

func (completionsAPI) appendUsageEvent(b []byte, g *generation) []byte {
	b = append(g.appendEnvelope(b, "text_completion"), "],"...)
	b = g.appendCounts(b, g.outputTokens())
	b = appendInt(append(b, `,"prompt_tokens_details":{"cached_tokens":`...), g.cached)
	return append(g.appendFingerprint(append(b, "}},"...)), '}')
}

func (completionsAPI) appendAnswer(b []byte, g *generation) []byte {
	b = g.appendEnvelope(b, "text_completion")
	for i, u := range g.units {
		b = appendInt(append(appendComma(b, i), `{"index":`...), u.index)
		b = append(b, `,"text":`...)
		said := u.tokens
		if g.r.echo {
			said = append(pieces(u.prompt.text), u.tokens...)
		}
		b = appendStrings(b, said)
		b = append(b, `,"logprobs":`...)
		b = append(g.appendTextLogprobs(b, said, len(said)-len(u.tokens)), ',')
		b = g.appendReason(b, u, true)
		b = appendStopReason(append(b, ','), u, true)
		b = g.appendTokenIDs(append(b, ','), u.ids)
		b = g.appendPromptLogprobs(append(b, `,"prompt_logprobs":`...), u)
		b = g.appendPromptIDs(append(b, ','), u)
		b = g.appendWeightVersions(append(b, `,"routed_experts":null`...))
	}
	return g.appendTransfer(g.appendAnswerUsage(b, "null"))
}
