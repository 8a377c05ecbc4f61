package kvparams

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
)

// mooncake is vLLM's MooncakeConnector. xpyd makes a transfer id, which both legs carry, and sends
// them at once. D asks P for the blocks of that id, and P writes them as soon as it has them. D finds
// P by its engine id and its bootstrap server. P's answer holds no handle. Without KV parameters D
// computes the prompt itself.
type mooncake struct{ noHandle }

func (mooncake) Name() string         { return "mooncake" }
func (mooncake) Concurrent() bool     { return true }
func (mooncake) DecodeOnlySafe() bool { return true }
func (mooncake) Reclaim() Reclaim     { return ReclaimReject }

func (mooncake) EngineConfig(role Role) string { return engineConfig("MooncakeConnector", role) }

// Finishes is true because only D's own time limit ends its wait for a P that was aborted.
func (mooncake) Finishes() bool { return true }

// Bootstrap is VLLM_MOONCAKE_BOOTSTRAP_PORT.
func (mooncake) Bootstrap() (port int, path string) { return 8998, "/query" }

// plainID is an engine id that needs no escapes in JSON.
var plainID = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,256}$`)

// NeedsRank is true because each rank has an engine id of its own.
func (mooncake) NeedsRank() bool { return true }

// ReadPeer reads {"0": {"engine_id": …}}, with one member for each data-parallel rank.
func (mooncake) ReadPeer(address string, rank int, answer []byte) (Peer, error) {
	var ranks map[string]struct {
		EngineID string `json:"engine_id"`
	}
	switch err := json.NewDecoder(bytes.NewReader(answer)).Decode(&ranks); {
	case err != nil:
		return Peer{}, fmt.Errorf("bootstrap server %s: its answer is no list of engines: %w", address, err)
	case len(ranks) == 0:
		return Peer{}, fmt.Errorf("bootstrap server %s: no engine has registered", address)
	case len(ranks) > 1 && rank < 0:
		return Peer{}, fmt.Errorf("bootstrap server %s: %d data-parallel ranks, and the pool names none of them; put @auto after the engine's URL", address, len(ranks))
	}
	own := strconv.Itoa(max(rank, 0))
	id := ranks[own].EngineID
	if !plainID.MatchString(id) {
		return Peer{}, fmt.Errorf("bootstrap server %s: rank %s has no usable engine_id", address, own)
	}
	return peerAt(address, id)
}

func (mooncake) AppendPrefill(dst Segments, r *Request, leg *Leg) Segments {
	return r.appendOneToken(dst, leg.text(`{"do_remote_decode":true,"do_remote_prefill":false,"transfer_id":"xfer-`, leg.ID, `"}`))
}

func (m mooncake) AppendDecode(dst Segments, r *Request, _ Handle, leg *Leg) Segments {
	return r.appendWith(dst, m.Pair(leg).Raw)
}

func (mooncake) Pair(leg *Leg) Handle {
	p := leg.Peer
	return Handle{Raw: leg.text(`{"do_remote_decode":false,"do_remote_prefill":true,"remote_bootstrap_addr":"http://`, p.Host, `:`, p.Port,
		`","remote_engine_id":"`, p.EngineID, `","transfer_id":"xfer-`, leg.ID, `"}`)}
}

func (m mooncake) ParseAnswer(body []byte) (Answer, error) {
	return capped(m.noHandle.ParseAnswer(body))
}

func (mooncake) AppendRelease(dst Segments, r *Request, h Handle) Segments {
	return r.appendRejected(dst, h.Raw)
}

func (mooncake) AppendDrain(dst Segments, r *Request, h Handle, _ string) Segments {
	return r.appendDrain(dst, h.Raw)
}
