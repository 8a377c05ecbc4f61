package kvparams

import "bytes"

// Reason says why a request goes only to a decode engine.
type Reason uint8

// The closed set of reasons. Reasons is their number.
const (
	ReasonNone           Reason = iota // the request may be split
	ReasonN                            // several choices would share one handle
	ReasonBestOf                       // the same
	ReasonBeamSearch                   // vLLM builds new sampling parameters, without the handle
	ReasonPromptList                   // several prompts, but a handle for the first only
	ReasonPromptEmbeds                 // D looks only for the KV blocks of token ids, and would compute the prompt again
	ReasonPromptLogprobs               // pulled KV blocks have no logits of the prompt
	ReasonEchoLogprobs                 // the same
	ReasonMaxTokensZero                // nothing to decode
	ReasonStateful                     // its state lives on one server
	ReasonInvalidFields                // the edits for prefill would hide a fault that decode finds later
	ReasonServerTools                  // the engine calls the tools, and then runs again with a spent handle
	Reasons
)

func (r Reason) String() string {
	return [Reasons]string{
		ReasonNone:           "none",
		ReasonN:              "n",
		ReasonBestOf:         "best_of",
		ReasonBeamSearch:     "beam_search",
		ReasonPromptList:     "prompt_list",
		ReasonPromptEmbeds:   "prompt_embeds",
		ReasonPromptLogprobs: "prompt_logprobs",
		ReasonEchoLogprobs:   "echo_logprobs",
		ReasonMaxTokensZero:  "max_tokens_zero",
		ReasonStateful:       "stateful",
		ReasonInvalidFields:  "invalid_fields",
		ReasonServerTools:    "server_tools",
	}[r]
}

// completionsMaxTokens is vLLM's max_tokens on /v1/completions if the request has none or null.
const completionsMaxTokens = 16

// Bypass says why this request must not be split between prefill and decode.
func (r *Request) Bypass() Reason {
	switch {
	case !r.absentOr(fieldN, "1"):
		return ReasonN
	case !r.absentOr(fieldBestOf, "1"):
		return ReasonBestOf
	case !r.absentOr(fieldBeamSearch, "false"):
		return ReasonBeamSearch
	case r.promptCount() > 1:
		return ReasonPromptList
	case r.api == Completions && r.embeds > 0 && r.raw(fieldPromptEmbeds) != nil:
		return ReasonPromptEmbeds
	case !r.absentOr(fieldPromptLogprobs, "null"), !r.absentOr(fieldPromptLogprobIDs, "null"):
		return ReasonPromptLogprobs
	case r.echoesLogprobs():
		return ReasonEchoLogprobs
	case r.noOutput():
		return ReasonMaxTokensZero
	case !r.absentOr(fieldPreviousResponse, "false"), !r.absentOr(fieldBackground, "false"):
		return ReasonStateful
	case r.served:
		return ReasonServerTools
	case !r.overwrittenFieldsValid():
		return ReasonInvalidFields
	}
	return ReasonNone
}

// raw is the text of a field's value, or nil if the field is absent or null.
func (r *Request) raw(f field) []byte {
	if !r.seen.has(f) {
		return nil
	}
	if v := r.vals[f].of(r.s.b); v[0] != 'n' {
		return v
	}
	return nil
}

// absentOr reports whether the field is absent, null, or literally v.
func (r *Request) absentOr(f field, v string) bool {
	raw := r.raw(f)
	return raw == nil || string(raw) == v
}

// boolean reports whether the field is absent, null, true or false.
func (r *Request) boolean(f field) bool { return r.absentOr(f, "true") || r.absentOr(f, "false") }

func (r *Request) isZero(f field) bool {
	n, ok := integer(r.raw(f))
	return ok && n == 0
}

// noOutput reports whether one of the limits is 0.
func (r *Request) noOutput() bool {
	for _, f := range r.form().limits {
		if r.isZero(f) {
			return true
		}
	}
	return false
}

