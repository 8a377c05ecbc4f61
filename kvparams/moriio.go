package kvparams

import "strings"

// moriio is vLLM's MoRIIOConnector in read mode, for GPUs of AMD. P describes its blocks in its
// answer, and D reads them. The engines find each other by that answer, so there is no proxy to ping.
//
// Before vLLM 0.33 D takes every request for one whose KV lies elsewhere, so a request must never reach it
// without a handle.
type moriio struct{}

var moriioPrefill = []byte(`{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null}`)

func (moriio) Name() string         { return "moriio" }
func (moriio) Concurrent() bool     { return false }
func (moriio) HandleInAnswer() bool { return true }
func (moriio) DecodeOnlySafe() bool { return false }
func (moriio) AloneSince() int      { return 33 }
func (moriio) Reclaim() Reclaim     { return ReclaimReject }

// EngineConfig names the mode, because the engines write unless told otherwise.
func (moriio) EngineConfig(role Role) string {
	return strings.Replace(engineConfig("MoRIIOConnector", role), `"}'`, `","kv_connector_extra_config":{"read_mode":true}}'`, 1)
}

func (moriio) AppendPrefill(dst Segments, r *Request, _ *Leg) Segments {
	return r.appendOneToken(dst, moriioPrefill)
}

func (moriio) AppendDecode(dst Segments, r *Request, h Handle, _ *Leg) Segments {
	if h.None() {
		return r.AppendPlain(dst)
	}
	return r.appendWith(dst, h.Raw)
}

// moriioNeeds are the members that D reads unchecked. Both legs pair by transfer_id, which P makes
// of its request's id.
var moriioNeeds = []need{
	{"do_remote_prefill", needTrue},
	{"remote_block_ids", needBlocks},
	{"remote_engine_id", needEngine},
	{"remote_host", needHost},
	{"remote_handshake_port", needPort},
	{"remote_notify_port", needPort},
	{"transfer_id", needText},
}

func (moriio) ParseAnswer(body []byte) (Answer, error) { return capped(parseHandle(body, moriioNeeds)) }

func (moriio) AppendRelease(dst Segments, r *Request, h Handle) Segments {
	return r.appendRejected(dst, h.Raw)
}

func (moriio) AppendDrain(dst Segments, r *Request, h Handle, _ string) Segments {
	return r.appendDrain(dst, h.Raw)
}
