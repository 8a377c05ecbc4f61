package kvparams

import "bytes"

// field is a member of a request that this package reads or edits.
type field uint8

const (
	fieldOther  field = iota // passes as it is
	fieldHidden              // a door to KV parameters, or one of Request.Deny
	fieldModel
	fieldMessages
	fieldPrompt
	fieldPromptEmbeds
	fieldStream
	fieldStreamOptions
	fieldMaxTokens
	fieldMaxCompletionTokens
	fieldMinTokens
	fieldN
	fieldBestOf
	fieldBeamSearch
	fieldPromptLogprobs
	fieldEcho
	fieldLogprobs
	fieldToolChoice
	fieldPreviousResponse
	fieldBackground
	fieldXargs
	fieldSamplingParams
	fieldReturnTokenIDs
	fieldPriority
	fieldMaxOutputTokens
	fieldInput
	fieldTokenIDs
	fieldTools
	fieldStore
	fieldResponseMessages
	fieldPromptLogprobIDs
	fieldThinking
	fieldIgnoreEOS
	fieldStopTokenIDs
	fieldCacheSalt
	fieldClosing // no member, see mark
	fieldCount
)

func fieldOf(name []byte) field {
	switch string(name) {
	case "model":
		return fieldModel
	case "messages":
		return fieldMessages
	case "prompt":
		return fieldPrompt
	case "prompt_embeds":
		return fieldPromptEmbeds
	case "stream":
		return fieldStream
	case "stream_options":
		return fieldStreamOptions
	case "max_tokens":
		return fieldMaxTokens
	case "max_completion_tokens":
		return fieldMaxCompletionTokens
	case "min_tokens":
		return fieldMinTokens
	case "tool_choice":
		return fieldToolChoice
	case "vllm_xargs":
		return fieldXargs
	case "sampling_params":
		return fieldSamplingParams
	case "return_token_ids":
		return fieldReturnTokenIDs
	case "priority":
		return fieldPriority
	case "max_output_tokens":
		return fieldMaxOutputTokens
	case "input":
		return fieldInput
	case "token_ids":
		return fieldTokenIDs
	}
	return typedFieldOf(name)
}

// typedFieldOf knows what only Anthropic's API and the responses API have, or what is edited only there. It also knows
// cache_salt, which all APIs have.
func typedFieldOf(name []byte) field {
	switch string(name) {
	case "store":
		return fieldStore
	case "enable_response_messages":
		return fieldResponseMessages
	case "thinking":
		return fieldThinking
	case "ignore_eos":
		return fieldIgnoreEOS
	case "stop_token_ids":
		return fieldStopTokenIDs
	case "cache_salt":
		return fieldCacheSalt
	}
	return bypassFieldOf(name)
}

// bypassFieldOf knows the fields that only decide whether P and D can share a request.
func bypassFieldOf(name []byte) field {
	switch string(name) {
	case "n":
		return fieldN
	case "best_of":
		return fieldBestOf
	case "use_beam_search":
		return fieldBeamSearch
	case "prompt_logprobs":
		return fieldPromptLogprobs
	case "echo":
		return fieldEcho
	case "logprobs":
		return fieldLogprobs
	case "previous_response_id":
		return fieldPreviousResponse
	case "background":
		return fieldBackground
	case "tools":
		return fieldTools
	case "prompt_logprob_token_ids":
		return fieldPromptLogprobIDs
	}
	return fieldOther
}

// editable reports whether the place of the field among the members is kept, so that a body can
// be written without it.
func (f field) editable() bool {
	switch f {
	case fieldStream, fieldStreamOptions, fieldMaxTokens, fieldMaxCompletionTokens, fieldMinTokens, fieldEcho, fieldReturnTokenIDs, fieldHidden,
		fieldMaxOutputTokens, fieldStore, fieldResponseMessages, fieldIgnoreEOS, fieldStopTokenIDs, fieldCacheSalt:
		return true
	}
	return false
}

// kvDoor reports whether name hands KV parameters to an engine at the top level of a request.
// vLLM reads the first two. The others lead to the same place in other engines and other proxies.
func kvDoor(name []byte) bool {
	if kvAlias(name) {
		return true
	}
	switch string(name) {
	case "bootstrap_host", "bootstrap_port", "bootstrap_room":
		return true
	}
	return bytes.HasPrefix(name, []byte("disagg_"))
}

// kvAlias reports whether name hands over KV parameters inside vllm_xargs or
// sampling_params.extra_args. vLLM makes these the extra_args of the sampling parameters, where
// its scheduler looks them up.
func kvAlias(name []byte) bool {
	switch string(name) {
	case "kv_transfer_params", "ec_transfer_params":
		return true
	}
	return false
}
