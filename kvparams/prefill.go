package kvparams

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
)

// oneTokenChat turns a chat request into one that computes its prompt and a single token, and does
// not stream. min_tokens keeps a first token that ends the text from ending the request as
// "stopped", after which some engines return no handle. What would repeat the prompt in the answer
// is switched off, because it may be larger than limits.answer. See Reuse for an exception.
var oneTokenChat = []edit{
	{fieldStream, []byte("false"), nil},
	{fieldStreamOptions, nil, nil},
	{fieldMaxTokens, []byte("1"), []byte(`,"max_tokens":1`)},
	{fieldMaxCompletionTokens, []byte("1"), []byte(`,"max_completion_tokens":1`)},
	{fieldMinTokens, []byte("1"), []byte(`,"min_tokens":1`)},
	{fieldReturnTokenIDs, []byte("false"), nil},
}

// oneTokenCompletions adds no max_completion_tokens if the client sent none, because vLLM does not
// know it on this path.
var oneTokenCompletions = []edit{
	{fieldStream, []byte("false"), nil},
	{fieldStreamOptions, nil, nil},
	{fieldMaxTokens, []byte("1"), []byte(`,"max_tokens":1`)},
	{fieldMaxCompletionTokens, []byte("1"), nil},
	{fieldMinTokens, []byte("1"), []byte(`,"min_tokens":1`)},
	{fieldReturnTokenIDs, []byte("false"), nil},
	{fieldEcho, []byte("false"), nil},
}

// oneTokenMessages has no min_tokens, which is not known on this path. vLLM gives a handle for a first
// token that ends the text too.
var oneTokenMessages = []edit{
	{fieldStream, []byte("false"), nil},
	{fieldMaxTokens, []byte("1"), nil}, // the API requires it
}

// oneTokenUnmarked is oneTokenMessages without a budget for thinking. vLLM refuses one of max_tokens or
// more, except in a prefill leg that says do_remote_decode. Its prompts are the same with a budget and
// without. See Request.budgets.
var oneTokenUnmarked = append(oneTokenMessages[:len(oneTokenMessages):len(oneTokenMessages)], edit{fieldThinking, nil, nil})

// oneTokenResponses keeps the answer out of the memory of an engine that stores responses.
var oneTokenResponses = []edit{
	{fieldStream, []byte("false"), nil},
	{fieldMaxOutputTokens, []byte("1"), []byte(`,"max_output_tokens":1`)},
	{fieldStore, []byte("false"), []byte(`,"store":false`)},
	{fieldResponseMessages, []byte("false"), nil},
}

// oneTokenCapped is oneTokenResponses for connectors that hand blocks over only if max_tokens has ended the request. The
// API has no min_tokens, so no token may end the text. See capped.
var oneTokenCapped = append(oneTokenResponses[:len(oneTokenResponses):len(oneTokenResponses)],
	edit{fieldIgnoreEOS, []byte("true"), []byte(`,"ignore_eos":true`)},
	edit{fieldStopTokenIDs, []byte("[]"), nil},
)

// oneTokenGenerate edits sampling_params, where this API has its limits.
var oneTokenGenerate = []edit{
	{fieldStream, []byte("false"), nil},
	{fieldStreamOptions, nil, nil},
	{fieldReturnTokenIDs, []byte("false"), nil},
	{fieldMaxTokens, []byte("1"), []byte(`,"max_tokens":1`)},
	{fieldMinTokens, []byte("1"), []byte(`,"min_tokens":1`)},
}

var kvLead = []byte(`,"kv_transfer_params":`)

// marked begins parameters by which vLLM knows a prefill leg.
var marked = []byte(`{"do_remote_decode":true`)

// appendOneToken appends the one-token form of the request with kv as its kv_transfer_params.
func (r *Request) appendOneToken(dst Segments, kv []byte) Segments {
	edits := r.form().unmarked
	if bytes.HasPrefix(kv, marked) {
		edits = r.form().oneToken
		if r.api == Responses {
			edits = oneTokenCapped
		}
	}
	return r.appendEdited(dst, edits, kvLead, kv)
}

// appendRejected appends a body for /v1/completions with kv as its kv_transfer_params. Its max_tokens
// of 0 passes vLLM's request model and fails in its handler, which then notifies P. A request that
// fails in the model does not notify P.
func (r *Request) appendRejected(dst Segments, kv []byte) Segments {
	dst = dst.add([]byte(`{`))
	if model := r.raw(fieldModel); model != nil {
		dst = dst.add([]byte(`"model":`)).add(model).add([]byte(`,`))
	}
	return dst.add([]byte(`"prompt":"a","max_tokens":0,"kv_transfer_params":`)).add(kv).add([]byte(`}`))
}

// appendDrain appends the one-token form of the request with kv as its kv_transfer_params, for a
// decode engine that reads the blocks of an abandoned handle.
func (r *Request) appendDrain(dst Segments, kv []byte) Segments {
	return r.appendEdited(dst, r.form().unmarked, drainLead(), kv)
}

// drainLead is what a drain adds to the one-token form. By the time the blocks are read they may be
// another prompt's, and D keeps them in its prefix cache. Under a random cache_salt no request
// finds them there. Any client could send a constant salt. A client's own salt comes before this
// one, and engines take the last.
func drainLead() []byte {
	var salt [16]byte
	rand.Read(salt[:])
	lead := hex.AppendEncode([]byte(`,"cache_salt":"`), salt[:])
	return append(append(lead, '"'), kvLead...)
}

// appendWith appends the client's body with kv as its kv_transfer_params. If kv is nil, it appends
// the plain body.
func (r *Request) appendWith(dst Segments, kv []byte) Segments {
	if kv == nil {
		return r.AppendPlain(dst)
	}
	return r.appendEdited(dst, nil, kvLead, kv)
}
