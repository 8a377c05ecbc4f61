// Package kvparams turns bytes into bytes: a completion request into the bodies of its prefill leg and
// its decode leg, and a prefill answer into the handle that joins the two. One validating pass finds
// the positions of the fields. The package builds and rewrites no document, so each byte that it does
// not edit stays as the client wrote it.
package kvparams

import (
	"bytes"
	"fmt"
)

// Request is what one pass over a request body has found: positions in the caller's buffer. The zero
// value is ready for Parse, and reuse costs no allocation. It is not safe for concurrent use.
type Request struct {
	// Deny lists further top-level fields that are treated like a client's own
	// kv_transfer_params. Parse and Reset keep it.
	Deny []string
	// FindMedia makes Parse note the items that Media counts. Parse and Reset keep it.
	FindMedia bool

	api     API
	s       scanner
	seen    fieldSet
	vals    [fieldCount]span
	marks   []mark // editable members, by position
	hidden  int    // marks of fieldHidden
	members int    // of the top-level object
	closing int    // offset of the closing brace of the top-level object

	model   []byte
	adds    added  // to the bodies of legs
	scratch []byte // decoded names, each for one comparison
	name    []byte // the decoded model, if it has escapes
	usage   bool
	badOpts bool // stream_options that vLLM would refuse
	prompts int  // in the prompt list; 1 for a plain prompt
	tokens  int  // exact count of the prompt's token ids; -1 if the prompt is text
	embeds  int  // prompts in prompt_embeds
	served  bool // a tool that the engine itself calls

	ownTokens bool // see ownTokens

	media        []span     // see Media
	parts        []item     // the first images, sounds and videos of the prompt, whether Media counts them or not
	held         Parts      // all of them
	rendered     []rendered // see shapesPrompt
	opening      int        // end of the first message that is not the system's; 0 if there is none
	block        int        // bytes of each of the blocks; 0: these and conversation are not made
	blocks       []uint64
	conversation uint64
}

// group names the object that a mark belongs to. Members are counted within it.
type group uint8

const (
	groupTop group = iota
	groupXargs
	groupExtraArgs
	groupSampling
	groupCount
)

func (g group) prefix() string {
	switch g {
	case groupXargs:
		return "vllm_xargs."
	case groupExtraArgs:
		return "sampling_params.extra_args."
	case groupSampling:
		return "sampling_params."
	}
	return ""
}

// mark is one editable member, or with fieldClosing the end of an object to which members may be added.
type mark struct {
	field field
	group group
	nth   int // number among the members of its object, from 0
	start int // opening quote of the name, or the closing brace
	val   span
}

// Reset drops the reference to the body.
func (r *Request) Reset() {
	r.s.reset(nil)
	r.seen, r.marks, r.hidden, r.members, r.closing = 0, r.marks[:0], 0, 0, 0
	r.model, r.usage, r.badOpts, r.prompts, r.tokens, r.embeds, r.served = nil, false, false, 1, -1, 1, false
	r.ownTokens, r.media, r.parts, r.held = false, r.media[:0], r.parts[:0], Parts{}
	r.adds = added{salt: r.adds.salt[:0]}
	r.rendered, r.opening, r.block, r.blocks, r.conversation = r.rendered[:0], 0, 0, r.blocks[:0], 0
	if cap(r.blocks) > keptBlocks {
		r.blocks = nil
	}
}

// Parse validates body in one pass and finds the fields. It keeps body until the next Parse or
// Reset. Every error is an *Error. After an error only Parse and Reset may be called.
func (r *Request) Parse(api API, body []byte) error {
	r.Reset()
	r.api = api
	s := &r.s
	s.reset(body)
	i := s.space(0)
	if s.byteAt(i) != '{' {
		return r.notObject(i)
	}
	w := s.enter(i, 0)
	for w.next(s) {
		if err := r.member(&w); err != nil {
			return err
		}
	}
	if s.failed() {
		return s.requestError()
	}
	r.closing, r.members = w.pos-1, w.n
	if end := s.space(w.pos); end != len(body) {
		s.fail(end, "bytes behind the object")
		return s.requestError()
	}
	return nil
}

func (r *Request) notObject(i int) error {
	end := r.s.value(i, 0)
	if end >= 0 && r.s.space(end) != len(r.s.b) {
		r.s.fail(end, "bytes behind the value")
	}
	if r.s.failed() {
		return r.s.requestError()
	}
	return &Error{Code: CodeInvalidType, Message: "request body must be a JSON object"}
}

