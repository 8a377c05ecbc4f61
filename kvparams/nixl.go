package kvparams

// nixl is vLLM's NixlConnector in pull mode: P keeps the blocks and describes them in its answer, D reads them over
// P's side channel and notifies P, which frees them. Without KV parameters D computes the prompt itself.
type nixl struct{}

// nixlPrefill asks P to keep its blocks. The nulls are read only in bidirectional mode; every proxy sends them.
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

// AppendRelease: max_tokens 0 passes vLLM's request model and fails in its handler, which then notifies P. A request that
// fails the model itself does not.
func (nixl) AppendRelease(dst Segments, r *Request, h Handle) Segments {
	dst = dst.add([]byte(`{`))
	if model := r.raw(fieldModel); model != nil {
		dst = dst.add([]byte(`"model":`)).add(model).add([]byte(`,`))
	}
	return dst.add([]byte(`"prompt":"a","max_tokens":0,"kv_transfer_params":`)).add(h.Raw).add([]byte(`}`))
}

func (nixl) AppendDrain(dst Segments, r *Request, h Handle) Segments {
	return r.appendOneToken(dst, h.Raw)
}

// ParseAnswer checks what an engine dies or hangs of: D asserts on block ids and indexes the other members unchecked.
func (nixl) ParseAnswer(body []byte) (Answer, error) {
	var a answer
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
	n := nixlHandle{s: &a.s, h: Handle{Raw: a.kv.of(body)}}
	members, err := n.read(a.kv.at)
	if err != nil {
		return Answer{}, err
	}
	if members > 0 {
		out.Handle = n.h
	}
	return out, nil
}

// Members that D needs, as bits.
const (
	needPrefill = 1 << iota
	needBlocks
	needEngine
	needRequest
	needHost
	needPort
)

// nixlNeeds lists them in the order in which a missing one is reported.
var nixlNeeds = [...]struct {
	name string
	bit  uint
	want string
}{
	{"do_remote_prefill", needPrefill, "true"},
	{"remote_block_ids", needBlocks, "a non-empty list of non-empty lists of block numbers"},
	{"remote_engine_id", needEngine, "a non-empty string"},
	{"remote_request_id", needRequest, "a non-empty string"},
	{"remote_host", needHost, "a non-empty string"},
	{"remote_port", needPort, "an integer from 1 to 65535"},
}

// nixlHandle reads a handle that is known to be valid JSON.
type nixlHandle struct {
	s    *scanner
	h    Handle
	seen uint
}

func (n *nixlHandle) read(i int) (members int, err error) {
	w := n.s.enter(i, 1)
	for w.next(n.s) {
		at := span{w.at, n.s.value(w.at, w.depth)}
		if err := n.member(string(w.name(n.s.b)), at); err != nil {
			return 0, err
		}
		w.done(at.end)
	}
	for _, need := range nixlNeeds {
		if w.n > 0 && n.seen&need.bit == 0 {
			return 0, badHandoff("kv_transfer_params."+need.name, need.want)
		}
	}
	return w.n, nil
}

func (n *nixlHandle) member(name string, at span) error {
	for _, need := range nixlNeeds {
		if need.name != name {
			continue
		}
		if n.seen&need.bit != 0 {
			return badHandoff("kv_transfer_params."+name, "there once")
		}
		n.seen |= need.bit
		if !n.valid(need.bit, at) {
			return badHandoff("kv_transfer_params."+name, need.want)
		}
	}
	return nil
}

func (n *nixlHandle) valid(bit uint, at span) bool {
	raw := at.of(n.s.b)
	switch bit {
	case needPrefill:
		return string(raw) == "true"
	case needBlocks:
		n.h.Blocks = n.blocks(raw, at.at)
		return n.h.Blocks > 0
	case needPort:
		port, ok := integer(raw)
		n.h.RemotePort = port
		return ok && port >= 1 && port <= 65535
	}
	if raw[0] != '"' || len(raw) == 2 {
		return false
	}
	switch bit {
	case needEngine:
		n.h.EngineID = text(n.s.b, inner(at))
	case needHost:
		n.h.RemoteHost = text(n.s.b, inner(at))
	}
	return true
}

// blocks counts block ids: a list a KV cache group, or the one flat list of older versions. 0 if anything else stands
// there or a list is empty.
func (n *nixlHandle) blocks(raw []byte, at int) int {
	if raw[0] != '[' {
		return 0
	}
	flat, total := 0, 0
	w := n.s.enter(at, 2)
	for w.next(n.s) {
		end := n.s.value(w.at, w.depth)
		if n.s.b[w.at] == '[' {
			ids := n.group(w.at)
			if ids == 0 {
				return 0
			}
			total += ids
		} else if id, ok := integer(n.s.b[w.at:end]); ok && id >= 0 {
			flat++
		} else {
			return 0
		}
		w.done(end)
	}
	if flat > 0 && total > 0 {
		return 0
	}
	return flat + total
}

func (n *nixlHandle) group(at int) int {
	w := n.s.enter(at, 3)
	for w.next(n.s) {
		end := n.s.value(w.at, w.depth)
		if id, ok := integer(n.s.b[w.at:end]); !ok || id < 0 {
			return 0
		}
		w.done(end)
	}
	return w.n
}
