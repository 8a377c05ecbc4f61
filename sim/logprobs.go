package sim

// Log probabilities have vLLM's shape and invented values: a function of the
// token and its place among the alternatives.

func logprob(token string, rank int) float64 {
	return -float64(mix(hashText(token), uint64(rank))%1000)/400 - float64(rank) - 0.25
}

// alternative is the rank-th most likely token in place of token; 0 is itself.
func alternative(token string, rank int) string {
	if rank == 0 {
		return token
	}
	return " " + words[mix(hashText(token), uint64(rank))%uint64(len(words))] + string(appendInt(nil, rank))
}

// appendChatLogprobs appends the logprobs member of a chat choice.
func (g *generation) appendChatLogprobs(b []byte, tokens []string) []byte {
	if g.r.logprobs < 0 {
		return append(b, "null"...)
	}
	b = append(b, `{"content":[`...)
	for i, token := range tokens {
		b = appendComma(b, i)
		b = append(appendTokenLogprob(b, token, token, 0), `,"top_logprobs":[`...)
		for rank := range g.r.logprobs {
			b = appendComma(b, rank)
			b = append(appendTokenLogprob(b, token, alternative(token, rank), rank), '}')
		}
		b = append(b, "]}"...)
	}
	return append(b, "]}"...)
}

func appendTokenLogprob(b []byte, token, shown string, rank int) []byte {
	b = appendString(append(b, `{"token":`...), shown)
	b = appendFloat(append(b, `,"logprob":`...), logprob(token, rank))
	b = append(b, `,"bytes":[`...)
	for i := range len(shown) {
		b = appendInt(appendComma(b, i), int(shown[i]))
	}
	return append(b, ']')
}

// appendTextLogprobs appends the logprobs member of a completions choice; the
// first prompted tokens are echoed ones, the very first of which has no
// probability.
func (g *generation) appendTextLogprobs(b []byte, tokens []string, prompted int) []byte {
	if g.r.logprobs < 0 {
		return append(b, "null"...)
	}
	b = append(b, `{"text_offset":[`...)
	offset := 0
	for i, token := range tokens {
		b = appendInt(appendComma(b, i), offset)
		offset += len([]rune(token))
	}
	b = append(b, `],"token_logprobs":[`...)
	for i, token := range tokens {
		b = appendComma(b, i)
		if i == 0 && prompted > 0 {
			b = append(b, "null"...)
		} else {
			b = appendFloat(b, logprob(token, 0))
		}
	}
	b = append(appendEach(append(b, `],"tokens":[`...), tokens), `],"top_logprobs":[`...)
	for i, token := range tokens {
		b = appendComma(b, i)
		if i == 0 && prompted > 0 {
			b = append(b, "null"...)
			continue
		}
		b = append(b, '{')
		for rank := range max(g.r.logprobs, 1) {
			b = appendString(appendComma(b, rank), alternative(token, rank))
			b = appendFloat(append(b, ':'), logprob(token, rank))
		}
		b = append(b, '}')
	}
	return append(b, "]}"...)
}

// appendPromptLogprobs appends what echo with logprobs adds about the prompt.
func (g *generation) appendPromptLogprobs(b []byte, u *unit) []byte {
	if !g.r.echo || g.r.logprobs < 0 {
		return append(b, "null"...)
	}
	b = append(b, '[')
	for i, token := range pieces(u.prompt.text) {
		if i == 0 {
			b = append(b, "null"...)
			continue
		}
		b = append(b, `,{`...)
		for rank := range max(g.r.logprobs, 1) {
			shown := alternative(token, rank)
			b = appendInt(append(appendComma(b, rank), '"'), encode(shown)[0])
			b = appendFloat(append(b, `":{"logprob":`...), logprob(token, rank))
			b = appendInt(append(b, `,"rank":`...), rank+1)
			b = append(appendString(append(b, `,"decoded_token":`...), shown), '}')
		}
		b = append(b, '}')
	}
	return append(b, ']')
}
