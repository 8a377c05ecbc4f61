package sim

import (
	"encoding/json"
	"net"
	"strconv"
)

// notifyAbove is how far the notify port of simulated engines lies above their handshake port. There is
// nothing behind it: the side channel, which is the handshake port, stands for both.
const notifyAbove = 100

// directed reports whether a prefill of MoRIIO in write mode names the decode engine. The scheduler raises an
// error for one that does not, and the engine dies of it.
func (g *generation) directed() bool {
	return g.c.o.Connector != ConnectorWrite || g.target().port != 0
}

// landing is the decode engine that a prefill leg names: the handshake port of its rank 0, and how many ranks it has.
type landing struct {
	host        string
	port, ranks int
}

// at is host:port of a rank, or "" if P has not been told of it.
func (l landing) at(rank int) string {
	if rank >= l.ranks {
		return ""
	}
	return net.JoinHostPort(l.host, strconv.Itoa(l.port+rank))
}

// target is the decode engine that the prefill leg names. Its port is 0 if the leg names none.
func (g *generation) target() landing {
	var handshake, notify int
	_ = json.Unmarshal(g.h.members["remote_handshake_port"], &handshake)
	_ = json.Unmarshal(g.h.members["remote_notify_port"], &notify)
	if g.h.peer.host == "" || handshake == 0 || notify != handshake+notifyAbove || g.h.members["remote_engine_id"] == nil || g.h.members["remote_block_ids"] == nil {
		return landing{}
	}
	l := landing{g.h.peer.host, handshake, 1}
	_ = json.Unmarshal(g.h.members["remote_dp_size"], &l.ranks)
	return l
}

// direct notes into whose memory the blocks of u will be written.
func (g *generation) direct(u *unit) {
	if g.c.o.Connector == ConnectorWrite {
		g.c.targets.Store(g.pinKey(u), g.target())
	}
}

// writeElsewhere spoils the contents for an engine that waits for a prefill which was directed to another one:
// they go into that one's memory, and the engine is told that they have come.
func (c *core) writeElsewhere(m sideMessage, contents []uint64) {
	if c.o.Connector != ConnectorWrite {
		return
	}
	target, _ := c.targets.LoadAndDelete(m.Request)
	if l, ok := target.(landing); ok && l.at(m.Rank) == m.To {
		return
	}
	for i := range contents {
		contents[i] = mix(contents[i], 0xdead)
	}
	c.ledger.misdirected()
}

// misdirected counts blocks that went to the wrong engine as a stale read.
func (l *ledger) misdirected() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stale++
}

// askRestarted asks once more over a fresh connection, after one to the peer broke with err. A restarted engine has the same
// id, and a decode engine tells it of its blocks without another handshake. What the former engine was told is lost.
func (c *core) askRestarted(broken *peerConn, m sideMessage, err error) (*peerConn, sideReply, error) {
	c.forget(broken.key)
	conn, dialled := c.connect(broken.key)
	if dialled != nil {
		return broken, sideReply{}, err
	}
	c.discard(broken)
	reply, err := conn.ask(m)
	return conn, reply, err
}
