package sim

import "encoding/json"

// readP2P reads what OffloadingConnector's peer-to-peer tier needs. A request that says remote_decoder
// stores its KV under the id. One that says remote_prefiller fetches it from the socket that it names;
// without the id, the host or the port it computes the prompt as any other. The side channel stands for
// the tier's control socket.
func (g *generation) readP2P() {
	h := &g.h
	role, ok := h.members["remote_prefiller"]
	if !ok {
		role = h.members["remote_decoder"]
	}
	var p struct {
		ID   string `json:"kv_request_id"`
		Host string `json:"remote_host"`
		Port int    `json:"remote_port"`
	}
	if json.Unmarshal(role, &p) != nil {
		return
	}
	h.request, h.peer = p.ID, peerKey{host: p.Host, port: p.Port}
}

// Forgets reports whether engines of the connector free what no decode engine fetches by their own limit
// alone, Options.Lease, in cases that a proxy cannot prevent.
func (c Connector) Forgets() bool { return c == ConnectorP2P }

// stopFetch tells the prefill engine that nobody waits for the blocks any more. Other connectors wait on.
func (g *generation) stopFetch() {
	if g.c.o.Connector == ConnectorP2P {
		g.c.spawn(func() { g.c.notify(g.h, freedByAbort) })
	}
}

// recomputes reports whether a decode engine computes the prompt itself if its KV does not come. With the
// peer-to-peer tier that is a miss like any other.
func (o Options) recomputes() bool {
	return o.LoadFailure == "recompute" || o.Connector == ConnectorP2P
}
