package kvparams

import "bytes"

// Trait is what in a request an engine takes or refuses by the flags that it was started with.
type Trait uint8

const (
	OffersTools Trait = 1 << iota // the model may call a tool
	DemandsTool                   // it must
	HoldsMedia                    // images, sounds or videos
)

// Traits returns those of the request.
func (r *Request) Traits() (has Trait) {
	switch {
	case r.ForcedTool():
		has = DemandsTool
	case r.offersTools():
		has = OffersTools
	}
	if len(r.parts) > 0 {
		has |= HoldsMedia
	}
	return has
}

// offersTools reports whether the request has tools, and its tool_choice is not none.
func (r *Request) offersTools() bool {
	if raw := r.raw(fieldToolChoice); raw != nil {
		choice := r.vals[fieldToolChoice]
		if raw[0] == '"' && string(text(r.s.b, inner(choice))) == "none" || string(r.memberText(choice.at, "type")) == "none" {
			return false
		}
	}
	for _, m := range r.rendered {
		if m.as == renderedTools && bytes.IndexByte(m.val.of(r.s.b), '{') >= 0 {
			return r.api != Completions && r.api != Generate
		}
	}
	return false
}

// refusals are the texts by which vLLM refuses a request for its flags, with the flag to name. always has the
// traits with which the engine refuses every request.
var refusals = []struct {
	text, flag string
	always     Trait
}{
	{"--tool-call-parser", "--tool-call-parser and --enable-auto-tool-choice", OffersTools | DemandsTool},
	{"At most 0 image(s) may be provided", "--limit-mm-per-prompt", HoldsMedia},
	{"(s) may be provided in one prompt", "--limit-mm-per-prompt", 0},
	{"reasoning_config is not configured", "--reasoning-parser", 0},
	{"--trust-request-chat-template", "--trust-request-chat-template", 0},
	{"--allowed-local-media-path", "--allowed-local-media-path", 0},
}

// RefusingFlag returns the flag of vLLM that an engine's error blames, or "", and the traits with which the engine
// refuses every request.
func RefusingFlag(body []byte) (flag string, always Trait) {
	for _, r := range refusals {
		if bytes.Contains(body, []byte(r.text)) {
			return r.flag, r.always
		}
	}
	return "", 0
}
