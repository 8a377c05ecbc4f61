package sim

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
)

// The side channel stands for NIXL: one JSON object in each line, over TCP. A reader shakes hands,
// reads blocks by id, and notifies. Heartbeats renew leases. As with RDMA, nothing checks whether
// the reader may read, or whether the blocks still hold what it wants.
type sideMessage struct {
	Op      string `json:"op"`                // handshake, read, await, encoding, notify or heartbeat
	Blocks  []int  `json:"blocks,omitempty"`  // read
	Request string `json:"request,omitempty"` // read, await, notify, heartbeat: what the prefill pinned the blocks under; encoding: its hash
	By      string `json:"by,omitempty"`      // notify: read, abort or reject
	First   int    `json:"first,omitempty"`   // await: number of the first block of the prompt
	Last    int    `json:"last,omitempty"`    // await: number after the last one
	To      string `json:"to,omitempty"`      // await: side channel of the engine that waits
	Rank    int    `json:"rank,omitempty"`    // await: its data-parallel rank
}

// sideReply answers a handshake or a read. The other messages get no answer.
type sideReply struct {
	Engine    string   `json:"engine,omitempty"`
	Version   string   `json:"version,omitempty"`
	Model     string   `json:"model,omitempty"`
	BlockSize int      `json:"block_size,omitempty"`
	TP        int      `json:"tp_size,omitempty"`
	Contents  []uint64 `json:"contents,omitempty"`
	Error     string   `json:"error,omitempty"`
}

// serveSide answers one reader until it hangs up.
func (c *core) serveSide(nc net.Conn) {
	in, out := json.NewDecoder(bufio.NewReader(nc)), json.NewEncoder(nc)
	for {
		var m sideMessage
		if in.Decode(&m) != nil {
			return
		}
		c.gate.wait()
		reply, answered := c.sideOp(m)
		if answered && out.Encode(reply) != nil {
			return
		}
	}
}

func (c *core) sideOp(m sideMessage) (reply sideReply, answered bool) {
	switch m.Op {
	case "handshake":
		return sideReply{Engine: c.id, Version: c.o.Version, Model: c.o.Model, BlockSize: c.o.BlockSize, TP: c.o.Parallel.TP}, true
	case "read":
		contents, ok := c.ledger.read(m.Request, m.Blocks)
		if !ok {
			return sideReply{Error: fmt.Sprintf("read blocks %v: out of range", m.Blocks)}, true
		}
		return sideReply{Contents: contents}, true
	case "await":
		reply = c.send(m)
		return reply, c.life.Err() == nil // an engine that is dead refuses nothing
	case "encoding":
		if !c.encodings.has(m.Request) {
			return sideReply{Error: "no such encoding"}, true
		}
		return sideReply{}, true
	case "notify":
		c.release(m)
	case "heartbeat":
		c.ledger.extend(m.Request)
	}
	return sideReply{}, false
}
