package sim

import "encoding/json"

// readMoriio reads what a decode engine of MoRIIO needs of its handle. The engines pair by the transfer
// id. P's side channel stands for both of its ports.
func (g *generation) readMoriio() {
	g.h.request = stringMember(g.h.members, "transfer_id")
	_ = json.Unmarshal(g.h.members["remote_handshake_port"], &g.h.peer.port) // stays 0, which addressable sees
	var rank int
	_ = json.Unmarshal(g.h.members["remote_dp_rank"], &rank)
	if g.h.peer.port != 0 {
		g.h.peer.port += rank
	}
	g.h.untold = g.c.o.Connector == ConnectorWrite && !g.h.leads(rank == g.c.o.Parallel.Rank)
}

// leads reports whether a rank of a decode engine in write mode tells the prefill engine of its blocks. It does if the
// request says so, and otherwise if it has the number of that engine's rank.
func (h handle) leads(same bool) bool {
	if leads, ok := h.members["is_request_leader"]; ok {
		return string(leads) == "true"
	}
	return same || !h.flag("remote_dp_rank_override")
}

// moriioTransfer is the transfer id that a prefill engine makes, if the request brings none.
func moriioTransfer(internalID string) string { return "sidecar-" + internalID }

// appendMoriio appends the kv_transfer_params of a finished prefill, the members in the source's order.
func (c *core) appendMoriio(b []byte, transfer string, blocks []int) []byte {
	host, port := splitPort(c.side.Addr())
	port -= c.o.Parallel.Rank // of rank 0
	b = append(b, `{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[`...)
	b = appendInts(b, blocks)
	b = appendString(append(b, `],"remote_engine_id":`...), c.id)
	b = appendString(append(b, `,"remote_host":`...), host)
	b = appendInt(append(b, `,"remote_handshake_port":`...), port)
	b = appendInt(append(b, `,"remote_notify_port":`...), port)
	b = appendInt(append(b, `,"remote_dp_rank":`...), c.o.Parallel.Rank)
	ranks := max(c.o.Parallel.Ranks, 1)
	b = appendInt(append(b, `,"remote_dp_rank_override":true,"remote_dp_size":`...), ranks)
	b = appendInt(append(b, `,"remote_dp_size_local":`...), ranks)
	b = append(b, `,"tp_size":`...)
	b = appendInt(b, c.o.Parallel.TP)
	b = appendString(append(b, `,"transfer_id":`...), transfer)
	return append(b, '}')
}

// decodesUnloaded reports whether the request decodes on blocks into which no KV came. Before 0.33 a decode engine
// of MoRIIO in read mode counts every prompt as loaded, whether a handle came or not.
func (g *generation) decodesUnloaded() bool {
	return g.c.o.Connector == ConnectorMoriio && g.c.o.Role == RoleDecode && !g.pulls() && !g.c.o.since(33)
}
