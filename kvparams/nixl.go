package kvparams

// nixl is vLLM's NixlConnector in pull mode. P keeps the blocks and describes them in its answer.
// D reads them over P's side channel and notifies P, which then frees them. Without KV parameters
// D computes the prompt itself.
type nixl struct{}

// nixlPrefill asks P to keep its blocks. The nulls are read only in bidirectional mode, but every
// proxy sends them.
var nixlPrefill = []byte(`{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,` +
	`"remote_block_ids":null,"remote_host":null,"remote_port":null}`)

func (nixl) Name() string         { return "nixl" }
func (nixl) Concurrent() bool     { return false }
func (nixl) HandleInAnswer() bool { return true }
func (nixl) DecodeOnlySafe() bool { return true }
func (nixl) Reclaim() Reclaim     { return ReclaimReject }

func (nixl) AppendPrefill(dst Segments, r *Request, _ *Leg) Segments {
	return r.appendOneToken(dst, nixlPrefill)
}

func (nixl) AppendDecode(dst Segments, r *Request, h Handle, _ *Leg) Segments {
	return r.appendWith(dst, h.Raw)
}

// AppendRelease uses max_tokens 0, which passes vLLM's request model and fails in its handler,
// which then notifies P. A request that fails in the model does not notify P.
func (nixl) AppendRelease(dst Segments, r *Request, h Handle) Segments {
	dst = dst.add([]byte(`{`))
	if model := r.raw(fieldModel); model != nil {
		dst = dst.add([]byte(`"model":`)).add(model).add([]byte(`,`))
	}
	return dst.add([]byte(`"prompt":"a","max_tokens":0,"kv_transfer_params":`)).add(h.Raw).add([]byte(`}`))
}

func (nixl) AppendDrain(dst Segments, r *Request, h Handle) Segments {
	return r.appendEdited(dst, r.oneToken(), drainLead(), h.Raw)
}

// ParseAnswer checks the members on which an engine dies or hangs. D asserts on block ids and reads
// the others unchecked.
func (nixl) ParseAnswer(body []byte) (Answer, error) {
	a := answer{want: true}
	n := &a.handle
	if err := a.parse(body); err != nil {
		return Answer{}, err
	}
	out := Answer{CachedTokens: a.usage.cached, PromptTokens: a.usage.prompt}
	if a.kv.end == 0 || body[a.kv.at] == 'n' {
		return out, nil
	}
	if body[a.kv.at] != '{' {
		return Answer{}, badHandoff("kv_transfer_params", "an object or null")
	}
	if n.members == 0 {
		return out, nil
	}
	if err := n.fault(); err != nil {
		return Answer{}, err
	}
	out.Handle = n.h
	out.Handle.Raw = a.kv.of(body)
	out.Handle.host = span{n.h.host.at - a.kv.at, n.h.host.end - a.kv.at}
	return out, nil
}

// need is a member without which D dies or hangs.
type need struct {
	name, want string
}

// nixlNeeds lists them in the order in which a missing one is reported.
var nixlNeeds = [...]need{
	needPrefill: {"do_remote_prefill", "true"},
	needBlocks:  {"remote_block_ids", "a non-empty list of non-empty lists of block numbers"},
	needEngine:  {"remote_engine_id", "a non-empty string"},
	needRequest: {"remote_request_id", "a non-empty string"},
	needHost:    {"remote_host", "a non-empty string"},
	needPort:    {"remote_port", "an integer from 1 to 65535"},
}

// Indexes of nixlNeeds.
const (
	needPrefill = iota
	needBlocks
	needEngine
	needRequest
	needHost
	needPort
	needNone
)

func needOf(name []byte) int {
	switch string(name) {
	case "do_remote_prefill":
		return needPrefill
	case "remote_block_ids":
		return needBlocks
	case "remote_engine_id":
		return needEngine
	case "remote_request_id":
		return needRequest
	case "remote_host":
		return needHost
	case "remote_port":
		return needPort
	}
	return needNone
}

// nixlHandle is what one pass over a handle finds. Its faults are reported only when the whole
// answer is known to be JSON.
type nixlHandle struct {
	h       Handle
	members int
	seen    [needNone]bool
	bad     [needNone]bool
	twice   [needNone]bool
	first   int // the first that is bad or duplicate, in the order of the answer, plus 1; 0 if none is
}

