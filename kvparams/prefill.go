package kvparams

// oneTokenChat turns a chat request into one that computes its prompt and a single token, not streamed.
// min_tokens keeps a first token that would end the text from ending the request as "stopped", after which some engines
// return no handle.
var oneTokenChat = []edit{
	{fieldStream, []byte("false"), nil},
	{fieldStreamOptions, nil, nil},
	{fieldMaxTokens, []byte("1"), []byte(`,"max_tokens":1`)},
	{fieldMaxCompletionTokens, []byte("1"), []byte(`,"max_completion_tokens":1`)},
	{fieldMinTokens, []byte("1"), []byte(`,"min_tokens":1`)},
}

// oneTokenCompletions adds no max_completion_tokens where the client sent none: vLLM does not know it on this route.
var oneTokenCompletions = []edit{
	{fieldStream, []byte("false"), nil},
	{fieldStreamOptions, nil, nil},
	{fieldMaxTokens, []byte("1"), []byte(`,"max_tokens":1`)},
	{fieldMaxCompletionTokens, []byte("1"), nil},
	{fieldMinTokens, []byte("1"), []byte(`,"min_tokens":1`)},
}

var kvLead = []byte(`,"kv_transfer_params":`)

// appendOneToken appends the one-token form of the request with kv as its kv_transfer_params.
func (r *Request) appendOneToken(dst Segments, kv []byte) Segments {
	return r.appendEdited(dst, r.oneToken(), kvLead, kv)
}

func (r *Request) oneToken() []edit {
	if r.api == Completions {
		return oneTokenCompletions
	}
	return oneTokenChat
}

// drainLead: the blocks may be another prompt's by the time they are read. Under a cache_salt of its own no client's
// request finds them in D's prefix cache. A client's own salt stands before; engines take the last one.
var drainLead = []byte(`,"cache_salt":"xpyd-drain","kv_transfer_params":`)

// appendWith appends the client's body with kv as its kv_transfer_params; kv nil appends the plain body.
func (r *Request) appendWith(dst Segments, kv []byte) Segments {
	if kv == nil {
		return r.AppendPlain(dst)
	}
	return r.appendEdited(dst, nil, kvLead, kv)
}
