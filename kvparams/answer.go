package kvparams

// Answer is the part of a prefill answer that xpyd needs.
type Answer struct {
	Handle       Handle
	CachedTokens int // prompt tokens that P had in its cache; -1 if unknown
	PromptTokens int // the length of the prompt; -1 if unknown

	ended bool // see capped
}

// capped is what a connector makes of an answer if its engines hand blocks over only for a request that max_tokens has
// ended. Where a prefill leg can have no min_tokens, on Anthropic's API and the responses API, its token may end the
// text. Nobody gets the blocks of such a request, and a decode engine that asks for them waits.
func capped(a Answer, err error) (Answer, error) {
	if err == nil && a.ended && a.Handle.None() {
		return Answer{}, &AnswerError{Code: CodeEnded, Message: "prefill answer: its token ended the text, so the engine hands over no blocks"}
	}
	return a, err
}

// Handle describes the KV blocks that a prefill has pinned, as P describes them to D. Its slices alias
// the body of the answer. A handle is good for one decode. After that, P may give the blocks to other
// requests, and a second read would get the data of those requests without an error.
type Handle struct {
	Raw        []byte // the JSON value as P wrote it; nil if there is no handle
	Blocks     int    // KV blocks that P holds
	EngineID   []byte
	RemoteHost []byte // host of P's side channel, to which D connects
	RemotePort int

	host   span   // the text of remote_host in Raw
	prompt []byte // ids of the prompt's tokens, a JSON list; nil if P did not tell them
	lists  int    // lists of block ids, one for each KV cache group
	tokens int    // remote_num_tokens: the tokens whose KV the blocks hold; 0 if unknown
	ranks  int    // dcp_size: the ranks over which the tokens of a block are spread; 0 if unknown
}

// None reports whether there is no handle.
func (h Handle) None() bool { return h.Raw == nil }

// WithHost returns h with another remote_host, in fresh memory. host is a name or address that needs no
// escapes in JSON. All other bytes stay as P wrote them.
func (h Handle) WithHost(host string) Handle {
	raw := make([]byte, 0, len(h.Raw)+len(host))
	raw = append(append(append(raw, h.Raw[:h.host.at]...), host...), h.Raw[h.host.end:]...)
	h.host.end = h.host.at + len(host)
	h.Raw, h.RemoteHost = raw, h.host.of(raw)
	return h
}

// answer is one strict pass over an answer, for any connector. A connector whose answers hold a
// handle reads it within the pass:
//
//	a.begin(body)
//	for a.nextHandle() {
//		a.handleRead(END)   // after it has read the object at a.w.at
//	}
//	err := a.finish()
type answer struct {
	s     scanner
	w     walk // over the members of the answer
	kv    span // the top-level kv_transfer_params; empty if absent
	usage usage
	// prompt is the top-level prompt_token_ids.
	prompt promptIDs
	fault  error // kv_transfer_params stands twice
	ended  bool  // by the stop_reason or the status, for the APIs that have those
}

// usage holds the figures of a usage object in any API's words, each -1 if it is unknown.
type usage struct {
	prompt, completion, cached int
	all, seconds               int  // total_tokens, and the length of a sound
	cachedAt                   span // digits of the cached tokens; empty if they are not an integer
	// apart says that prompt leaves out the cached tokens, as in Anthropic's API, and those in created.
	apart    bool
	created  int
	promptAt span
}

// Usage holds the tokens that an engine counted. A number is -1 if it is unknown.
type Usage struct{ Prompt, Completion, Cached int }

// NoUsage is the usage of an answer that reports none.
func NoUsage() Usage { return noUsage.figures() }

func (u *usage) figures() Usage { return Usage{u.total(), u.completion, u.cached} }

var noUsage = usage{prompt: -1, completion: -1, cached: -1, all: -1, seconds: -1}

// total is the length of the prompt in tokens, or -1.
func (u *usage) total() int {
	if !u.apart || u.prompt < 0 {
		return u.prompt
	}
	return u.prompt + max(u.cached, 0) + max(u.created, 0)
}

// figures is what every answer tells.
func (a *answer) figures() Answer {
	return Answer{CachedTokens: a.usage.cached, PromptTokens: a.usage.total(), ended: a.ended}
}

func (a *answer) begin(body []byte) {
	a.s.reset(body)
	a.usage = noUsage
	i := a.s.space(0)
	if a.s.byteAt(i) != '{' {
		a.s.fail(i, "expected an object")
		a.w.pos = -1
		return
	}
	a.w = a.s.enter(i, 0)
}