// echoesLogprobs reports whether the request asks for logprobs of the prompt by echo. On
// completions vLLM takes logprobs for prompt_logprobs under echo. On chat it takes top_logprobs,
// whose default is 0 and not null, so echo alone asks for them.
func (r *Request) echoesLogprobs() bool {
	if r.absentOr(fieldEcho, "false") {
		return false
	}
	return r.api == Chat || !r.absentOr(fieldLogprobs, "null")
}

// promptCount includes prompt_embeds, because vLLM runs each of them as a further prompt.
func (r *Request) promptCount() int {
	embeds := r.raw(fieldPromptEmbeds)
	if r.api != Completions || embeds == nil {
		return r.prompts
	}
	n := 0
	if r.raw(fieldPrompt) != nil {
		n = r.prompts
	}
	return n + r.embeds
}

// overwrittenFieldsValid checks the fields in which P sees values of the proxy. P cannot refuse
// the client's values, and D would refuse them only after the prefill. It is stricter than vLLM's
// model, which also takes "5" and 5.0 for 5.
func (r *Request) overwrittenFieldsValid() bool {
	stream := r.raw(fieldStream)
	if stream != nil && stream[0] != 't' && stream[0] != 'f' {
		return false
	}
	if opts := r.raw(fieldStreamOptions); opts != nil && (opts[0] != '{' || !r.Stream() || r.badOpts) {
		return false
	}
	limit, ok := r.tokenLimit()
	if !ok || !r.boolean(fieldReturnTokenIDs) || r.api == Completions && !r.boolean(fieldEcho) ||
		!r.boolean(fieldStore) || !r.boolean(fieldResponseMessages) || !r.stopsValid() {
		return false
	}
	if !r.seen.has(fieldMinTokens) {
		return true
	}
	least, ok := integer(r.raw(fieldMinTokens)) // vLLM refuses null here
	return ok && least >= 0 && (limit < 0 || least <= limit)
}

// Exceeds reports whether an engine certainly refuses the request, because a prompt and its answer may have at most
// longest tokens together. P would not: it makes one token. longest is 0 if it is not known. Of a text, the tokens are not
// known either, and neither are those of ids that the engine truncates. Generate is no API whose answers are refused: they
// end at that length.
func (r *Request) Exceeds(longest int) bool {
	limit, ok := r.tokenLimit()
	if longest <= 0 || !ok || limit < 0 || r.api == Generate {
		return false
	}
	if r.tokens >= 0 && r.promptCount() == 1 && !r.truncates() {
		limit += r.tokens
	}
	return limit > longest
}

func (r *Request) truncates() bool {
	for _, m := range r.rendered {
		if name := m.name.of(r.s.b); string(name) == "truncate_prompt_tokens" || bytes.IndexByte(name, '\\') >= 0 {
			return true
		}
	}
	return len(r.rendered) == maxRendered
}

// MostTokens is how many tokens a choice of the answer may have at most, or -1 if the engine chooses.
func (r *Request) MostTokens() int {
	if limit, ok := r.tokenLimit(); ok {
		return limit
	}
	return -1
}

// stopsValid is about the fields of oneTokenCapped. vLLM takes no null for ignore_eos.
func (r *Request) stopsValid() bool {
	ids := r.raw(fieldStopTokenIDs)
	return (ids == nil || ids[0] == '[') && r.boolean(fieldIgnoreEOS) && (!r.seen.has(fieldIgnoreEOS) || r.raw(fieldIgnoreEOS) != nil)
}

// tokenLimit is the requested number of output tokens, or -1 if the engine chooses. ok is false if
// a limit is not a plain positive integer.
func (r *Request) tokenLimit() (limit int, ok bool) {
	limit = -1
	switch {
	case r.api == Completions:
		limit = completionsMaxTokens
	case r.api == Messages && r.raw(fieldMaxTokens) == nil:
		return 0, false // it is required
	case r.api == Generate && (len(r.raw(fieldSamplingParams)) == 0 || r.raw(fieldSamplingParams)[0] != '{'):
		return 0, false // so is the object that holds it
	}
	for _, f := range r.form().limits {
		raw := r.raw(f)
		if raw == nil {
			continue
		}
		if limit, ok = integer(raw); !ok || limit < 1 {
			return 0, false
		}
	}
	return limit, true
}
