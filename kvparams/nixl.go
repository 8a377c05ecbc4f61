package kvparams

// nixl is vLLM's NixlConnector in pull mode. P keeps the blocks and describes them in its answer.
// D reads them over P's side channel and notifies P, which then frees them. Without KV parameters
// D computes the prompt itself.
type nixl struct{ reuse Reuse }

// nixlPrefill asks P to keep its blocks. The nulls are read only in bidirectional mode, but every
// proxy sends them.
var nixlPrefill = []byte(`{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,` +
	`"remote_block_ids":null,"remote_host":null,"remote_port":null}`)

func (nixl) Name() string         { return "nixl" }
func (nixl) Concurrent() bool     { return false }
func (nixl) HandleInAnswer() bool { return true }
func (nixl) DecodeOnlySafe() bool { return true }
func (nixl) EitherRole() bool     { return true }
func (nixl) Reclaim() Reclaim     { return ReclaimReject }

func (nixl) EngineConfig(role Role) string { return engineConfig("NixlConnector", role) }

func (d nixl) AppendPrefill(dst Segments, r *Request, _ *Leg) Segments {
	return r.appendEdited(dst, d.reuse.oneToken(r), kvLead, nixlPrefill)
}

func (d nixl) AppendDecode(dst Segments, r *Request, h Handle, _ *Leg) Segments {
	if h.None() {
		return r.AppendPlain(dst)
	}
	return d.reuse.appendHandle(dst, r, h, kvLead, handleEnd)
}

func (nixl) AppendRelease(dst Segments, r *Request, h Handle) Segments {
	return r.appendRejected(dst, h.Raw)
}

func (nixl) AppendDrain(dst Segments, r *Request, h Handle, _ string) Segments {
	return r.appendDrain(dst, h.Raw)
}

// nixlNeeds are the members on which an engine dies or hangs. D asserts on block ids and reads the
// others unchecked.
var nixlNeeds = []need{
	{"do_remote_prefill", needTrue},
	{"remote_block_ids", needBlocks},
	{"remote_engine_id", needEngine},
	{"remote_request_id", needText},
	{"remote_host", needHost},
	{"remote_port", needPort},
}

func (nixl) ParseAnswer(body []byte) (Answer, error) { return parseHandle(body, nixlNeeds) }
