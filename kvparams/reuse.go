package kvparams

// Reuse says for which prompts the token ids of the prefill go to decode, which then neither renders nor
// tokenises the messages. vLLM 0.32 reads them in kv_transfer_params of a chat, and of no other API. It
// ignores them if the request has echo, or if messages contain more than text. The zero value is for no
// prompts.
type Reuse struct {
	From   int64 // size of a prompt in bytes from which xpyd asks for its ids; 0: never
	Answer int64 // the largest prefill answer that xpyd uses, in bytes
}

// idBytes is how much a byte of the prompt may add to the prefill answer: a token of seven digits and its
// comma, and a third of that for the template and the blocks. The ids must not be why an answer is too large.
const idBytes = 12

// Lookup finds a dialect by its name in a configuration. The dialect hands over ids if its engines can
// take them.
func (u Reuse) Lookup(name string) (Dialect, bool) {
	switch d, ok := Lookup(name); d := d.(type) {
	case nixl:
		d.reuse = u
		return d, ok
	case nixlPush:
		d.reuse = u
		return d, ok
	default:
		return d, ok
	}
}

// oneTokenIDs is oneTokenChat with the ids of the prompt in its answer.
var oneTokenIDs = append(oneTokenChat[:len(oneTokenChat)-1:len(oneTokenChat)-1],
	edit{fieldReturnTokenIDs, []byte("true"), []byte(`,"return_token_ids":true`)})

// wants reports whether the ids of the request's prompt are asked for.
func (u Reuse) wants(r *Request) bool {
	size := int64(r.PromptBytes())
	return u.From > 0 && r.api == Chat && !r.ownTokens && size >= u.From && size <= u.Answer/idBytes
}

// ownTokens names the members with which decode must make the tokens itself. With ids it tells the client
// neither the text of the prompt nor where its tokens are, and truncates nothing.
func ownTokens(name []byte) bool {
	switch string(name) {
	case "return_prompt_text", "return_token_offsets", "truncate_prompt_tokens", "truncation_side":
		return true
	}
	return false
}

// oneToken is what turns the request into its prefill leg.
func (u Reuse) oneToken(r *Request) []edit {
	if u.wants(r) {
		return oneTokenIDs
	}
	return r.form().oneToken
}

var idsLead, handleEnd = []byte(`,"prompt_token_ids":`), []byte(`}`)

// appendHandle appends the client's body with h as its kv_transfer_params, and in it the ids if they were
// asked for. lead is the comma, name and colon. end is what ends the handle, perhaps with a further member.
func (u Reuse) appendHandle(dst Segments, r *Request, h Handle, lead, end []byte) Segments {
	open := h.Raw[:len(h.Raw)-1] // a handle that was read has members
	if len(h.prompt) == 0 || !u.wants(r) {
		return r.appendEdited(dst, nil, lead, open, end)
	}
	return r.appendEdited(dst, nil, lead, open, idsLead, h.prompt, end)
}

// readPrompt reads the ids of the prompt. A list that holds anything but ids, and one of two lists, is not
// used: decode then tokenises the messages.
func (a *answer) readPrompt() (end int) {
	s, w := &a.s, &a.w
	first := a.prompt.met == 0
	a.prompt.met++
	a.prompt.n = 0
	if s.byteAt(w.at) != '[' {
		return s.value(w.at, w.depth)
	}
	n, end := s.ids(w.at, w.depth)
	if first && end >= 0 {
		a.prompt.n, a.prompt.at = n, span{w.at, end}
	}
	return end
}

// promptIDs is a prompt_token_ids in an answer.
type promptIDs struct {
	at  span
	n   int // ids; 0 if the list is not used
	met int // how often the member was there
}

// of is the list, as the answer has it, or nil if it is not as long as the prompt.
func (p promptIDs) of(body []byte, tokens int) []byte {
	if p.n == 0 || p.n != tokens {
		return nil
	}
	return p.at.of(body)
}
