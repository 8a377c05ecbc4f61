package kvparams

import (
	"math"
	"strconv"
	"strings"
)

// moriioWrite is vLLM's MoRIIOConnector in write mode. P's leg names D's ports, and P describes itself in its
// answer. D tells P by that where its blocks are, and P writes into them. It writes into the engine that its
// own leg has named, whoever has told it of blocks. Without KV parameters D computes the prompt itself.
//
// The legs run one after the other. A D that is told of a P that then fails waits for it without a limit.
type moriioWrite struct{ moriio }

// notifyAbove is how far D's notify port lies above its handshake port, so that one number names both.
const notifyAbove = 100

func (moriioWrite) Name() string         { return "moriio-write" }
func (moriioWrite) DecodeOnlySafe() bool { return true }
func (moriioWrite) Reclaim() Reclaim     { return ReclaimRefusal }

func (moriioWrite) WaitsForTheDead() bool { return true }

// TargetPort is the usual handshake_port.
func (moriioWrite) TargetPort() int { return 6301 }

func (moriioWrite) LastTargetPort() int { return math.MaxUint16 - notifyAbove }

func (d moriioWrite) EngineConfig(role Role) string {
	return strings.Replace(engineConfig("MoRIIOConnector", role), `"}'`, `","kv_connector_extra_config":{"handshake_port":6301,"notify_port":6401}}'`, 1)
}

func (moriioWrite) AppendPrefill(dst Segments, r *Request, leg *Leg) Segments {
	port, _ := strconv.Atoi(leg.Target.Port) // it was made of a number
	end := "}"
	if n := leg.Target.Ranks; n > 0 {
		end = `,"remote_dp_size":` + strconv.Itoa(n) + end
	}
	return r.appendOneToken(dst, leg.text(`{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":"`,
		leg.Target.Host, `","remote_handshake_port":`, leg.Target.Port, `,"remote_notify_port":`, strconv.Itoa(port+notifyAbove), end))
}

// AppendDecode makes D the leader of the request: otherwise only the rank of D with P's number tells P where its blocks are,
// and any other one waits without a limit.
func (moriioWrite) AppendDecode(dst Segments, r *Request, h Handle, _ *Leg) Segments {
	if h.None() {
		return r.AppendPlain(dst)
	}
	return r.appendEdited(dst, nil, kvLead, h.Raw[:len(h.Raw)-1], leads)
}

var leads = []byte(`,"is_request_leader":true}`)

// TargetAt returns the decode engine at the host and port in the form in which a leg names it.
// ranks is how many data-parallel ranks it has, of which it is one, or 0.
func TargetAt(host string, port, ranks int) *Peer {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return &Peer{Host: host, Port: strconv.Itoa(port), Ranks: ranks}
}
