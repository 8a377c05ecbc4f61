package sim

import (
	"encoding/json"
	"slices"
)

// handle is kv_transfer_params as the NIXL scheduler of a decode engine reads it: member by
// member, almost unchecked.
type handle struct {
	members map[string]json.RawMessage
	blocks  []int // of all KV cache groups
	request string
	cached  int // of the prompt, by the prefill engine; -1 if it does not say so
	peer    peerKey

	ticket    string // under which a store keeps the KV, if that is how the connector finds it
	sent      bool   // the prefill engine sends the blocks, which have no ids here
	untold    bool   // it does not learn where this engine's blocks are
	bootstrap string // base URL of the server that knows the peer; "" if peer is known
}

// verdict is what a handle does to the engine that gets it.
type verdict int

const (
	verdictLoad verdict = iota // pulls, well or badly
	verdictDie                 // an assertion in the scheduler kills EngineCore
	verdictHang                // waits for KV that does not come, until the client leaves
)

func parseHandle(members map[string]json.RawMessage) handle {
	h := handle{members: members, cached: -1}
	var groups [][]int
	if json.Unmarshal(members["remote_block_ids"], &groups) == nil {
		h.blocks = slices.Concat(groups...)
	}
	h.request = stringMember(members, "remote_request_id")
	_ = json.Unmarshal(members["remote_prefill_cached_tokens"], &h.cached)
	h.peer.engine = stringMember(members, "remote_engine_id")
	h.peer.host = stringMember(members, "remote_host")
	_ = json.Unmarshal(members["remote_port"], &h.peer.port) // stays 0, which addressable sees
	return h
}

func stringMember(members map[string]json.RawMessage, name string) string {
	var s string
	if json.Unmarshal(members[name], &s) != nil {
		return ""
	}
	return s
}

func (h handle) flag(name string) bool { return string(h.members[name]) == "true" }

// remotePrefill reports whether the request must pull its KV from another engine.
func (h handle) remotePrefill() bool { return h.flag("do_remote_prefill") }

// remoteDecode reports whether the KV of the request must be kept for another engine.
func (h handle) remoteDecode() bool { return h.flag("do_remote_decode") }

// addressable reports whether all four members that name the peer and the request are there and
// of the right type.
func (h handle) addressable() bool {
	if h.bootstrap != "" {
		return h.request != "" && h.peer.engine != ""
	}
	return h.request != "" && h.peer.host != "" && h.peer.port != 0 && (h.peer.engine != "" || h.sent)
}

// heartbeats reports whether the decode engine renews the lease while it queues. Besides the
// address it needs tp_size.
func (h handle) heartbeats() bool { return h.addressable() && h.members["tp_size"] != nil }

// alone reports whether do_remote_prefill is the only member. Even the clean-up of a rejected
// request dies of that.
func (h handle) alone() bool { return len(h.members) == 1 && h.remotePrefill() }

// judge returns what a request does with h. Its prompt fills need blocks, and it already has the
// first hits of these.
func (h handle) judge(need, hits int) verdict {
	switch {
	case !h.sent && len(h.blocks) < need-hits:
		return verdictDie
	case h.untold || !h.addressable():
		return verdictHang
	}
	return verdictLoad
}

// rest returns the blocks that such a request pulls.
func (h handle) rest(need, hits int) []int {
	if len(h.blocks) < need {
		return h.blocks[len(h.blocks)-(need-hits):]
	}
	return h.blocks[hits:need]
}

// appendHandle appends the kv_transfer_params of a finished prefill, members in
// the recorded order.
func (c *core) appendHandle(b []byte, requestID string, blocks []int, tokens, cached int) []byte {
	host, port := splitPort(c.side.Addr())
	b = append(b, `{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[`...)
	b = appendInts(b, blocks)
	b = appendString(append(b, `],"remote_engine_id":`...), c.id)
	b = appendString(append(b, `,"remote_request_id":`...), requestID)
	b = appendString(append(b, `,"remote_host":`...), host)
	b = appendInt(append(b, `,"remote_port":`...), port)
	b = appendInt(append(b, `,"tp_size":`...), c.o.Parallel.TP)
	b = appendInt(append(b, `,"dcp_size":1,"pp_size":1,"remote_num_tokens":`...), tokens)
	b = append(b, `,"remote_blocks_expiry_time":null`...)
	if c.o.since(33) {
		b = append(b, `,"remote_registration_generation":1`...)
	}
	b = append(b, `,"transfer_mode":"pull","remote_prefill_cached_tokens":`...)
	return append(appendInt(b, cached), '}')
}
