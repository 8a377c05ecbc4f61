package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Connector says how the KV of an engine travels. Both engines of a pair have the same one.
type Connector string

// The connectors that an engine can have.
const (
	ConnectorNixl     Connector = "nixl"           // decode reads what the prefill's handle describes
	ConnectorPush     Connector = "nixl-push"      // likewise, but prefill writes, and pairs the legs by their id
	ConnectorMoriio   Connector = "moriio"         // decode reads; its handle has names of its own, see moriio.go
	ConnectorMooncake Connector = "mooncake"       // prefill writes, and pairs the legs by a transfer id
	ConnectorSGLang   Connector = "sglang"         // prefill writes, and pairs the legs by a room
	ConnectorShared   Connector = "shared-storage" // both look into Options.Storage
)

// Connectors lists them.
func Connectors() []Connector {
	return []Connector{ConnectorNixl, ConnectorPush, ConnectorMoriio, ConnectorMooncake, ConnectorSGLang, ConnectorShared}
}

func (o Options) validateConnector() error {
	if !slices.Contains(Connectors(), o.Connector) {
		return fmt.Errorf("sim connector %q: want one of %v", o.Connector, Connectors())
	}
	if o.stores() && o.connector() && o.Storage == "" {
		return fmt.Errorf("sim connector %s: it needs a folder for the KV (Storage)", o.Connector)
	}
	return nil
}

// stores reports whether KV lies in a store, and nothing is pinned for a reader.
func (o Options) stores() bool { return o.Connector == ConnectorShared }

// sends reports whether a prefill engine sends the blocks to the decode engine that waits for them.
// That engine knows no block ids.
func (o Options) sends() bool {
	return o.Connector == ConnectorPush || o.Connector == ConnectorMooncake || o.Connector == ConnectorSGLang
}

// handsOut reports whether a prefill's answer holds a handle.
func (o Options) handsOut() bool {
	return o.Connector == ConnectorNixl || o.Connector == ConnectorPush || o.Connector == ConnectorMoriio
}

// tellsUnread reports whether a decode engine tells the prefill engine of a request that it rejects,
// or whose client leaves before it is scheduled. In push mode it does not: the registration stays
// with the decode engine.
func (o Options) tellsUnread() bool {
	return o.Connector == ConnectorNixl || o.Connector == ConnectorMoriio || o.Connector == ConnectorMooncake
}

// readHandle reads what the request says of the other engine.
func (g *generation) readHandle() {
	g.h = parseHandle(g.r.kv)
	switch h := &g.h; g.c.o.Connector {
	case ConnectorPush:
		h.sent = true
		h.request = g.api.internalID(g.id, 0)
	case ConnectorMoriio:
		h.readMoriio()
	case ConnectorMooncake:
		h.sent = true
		h.request = stringMember(h.members, "transfer_id")
		h.bootstrap = stringMember(h.members, "remote_bootstrap_addr")
	case ConnectorSGLang:
		h.sent = true
		h.request = strconv.FormatUint(g.r.room, 10)
		h.peer = peerKey{host: g.r.bootstrapHost, port: g.r.bootstrapPort}
	}
}

// pinKey is the name under which a prefill pins the blocks of u.
func (g *generation) pinKey(u *unit) string {
	switch g.c.o.Connector {
	case ConnectorPush:
		return u.internalID[:strings.LastIndexByte(u.internalID, '-')]
	case ConnectorMoriio:
		return moriioTransfer(u.internalID)
	case ConnectorMooncake, ConnectorSGLang:
		return g.h.request
	}
	return u.internalID
}

// receive registers with h's prefill engine, and waits without a limit until that engine sends the
// blocks from the first-th up to the last-th of the prompt.
func (c *core) receive(h handle, first, last int) ([]uint64, error) {
	peer, err := c.locate(h)
	if err != nil {
		return nil, err
	}
	conn, err := c.connect(peer)
	if err != nil {
		return nil, err
	}
	c.pullTime(last - first)
	reply, err := conn.ask(sideMessage{Op: "await", Request: h.request, First: first, Last: last})
	c.gate.wait()
	if err != nil {
		c.discard(conn)
		return nil, err
	}
	c.park(conn)
	return reply.Contents, nil
}

// send serves an await: it waits for the prefill with that key, and frees its blocks.
func (c *core) send(m sideMessage) sideReply {
	blocks, ok := c.ledger.await(c.life, m.Request, c.o.Lease)
	if !ok {
		return sideReply{Error: "no prefill " + m.Request}
	}
	if m.Last > len(blocks) || m.First > m.Last {
		return sideReply{Error: fmt.Sprintf("blocks %d to %d of %d", m.First, m.Last, len(blocks))}
	}
	contents, _ := c.ledger.read(m.Request, blocks[m.First:m.Last])
	c.ledger.unpin(m.Request, freedByRead)
	return sideReply{Contents: contents}
}

// release frees the blocks of a prefill that nobody will read, as soon as there are any.
func (c *core) release(m sideMessage) {
	if !c.o.sends() {
		c.ledger.unpin(m.Request, m.By)
		return
	}
	c.spawn(func() {
		if _, ok := c.ledger.await(c.life, m.Request, c.o.Lease); ok {
			c.ledger.unpin(m.Request, m.By)
		}
	})
}

// wake has those who wait look again. l.mu is held.
func (l *ledger) wake() {
	if l.pinned != nil {
		close(l.pinned)
		l.pinned = nil
	}
}

// tellAborted ends the wait of a decode engine for a prefill whose client has left. SGLang's prefill
// servers do so; with the other connectors decode waits on.
func (g *generation) tellAborted() {
	if l := g.c.ledger; g.c.o.Connector == ConnectorSGLang {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.refused[g.h.request] = true
		if e := l.pins[g.h.request]; e != nil {
			l.drop(e, freedByAbort)
			l.schedule()
		}
		l.wake()
	}
}

// holds reports whether blocks are pinned under key.
func (l *ledger) holds(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pins[key] != nil
}

// await returns the blocks that are pinned under key. It waits for them until ctx or patience ends.
func (l *ledger) await(ctx context.Context, key string, patience time.Duration) ([]int, bool) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		l.mu.Lock()
		if e, ok := l.pins[key]; ok {
			l.mu.Unlock()
			return e.Blocks, true
		}
		if l.refused[key] {
			l.mu.Unlock()
			return nil, false
		}
		if l.pinned == nil {
			l.pinned = make(chan struct{})
		}
		more := l.pinned
		l.mu.Unlock()
		select {
		case <-more:
		case <-timer.C:
			return nil, false
		case <-ctx.Done():
			return nil, false
		}
	}
}

// awaitSent waits until the blocks are sent, where a prefill answers only then. It returns false if
// the client left before, which frees them.
func (g *generation) awaitSent(ctx context.Context) bool {
	if g.c.o.Connector != ConnectorSGLang || g.h.request == "0" {
		return true
	}
	for g.c.ledger.holds(g.h.request) {
		if !g.c.pause(ctx, time.Millisecond) || g.x.gone() {
			g.tellAborted()
			g.left()
			return false
		}
	}
	return true
}

// readRoom reads SGLang's members, which vLLM does not know. Anything else in them stands for none.
func (r *request) readRoom(f *fields) {
	_ = json.Unmarshal(f.members["bootstrap_host"], &r.bootstrapHost)
	_ = json.Unmarshal(f.members["bootstrap_port"], &r.bootstrapPort)
	_ = json.Unmarshal(f.members["bootstrap_room"], &r.room)
}
