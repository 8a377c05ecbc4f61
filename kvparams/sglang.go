package kvparams

import (
	"hash/fnv"
	"strconv"
	"time"
)

// sglang is SGLang's disaggregation. Both legs carry the address of P's bootstrap server and a room,
// and are sent at once. D finds P by that server and waits in the room for the KV. A decode server
// takes no request without a room.
type sglang struct{ noHandle }

func (sglang) Name() string         { return "sglang" }
func (sglang) Concurrent() bool     { return true }
func (sglang) DecodeOnlySafe() bool { return false }
func (sglang) Reclaim() Reclaim     { return ReclaimLease }

// Series are those of SGLang 0.5.23 with --enable-metrics. A request waits in a further queue before
// and after each step: on a prefill server for its decode server and for the transfer, and on a decode
// server for room and for the KV blocks. Earlier releases call the bootstrap queue prealloc.
func (sglang) Series() Series {
	return Series{
		Prefix: "sglang:",
		Of: []Metric{
			{Name: "num_running_reqs", Quantity: Running},
			{Name: "num_queue_reqs", Quantity: Waiting},
			{Name: "num_grammar_queue_reqs", Quantity: Waiting},
			{Name: "num_prefill_bootstrap_queue_reqs", Quantity: Waiting},
			{Name: "num_prefill_prealloc_queue_reqs", Quantity: Waiting},
			{Name: "num_prefill_inflight_queue_reqs", Quantity: Waiting},
			{Name: "num_decode_prealloc_queue_reqs", Quantity: Waiting},
			{Name: "num_decode_transfer_queue_reqs", Quantity: Waiting},
			{Name: "token_usage", Quantity: KVUsage},
			{Name: "page_size", Quantity: BlockSize},
			{Name: "num_pages", Quantity: Blocks},
			{Name: "prompt_tokens", Quantity: PromptTokens, Counts: true},
			{Name: "generation_tokens", Quantity: GenerationTokens, Counts: true},
		},
		// With priorities there is a sample of each beside the whole. Each pipeline rank has the same
		// requests.
		Whole: []Label{{"priority", ""}, {"pp_rank", "0"}},
		Rank:  "dp_rank",
	}
}

// Vitals is not /health, which generates a token and answers after a second at the soonest.
func (sglang) Vitals() string { return "/ping" }

// HealthTakes is two seconds, because SGLang looks once a second whether its scheduler has answered.
func (sglang) HealthTakes() time.Duration { return 2 * time.Second }

// Version is a large answer that may contain secrets. xpyd reads only the version in it.
func (sglang) Version() string { return "/server_info" }

// RanksMember is an argument of the server, which that answer repeats.
func (sglang) RanksMember() string { return "dp_size" }

func (sglang) EngineConfig(role Role) string {
	if role == Decodes {
		return "--disaggregation-mode decode"
	}
	return "--disaggregation-mode prefill"
}

// Finishes is false because P's answer waits for the transfer, and P tells D of an abort.
func (sglang) Finishes() bool { return false }

// Bootstrap is --disaggregation-bootstrap-port. A leg carries only the address of the server.
func (sglang) Bootstrap() (port int, path string) { return 8998, "" }

// NeedsRank is false because D asks P's bootstrap server for the rank of a room that no leg has named.
func (sglang) NeedsRank() bool { return false }

// ReadPeer notes the rank, which D then does not have to ask for.
func (sglang) ReadPeer(address string, rank int, _ []byte) (Peer, error) {
	peer, err := peerAt(address, "")
	if rank >= 0 {
		peer.Rank = strconv.Itoa(rank)
	}
	return peer, err
}

var roomLead = []byte(`,"bootstrap_host":`)

func (s sglang) AppendPrefill(dst Segments, r *Request, leg *Leg) Segments {
	return r.appendEdited(dst, r.form().oneToken, roomLead, s.Pair(leg).Raw)
}

// AppendDecode also names P's rank, if xpyd has chosen it. The header of each leg names its own.
func (s sglang) AppendDecode(dst Segments, r *Request, _ Handle, leg *Leg) Segments {
	room := s.Pair(leg).Raw
	if leg.Peer.Rank == "" {
		return r.appendEdited(dst, nil, roomLead, room)
	}
	return r.appendEdited(dst, nil, roomLead, room, leg.text(`,"disagg_prefill_dp_rank":`, leg.Peer.Rank))
}

// Pair is the host, and the two members after it. The room is the same on both legs. It has 63 bits,
// as SGLang's own balancer draws them.
func (sglang) Pair(leg *Leg) Handle {
	room := fnv.New64a()
	_, _ = room.Write([]byte(leg.ID)) // never fails
	return Handle{Raw: leg.text(`"`, leg.Peer.Host, `","bootstrap_port":`, leg.Peer.Port,
		`,"bootstrap_room":`, strconv.FormatUint(room.Sum64()>>1, 10))}
}