// member reads one top-level member whose value starts at w.at.
func (r *Request) member(w *walk) error {
	name := r.decode(w)
	f := r.form().fieldAt(name)
	if kvDoor(name) || r.denied(name) {
		return r.hide(w, groupTop, name)
	}
	if f == fieldOther {
		as := r.api.renders(name)
		end := r.s.value(w.at, w.depth)
		r.noteRendered(w, end, as)
		r.ownTokens = r.ownTokens || ownTokens(name)
		w.done(end)
		return nil
	}
	if r.seen.has(f) {
		return duplicate(string(name))
	}
	r.seen |= 1 << f
	end, err := r.read(f, w)
	if err != nil || end < 0 {
		w.done(end)
		return err
	}
	r.vals[f] = span{w.at, end}
	if f == fieldThinking || f == fieldCacheSalt {
		r.noteRendered(w, end, renderedShape)
	}
	if f.editable() || f == fieldThinking && r.budgets(w.at) {
		r.marks = append(r.marks, mark{f, groupTop, w.n - 1, w.key.at - 1, r.vals[f]})
	}
	w.done(end)
	return nil
}

// read validates the value of a known field. It looks into some of them.
func (r *Request) read(f field, w *walk) (end int, err error) {
	c := r.s.byteAt(w.at)
	switch {
	case f == fieldModel:
		return r.readModel(w)
	case f == fieldStreamOptions && c == '{':
		return r.readStreamOptions(w)
	case f == fieldXargs && c == '{':
		return r.readExtras(w.at, w.depth, groupXargs)
	case f == fieldSamplingParams && c == '{':
		return r.readSamplingParams(w)
	case f == fieldTools && c == '[':
		return r.readTools(w)
	case f == r.form().prompt && c == '[':
		return r.readPrompt(w)
	case f == fieldPromptEmbeds && c == '[':
		return r.readEmbeds(w)
	case f == fieldBackground && r.api == Responses && c != 'f' && c != 'n':
		return -1, background()
	}
	return r.s.value(w.at, w.depth), nil
}

// budgets reports whether the thinking at i is of the kind that has a budget. Another kind may be rendered
// into the prompt.
func (r *Request) budgets(i int) bool { return string(r.memberText(i, "type")) == "enabled" }

// maxModel bounds the name of a model, because an engine that does not know the model repeats the
// name in its answer.
const maxModel = 1024

func (r *Request) readModel(w *walk) (end int, err error) {
	end = r.s.value(w.at, w.depth)
	if end < 0 {
		return end, nil
	}
	switch r.s.b[w.at] {
	case 'n':
	case '"':
		if r.model = inner(span{w.at, end}).of(r.s.b); len(r.model) > maxModel {
			return end, wrongType("model", fmt.Sprintf("a string of at most %d bytes", maxModel))
		}
		if bytes.IndexByte(r.model, '\\') >= 0 {
			r.name = unescape(r.name[:0], r.model)
			r.model = r.name
		}
	default:
		return end, wrongType("model", "a string")
	}
	return end, nil
}

// readPrompt reads a prompt that is a list.
func (r *Request) readPrompt(w *walk) (end int, err error) {
	switch r.api {
	case Completions:
		return r.readPrompts(w)
	case Generate:
		r.tokens, end = r.countTokens(w.at, w.depth)
		return end, nil
	}
	return r.readMessages(w)
}

func (r *Request) readStreamOptions(w *walk) (end int, err error) {
	var include, continuous bool
	in := r.s.enter(w.at, w.depth)
	for in.next(&r.s) {
		end := r.s.value(in.at, in.depth)
		twice := false
		switch name := r.decode(&in); string(name) {
		case "include_usage":
			twice, include = include, true
			r.usage = end > 0 && string(r.s.b[in.at:end]) == "true"
			r.badOpts = r.badOpts || !r.boolOrNull(in.at)
		case "continuous_usage_stats":
			twice, continuous = continuous, true
			r.badOpts = r.badOpts || !r.boolOrNull(in.at)
		}
		if twice {
			return end, duplicate("stream_options." + string(r.decode(&in)))
		}
		in.done(end)
	}
	return in.pos, nil
}

func (r *Request) boolOrNull(at int) bool {
	c := r.s.byteAt(at)
	return c == 't' || c == 'f' || c == 'n'
}

// decode is the name at hand without its escapes. It is valid until the next decode.
func (r *Request) decode(w *walk) []byte {
	raw := w.key.of(r.s.b)
	if !w.escaped {
		return raw
	}
	r.scratch = unescape(r.scratch[:0], raw)
	return r.scratch
}
