package kvparams

import (
	"bytes"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Uncarried says why no other engine can go on with a request's answer.
type Uncarried uint8

// The closed set of what a request alone may say against it.
const (
	Carries             Uncarried = iota
	UncarriedAPI                  // only chats and completions have token ids in their events
	UncarriedChoices              // several answers end at several places
	UncarriedMedia                // ids do not hold images, audio and video
	UncarriedTools                // the engine may be inside a call
	UncarriedStructured           // the grammar would begin anew
	UncarriedLogprobs             // those of a text offset count from the prompt
	UncarriedPenalties            // they count what this answer has, and not what its prompt has
	UncarriedStop                 // what is held back for a stop string can be made again only if the text is greedy
	UncarriedMember               // a member with which xpyd does not know how to go on
	Uncarrieds
)

func (u Uncarried) String() string {
	return [Uncarrieds]string{
		Carries: "none", UncarriedAPI: "api", UncarriedChoices: "choices", UncarriedMedia: "media", UncarriedTools: "tools",
		UncarriedStructured: "structured", UncarriedLogprobs: "logprobs", UncarriedPenalties: "penalties", UncarriedStop: "stop",
		UncarriedMember: "member",
	}[u]
}

// Onward is what a request that goes on with the answer of another has of that one.
type Onward struct {
	Members []byte // those of the sampling, each with a comma before it
	Usage   bool   // stream_options.include_usage
	Most    int    // tokens of the answer, or -1 if the engine chooses
	Least   int    // min_tokens
	Held    int    // characters that an engine holds back in case they begin a stop string
}

// OnwardOf is what a continuation of r's answer needs of r, in the memory of members. A member of which this package does
// not know what it means for a continuation prevents one, so a new option of engines is never lost in silence.
func OnwardOf(r *Request, members []byte) (o Onward, why Uncarried) {
	o = Onward{Members: members, Usage: r.usage, Most: r.MostTokens()}
	switch {
	case r.api != Chat && r.api != Completions, !r.Stream():
		return o, UncarriedAPI
	case r.Choices() != 1:
		return o, UncarriedChoices
	case len(r.parts) > 0:
		return o, UncarriedMedia
	case r.Bypass() != ReasonNone:
		return o, UncarriedMember
	}
	o.Least, _ = integer(r.raw(fieldMinTokens))
	s := &r.s
	for w := s.enter(s.space(0), 0); w.next(s); {
		name := r.decode(&w)
		end := endOf(r, fieldOf(name), w.at, w.depth)
		if value := s.b[w.at:end]; value[0] != 'n' {
			if why := o.member(r, name, span{w.at, end}); why != Carries {
				return o, why
			}
			if copied(name) {
				o.Members = append(append(o.Members, ','), s.b[w.key.at-1:end]...)
			}
		}
		w.done(end)
	}
	return o, Carries
}

// endOf is the end of a member's value. The prompt, which may be long, is not read again.
func endOf(r *Request, f field, at, depth int) int {
	if f == r.form().prompt && r.vals[f].at == at {
		return r.vals[f].end
	}
	return r.s.value(at, depth)
}

// copied reports whether a continuation has the member as it is.
func copied(name []byte) bool {
	switch string(name) {
	case "model", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed", "stop", "stop_token_ids", "ignore_eos",
		"skip_special_tokens", "spaces_between_special_tokens", "logit_bias", "allowed_token_ids", "user", "priority", "cache_salt":
		return true
	}
	return false
}

// settled reports whether the member is over once the prompt is a list of ids, or has its place elsewhere in a continuation.
func settled(name []byte) bool {
	switch string(name) {
	case "messages", "prompt", "stream", "max_tokens", "max_completion_tokens", "min_tokens", "n", "best_of", "use_beam_search",
		"chat_template", "chat_template_kwargs", "add_generation_prompt", "continue_final_message", "add_special_tokens", "documents",
		"reasoning_effort", "include_reasoning", "parallel_tool_calls", "metadata", "store", "service_tier", "safety_identifier",
		"prompt_cache_key", "truncate_prompt_tokens", "request_id", "length_penalty", "tool_choice", "kv_transfer_params", "ec_transfer_params":
		return true
	}
	return kvDoor(name)
}

// member says whether a member that is not null prevents a continuation.
func (o *Onward) member(r *Request, name []byte, at span) Uncarried {
	value := at.of(r.s.b)
	off := string(value) == "false" || zero(value)
	switch string(name) {
	case "tools":
		if string(r.raw(fieldToolChoice)) != `"none"` && !emptyValue(value) {
			return UncarriedTools
		}
	case "response_format":
		if string(r.memberText(at.at, "type")) != "text" {
			return UncarriedStructured
		}
	case "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "guided_decoding_backend", "structural_tag":
		return UncarriedStructured
	case "logprobs", "top_logprobs":
		if string(value) != "false" && (string(name) == "logprobs" || !off) {
			return UncarriedLogprobs
		}
	case "presence_penalty", "frequency_penalty":
		if !off {
			return UncarriedPenalties
		}
	case "stop":
		return o.stop(r, at)
	case "include_stop_str_in_output":
		if !off {
			return UncarriedStop
		}
	case "stream_options":
		return plainOptions(r, at.at)
	case "echo", "return_token_ids", "return_tokens_as_token_ids":
		if !off {
			return UncarriedMember
		}
	case "vllm_xargs", "suffix":
		if !emptyValue(value) {
			return UncarriedMember
		}
	default:
		if !copied(name) && !settled(name) {
			return UncarriedMember
		}
	}
	return Carries
}

// zero reports whether value is a number without a digit above 0.
func zero(value []byte) bool {
	f, err := strconv.ParseFloat(string(value), 64)
	return err == nil && f == 0
}

// stop reads the stop strings. An engine shows text only if no stop string can begin in it, so its text comes later than its
// ids. A continuation makes the text again from where the client has all of it, and must make the same.
func (o *Onward) stop(r *Request, at span) Uncarried {
	s := &r.s
	switch s.b[at.at] {
	case '"':
		o.Held = utf8.RuneCount(text(s.b, inner(at))) - 1
	case '[':
		for w := s.enter(at.at, 1); w.next(s); {
			end := s.value(w.at, w.depth)
			if s.b[w.at] != '"' {
				return UncarriedStop
			}
			o.Held = max(o.Held, utf8.RuneCount(text(s.b, inner(span{w.at, end})))-1)
			w.done(end)
		}
	default:
		return UncarriedStop
	}
	o.Held = max(o.Held, 0)
	if emptyValue(at.of(s.b)) || zero(topLevel(r, "temperature")) {
		return Carries
	}
	return UncarriedStop
}

// topLevel is the text of the last top-level member of that name, or nil.
func topLevel(r *Request, name string) (value []byte) {
	s := &r.s
	for w := s.enter(s.space(0), 0); w.next(s); {
		found := string(r.decode(&w)) == name
		end := endOf(r, fieldOf(r.decode(&w)), w.at, w.depth)
		if found {
			value = s.b[w.at:end]
		}
		w.done(end)
	}
	return value
}

// plainOptions allows stream_options with include_usage alone.
func plainOptions(r *Request, at int) Uncarried {
	s := &r.s
	why := Carries
	for w := s.enter(at, 1); w.next(s); {
		end := s.value(w.at, w.depth)
		if string(r.decode(&w)) != "include_usage" && s.b[w.at] != 'n' && s.b[w.at] != 'f' {
			why = UncarriedMember
		}
		w.done(end)
	}
	return why
}

// AppendOnward appends the body of a completion that goes on with an answer: ids are those of the prompt and of the answer so
// far, as many as sent. most is what the answer may still have.
func (o *Onward) AppendOnward(dst []byte, prompt, answer []byte, sent, most int) []byte {
	dst = append(append(dst, `{"prompt":[`...), prompt...)
	if len(prompt) > 0 && len(answer) > 0 {
		dst = append(dst, ',')
	}
	dst = append(append(append(dst, answer...), `],"stream":true,"max_tokens":`...), strconv.Itoa(most)...)
	if o.Usage {
		dst = append(dst, `,"stream_options":{"include_usage":true}`...)
	}
	if least := o.Least - sent; least > 0 {
		dst = append(append(dst, `,"min_tokens":`...), strconv.Itoa(least)...)
	}
	return append(append(dst, o.Members...), '}')
}

// IDs are the lists of ids that the event names, without their brackets: those of the prompt, which stand in the first event,
// and those of the answer's tokens. ev is the event.
func (e Event) IDs(ev []byte) (prompt, answer []byte) {
	if e.in.at < 0 {
		return nil, nil
	}
	ev = ev[e.in.at:]
	return within(e.in.asked, ev), within(e.in.said, ev)
}

func within(at span, data []byte) []byte {
	if at.end == 0 {
		return nil
	}
	return inner(at).of(data)
}

// HideIDs makes the lists of ids null in the event of n bytes that begins at in buf. It returns both anew. Spaces fill up short
// lists, because what follows in buf would have to move.
func (e Event) HideIDs(buf []byte, at, n int) ([]byte, int) {
	if e.in.at < 0 {
		return buf, n
	}
	first, last := e.in.asked, e.in.said
	if first.at > last.at {
		first, last = last, first
	}
	for _, v := range [...]span{last, first} {
		if v.end > 0 {
			from, size := at+e.in.at, v.end-v.at
			if size >= len(nullValue) && size <= shortList {
				list := buf[from+v.at : from+v.end]
				copy(list, filler)
				copy(list, nullValue)
				continue
			}
			buf = slices.Replace(buf, from+v.at, from+v.end, nullValue...)
			n += len(nullValue) - size
		}
	}
	return buf, n
}

// shortList is how long a list of ids is at most for that, in bytes.
const shortList = len(filler)

const filler = "                                                                "

// Shown is the text that the event shows, with its escapes, and whether it has any part that is no such text: reasoning, a
// call, a refusal.
func (e Event) Shown(ev []byte) (raw []byte, other bool) {
	if e.in.at < 0 { // its places are not known
		return nil, e.Kind == EventContent
	}
	return within(e.in.shown, ev[e.in.at:]), e.in.other
}

// Names reports whether the event names a role.
func (e Event) Names() bool { return e.in.role }

// Unescaped appends the text of a JSON string's content to dst.
func Unescaped(dst, raw []byte) []byte { return unescape(dst, raw) }

// CutText cuts the beginning of want off raw, the content of a JSON string. What is left of one of them is empty, unless they
// differ.
func CutText(raw, want []byte) (rest, left []byte, ok bool) {
	var unit [8]byte
	for len(raw) > 0 && len(want) > 0 {
		n := unitOf(raw)
		is := unescape(unit[:0], raw[:n])
		if !bytes.HasPrefix(want, is) {
			return raw, want, false
		}
		raw, want = raw[n:], want[len(is):]
	}
	return raw, want, true
}

// unitOf is the length of the first character of a string's content, or of its first byte.
func unitOf(raw []byte) int {
	switch {
	case raw[0] != '\\':
		return 1
	case raw[1] != 'u':
		return 2
	}
	if len(raw) >= 12 && raw[6] == '\\' && raw[7] == 'u' && raw[2]|0x20 == 'd' && raw[3]|0x20 >= '8' {
		return 12
	}
	return 6
}