// read reads the object at i.
func (n *nixlHandle) read(s *scanner, i, depth int) int {
	w := s.enter(i, depth)
	for w.next(s) {
		which := needOf(w.name(s.b))
		if which == needBlocks && s.byteAt(w.at) == '[' {
			w.done(n.blocks(s, w.at, w.depth))
			n.met(which, n.h.Blocks > 0)
			continue
		}
		at := span{w.at, s.value(w.at, w.depth)}
		switch {
		case at.end < 0:
		case which != needNone:
			n.met(which, n.valid(s.b, which, at))
		default:
			n.extent(w.name(s.b), at.of(s.b))
		}
		w.done(at.end)
	}
	n.members = w.n
	return w.pos
}

// met notes a member that D needs.
func (n *nixlHandle) met(which int, valid bool) {
	n.twice[which] = n.seen[which]
	n.bad[which] = !valid
	if (n.twice[which] || n.bad[which]) && n.first == 0 {
		n.first = which + 1
	}
	n.seen[which] = true
}

// fault is the first reason why D must not get the handle.
func (n *nixlHandle) fault() error {
	if n.first > 0 {
		which := n.first - 1
		if n.twice[which] {
			return badHandoff("kv_transfer_params."+nixlNeeds[which].name, "there once")
		}
		return badHandoff("kv_transfer_params."+nixlNeeds[which].name, nixlNeeds[which].want)
	}
	for which, need := range nixlNeeds {
		if !n.seen[which] {
			return badHandoff("kv_transfer_params."+need.name, need.want)
		}
	}
	return nil
}

func (n *nixlHandle) valid(b []byte, which int, at span) bool {
	raw := at.of(b)
	switch which {
	case needPrefill:
		return string(raw) == "true"
	case needBlocks:
		return false // it is not a list
	case needPort:
		port, ok := integer(raw)
		n.h.RemotePort = port
		return ok && port >= 1 && port <= 65535
	}
	if raw[0] != '"' || len(raw) == 2 {
		return false
	}
	switch which {
	case needEngine:
		n.h.EngineID = text(b, inner(at))
	case needHost:
		n.h.host = inner(at)
		n.h.RemoteHost = text(b, n.h.host)
	}
	return true
}

// blocks counts the block ids of the list at i, which has one list for each KV cache group, or is
// the flat list of older versions. It counts 0 if a list is empty or holds anything else.
func (n *nixlHandle) blocks(s *scanner, i, depth int) int {
	flat, total, ok := 0, 0, true
	w := s.enter(i, depth)
	for w.next(s) {
		if s.byteAt(w.at) == '[' {
			ids, end := s.ids(w.at, w.depth)
			total += ids
			ok = ok && ids > 0
			w.done(end)
			continue
		}
		end, id := s.id(w.at, w.depth)
		flat++
		ok = ok && id
		w.done(end)
	}
	if n.h.lists = w.n; flat > 0 {
		n.h.lists = 1
	}
	if n.h.Blocks = flat + total; !ok || flat > 0 && total > 0 {
		n.h.Blocks = 0
	}
	return w.pos
}

// ids counts the block ids of the list at i. It returns 0 if the list holds anything else.
func (s *scanner) ids(i, depth int) (n, end int) {
	if n, end = plainIDs(s.b, i); n > 0 {
		return n, end
	}
	ok := true
	w := s.enter(i, depth)
	for w.next(s) {
		end, id := s.id(w.at, w.depth)
		ok = ok && id
		w.done(end)
	}
	if !ok {
		return 0, w.pos
	}
	return w.n, w.pos
}

// plainIDs is ids for a list of only digits and commas, as engines write it. It returns 0 for any
// other. A prompt of a million tokens has tens of thousands of ids.
func plainIDs(b []byte, i int) (n, end int) {
	for i++; ; i++ {
		first := i
		for i < len(b) && b[i]-'0' <= 9 {
			i++
		}
		digits := i - first
		if i == len(b) || digits == 0 || digits > 18 || digits > 1 && b[first] == '0' {
			return 0, 0
		}
		switch n++; b[i] {
		case ',':
		case ']':
			return n, i + 1
		default:
			return 0, 0
		}
	}
}

// id reads the value at i, and reports whether it is a block id: a plain integer that is not
// negative.
func (s *scanner) id(i, depth int) (end int, ok bool) {
	if end = s.value(i, depth); end < 0 || s.b[i] == '-' {
		return end, false
	}
	_, ok = integer(s.b[i:end])
	return end, ok
}