// nextHandle reads on to a kv_transfer_params that is an object. It returns false at the end of the
// answer.
func (a *answer) nextHandle() bool {
	s, w := &a.s, &a.w
	for w.next(s) {
		switch name := w.name(s.b); string(name) {
		case "kv_transfer_params":
			if a.kv.end > 0 {
				a.fault = &AnswerError{Code: CodeHandoff, Member: string(name),
					Message: "prefill answer: member \"kv_transfer_params\" stands twice"}
				return false
			}
			if s.byteAt(w.at) == '{' {
				return true
			}
			a.handleRead(s.value(w.at, w.depth))
		case "prompt_token_ids":
			w.done(a.readPrompt())
		case "usage":
			w.done(a.usage.read(s, w.at, w.depth))
		default:
			end := s.value(w.at, w.depth)
			a.ended = a.ended || end > 0 && endsText(name, s.b[w.at:end])
			w.done(end)
		}
	}
	return false
}

// endsText reports whether a member of an answer says that a token of the model's ended the text, and no limit.
func endsText(name, value []byte) bool {
	switch string(name) {
	case "stop_reason":
		return string(value) == `"end_turn"`
	case "status":
		return string(value) == `"completed"`
	}
	return false
}

// handleRead continues after the kv_transfer_params, which end at end.
func (a *answer) handleRead(end int) {
	a.kv = span{a.w.at, end}
	a.w.done(end)
}

func (a *answer) finish() error {
	if a.fault != nil {
		return a.fault
	}
	return a.s.finish(a.w.pos)
}

// parseFigures reads an answer that holds no handle.
func parseFigures(body []byte) (Answer, error) {
	var a answer
	a.begin(body)
	for a.nextHandle() {
		a.handleRead(a.s.value(a.w.at, a.w.depth))
	}
	if err := a.finish(); err != nil {
		return Answer{}, err
	}
	return a.figures(), nil
}

// Spent is what an answer of any route says that it cost: all its tokens, or, for a sound, seconds. Each is -1 if it is
// unknown.
func Spent(body []byte) (tokens, seconds int) {
	var a answer
	a.begin(body)
	for a.nextHandle() {
		a.handleRead(a.s.value(a.w.at, a.w.depth))
	}
	if a.finish() != nil {
		return -1, -1
	}
	tokens = a.usage.all
	if prompt := a.usage.total(); prompt >= 0 {
		tokens = max(tokens, prompt+max(0, a.usage.completion))
	}
	return tokens, a.usage.seconds
}

// finish ends the pass over an answer whose object ends at end.
func (s *scanner) finish(end int) error {
	if end >= 0 {
		if at := s.space(end); at != len(s.b) {
			s.fail(at, "bytes behind the object")
		}
	}
	if s.failed() {
		return s.answerError()
	}
	return nil
}

// read reads the usage object at i. A value of another type leaves every figure unknown.
func (u *usage) read(s *scanner, i, depth int) int {
	*u = noUsage
	if s.byteAt(i) != '{' {
		return s.value(i, depth)
	}
	w := s.enter(i, depth)
	for w.next(s) {
		name := w.name(s.b)
		if string(name) == "prompt_tokens_details" || string(name) == "input_tokens_details" {
			w.done(u.readDetails(s, w.at, w.depth))
			continue
		}
		end := s.value(w.at, w.depth)
		switch string(name) {
		case "prompt_tokens", "input_tokens":
			u.prompt, u.promptAt = s.count(w.at, end)
		case "completion_tokens", "output_tokens":
			u.completion, _ = s.count(w.at, end)
		case "total_tokens":
			u.all, _ = s.count(w.at, end)
		case "seconds":
			u.seconds, _ = s.count(w.at, end)
		case "cache_read_input_tokens":
			u.cached, u.cachedAt = s.count(w.at, end)
			u.apart = u.cachedAt.end > 0
		case "cache_creation_input_tokens":
			u.created, _ = s.count(w.at, end)
		}
		w.done(end)
	}
	return w.pos
}

func (u *usage) readDetails(s *scanner, i, depth int) int {
	u.cached, u.cachedAt = -1, span{}
	if s.byteAt(i) != '{' {
		return s.value(i, depth)
	}
	w := s.enter(i, depth)
	for w.next(s) {
		end := s.value(w.at, w.depth)
		if string(w.name(s.b)) == "cached_tokens" {
			u.cached, u.cachedAt = s.count(w.at, end)
		}
		w.done(end)
	}
	return w.pos
}

// count reads a non-negative integer. It returns -1 and an empty span for anything else.
func (s *scanner) count(at, end int) (int, span) {
	if end < 0 {
		return -1, span{}
	}
	n, ok := integer(s.b[at:end])
	if !ok || n < 0 {
		return -1, span{}
	}
	return n, span{at, end}
}
