package kvparams

import (
	"fmt"
	"math"
	"strconv"
)

// offloadingP2P is vLLM's OffloadingConnector with a peer-to-peer tier (0.32). P copies the prompt's KV
// into its own CPU memory, and D fetches it from there under an id that xpyd makes. D names P by the
// tier's control socket. Without parameters, and where nothing comes, D computes the prompt itself.
//
// Both legs are sent at once. D asks as soon as it has the request, and P answers what it has stored by
// then and what it stores after that.
type offloadingP2P struct{ noHandle }

func (offloadingP2P) Name() string         { return "offloading-p2p" }
func (offloadingP2P) Concurrent() bool     { return true }
func (offloadingP2P) DecodeOnlySafe() bool { return true }
func (offloadingP2P) EitherRole() bool     { return true }

// Reclaim is the end of the tier's unbound_store_timeout_s, 60 s. P does not learn of a request that D
// rejects. A decode of one token would wait half a minute for KV blocks that another D has already
// read.
func (offloadingP2P) Reclaim() Reclaim { return ReclaimLease }

// EngineConfig is the same for both roles, because a request says which role an engine has for it.
func (offloadingP2P) EngineConfig(Role) string {
	return `--kv-transfer-config '{"kv_connector":"OffloadingConnector","kv_role":"kv_both",` +
		`"kv_connector_extra_config":{"spec_name":"TieringOffloadingSpec","cpu_bytes_to_use":10737418240,"secondary_tiers":[{"type":"p2p"}]}}'`
}

// Finishes is false because a D whose request ends tells P to stop, and a P whose request ends tells D.
func (offloadingP2P) Finishes() bool { return false }

// Bootstrap is VLLM_P2P_SIDE_CHANNEL_PORT. A leg carries only the address of the socket.
func (offloadingP2P) Bootstrap() (port int, path string) { return 5710, "" }

// NeedsRank is true because each rank has a socket of its own.
func (offloadingP2P) NeedsRank() bool { return true }

// ReadPeer counts the ranks' sockets from that of the first.
func (offloadingP2P) ReadPeer(address string, rank int, _ []byte) (Peer, error) {
	peer, err := peerAt(address, "")
	if err != nil || rank <= 0 {
		return peer, err
	}
	first, err := strconv.Atoi(peer.Port)
	if err != nil || first+rank > math.MaxUint16 {
		return Peer{}, fmt.Errorf("control socket of rank %d: %s has no port that far above its first", rank, address)
	}
	peer.Port = strconv.Itoa(first + rank)
	return peer, nil
}

func (offloadingP2P) AppendPrefill(dst Segments, r *Request, leg *Leg) Segments {
	return r.appendOneToken(dst, leg.text(`{"remote_decoder":{"kv_request_id":"xfer-`, leg.ID, `"}}`))
}

func (d offloadingP2P) AppendDecode(dst Segments, r *Request, _ Handle, leg *Leg) Segments {
	return r.appendWith(dst, d.Pair(leg).Raw)
}

func (offloadingP2P) Pair(leg *Leg) Handle {
	return Handle{Raw: leg.text(`{"remote_prefiller":{"kv_request_id":"xfer-`, leg.ID,
		`","remote_host":"`, leg.Peer.Host, `","remote_port":`, leg.Peer.Port, `}}`)}
}
