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
	edits := oneTokenChat
	if r.api == Completions {
		edits = oneTokenCompletions
	}
	return r.appendEdited(dst, edits, kvLead, kv)
}

// appendWith appends the client's body with kv as its kv_transfer_params; kv nil appends the plain body.
func (r *Request) appendWith(dst Segments, kv []byte) Segments {
	if kv == nil {
		return r.AppendPlain(dst)
	}
	return r.appendEdited(dst, nil, kvLead, kv)
}
