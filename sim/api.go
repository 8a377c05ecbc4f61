package sim

// api is what differs between the APIs: the request model, ids and shapes. Members come in the recorded
// order.
type api interface {
	read(r *request, f *fields)
	prefix() string                               // of the answer's id
	internalID(id string, promptIndex int) string // the engine's id, without its random suffix
	appendRole(b []byte, g *generation, u *unit) []byte
	appendToken(b []byte, g *generation, u *unit, step int) []byte // nil when the token has no event
	appendUsageEvent(b []byte, g *generation) []byte
	appendAnswer(b []byte, g *generation) []byte
	lead() string                              // before the payload of each event
	appendDone(b []byte, g *generation) []byte // the event that ends a stream
	streamError(o Options) string              // the event of an error in a stream
	appendError(b []byte, e *apiError) []byte
}

// name is the id of the answer. A response has the body's own, whatever X-Request-Id says.
func (g *generation) name() string {
	base := g.rec.RequestID
	if _, response := g.api.(responsesAPI); response {
		if g.r.requestID != "" {
			return g.r.requestID
		}
		base = randomHex(8)
	}
	if base == "" {
		base = g.r.requestID
	}
	if base == "" {
		base = randomHex(8)
	}
	return g.api.prefix() + base
}

// appendEnvelope appends the members before the choices, and opens their list.
func (g *generation) appendEnvelope(b []byte, object string) []byte {
	b = appendString(append(b, `{"id":`...), g.id)
	b = append(append(append(b, `,"object":"`...), object...), `","created":`...)
	b = appendInt(b, int(g.created))
	b = appendString(append(b, `,"model":`...), g.c.o.Model)
	return append(b, `,"choices":[`...)
}

func (g *generation) appendFingerprint(b []byte) []byte {
	return appendString(append(b, `"system_fingerprint":`...), g.c.print)
}

// appendCounts appends the three counts that open every usage object.
func (g *generation) appendCounts(b []byte, completion int) []byte {
	p := g.promptTokens()
	b = appendInt(append(b, `"usage":{"prompt_tokens":`...), p)
	b = appendInt(append(b, `,"total_tokens":`...), p+completion)
	return appendInt(append(b, `,"completion_tokens":`...), completion)
}

// appendAnswerUsage appends the usage of an answer that is not streamed.
// created is created_cache_tokens: a number on chat, null on completions.
func (g *generation) appendAnswerUsage(b []byte, created string) []byte {
	b = g.appendFingerprint(append(b, `],"service_tier":null,`...))
	b = g.appendCounts(append(b, ','), g.outputTokens())
	b = appendInt(append(b, `,"prompt_tokens_details":{"cached_tokens":`...), g.cached)
	b = append(append(b, `,"created_cache_tokens":`...), created...)
	return append(b, `,"multimodal_tokens":null},"completion_tokens_details":null},`...)
}

// appendTransfer appends the members that end every answer.
func (g *generation) appendTransfer(b []byte) []byte {
	b = append(b, `"kv_transfer_params":`...)
	if g.handle == nil {
		b = append(b, "null"...)
	} else {
		b = append(b, g.handle...)
	}
	b = append(b, `,"ec_transfer_params":`...)
	return append(g.appendEncodings(b), `,"metrics":null}`...)
}

// appendWeightVersions ends a choice.
func (g *generation) appendWeightVersions(b []byte) []byte {
	if g.c.o.since(33) {
		b = append(b, `,"weight_versions":null`...)
	}
	return append(b, '}')
}

// appendStreamTransfer ends an event. From 0.33 on it adds kv_transfer_params, which are null
// except where a choice ends.
func (g *generation) appendStreamTransfer(b []byte, last bool) []byte {
	switch {
	case !g.c.o.tellsHandleInStreams():
		return append(b, '}')
	case last && g.handle != nil:
		return append(append(append(b, `,"kv_transfer_params":`...), g.handle...), '}')
	}
	return append(b, `,"kv_transfer_params":null}`...)
}

// appendReason appends finish_reason. A finished choice also has its stop_reason.
func (g *generation) appendReason(b []byte, u *unit, last bool) []byte {
	b = append(b, `"finish_reason":`...)
	if !last || g.faults.has(FaultNoFinish) {
		return append(b, "null"...)
	}
	return append(append(append(b, '"'), u.finishReason(g.r)...), '"')
}

func appendStopReason(b []byte, u *unit, last bool) []byte {
	b = append(b, `"stop_reason":`...)
	if !last || u.stopReason == "" {
		return append(b, "null"...)
	}
	return appendString(b, u.stopReason)
}

// appendTokenIDs appends ids of tokens, if the request wants them.
func (g *generation) appendTokenIDs(b []byte, ids []int) []byte {
	b = append(b, `"token_ids":`...)
	if !g.r.tokenIDs {
		return append(b, "null"...)
	}
	return appendInts(b, ids)
}

// appendPromptIDs appends the prompt's tokens, when the request wants them.
func (g *generation) appendPromptIDs(b []byte, u *unit) []byte {
	b = append(b, `"prompt_token_ids":`...)
	if !g.r.tokenIDs {
		return append(b, "null"...)
	}
	return appendInts(b, u.prompt.idsFrom(0))
}

// lastOfAll reports whether this is the last token event of the stream, which carries the
// fingerprint if no usage event follows.
func (g *generation) lastOfAll(u *unit, step int) bool {
	if g.r.includeUsage || step != g.steps()-1 {
		return false
	}
	for _, other := range g.units[u.index+1:] {
		if len(other.tokens) == g.steps() {
			return false
		}
	}
	return true
}
