package sim

import (
	"context"
	"encoding/json"
	"errors"
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
	ConnectorWrite    Connector = "moriio-write"   // prefill writes into the decode engine that its leg has named
	ConnectorMooncake Connector = "mooncake"       // prefill writes, and pairs the legs by a transfer id
	ConnectorSGLang   Connector = "sglang"         // prefill writes, and pairs the legs by a room
	ConnectorP2P      Connector = "offloading-p2p" // prefill sends what decode fetches under an id, see p2p.go
	ConnectorShared   Connector = "shared-storage" // both look into Options.Storage
	ConnectorStore    Connector = "store"          // likewise, as MooncakeStoreConnector, FlexKV and HF3FS do
	ConnectorLMCache  Connector = "lmcache"        // likewise, but a decode engine takes time to load, and dies if its client leaves meanwhile
)

// trait is something that the engines of some connectors do.
type trait uint8

const (
	traitStores      trait = 1 << iota // KV lies in Options.Storage, and nothing is pinned for a reader
	traitTicket                        // it lies there under what the request names, and not under its tokens
	traitSends                         // a prefill engine sends the blocks to the decode engine that waits for them, which knows no block ids
	traitHandsOut                      // a prefill's answer holds a handle
	traitTellsUnread                   // a decode engine tells the prefill engine of a request that it rejects, or whose client leaves before it is scheduled
	traitFragile                       // a decode engine takes time to load from Options.Storage, and dies of a client that leaves meanwhile
	traitPatient                       // a decode engine waits without a limit for blocks that a prefill engine writes
)

// way is a connector, and how its engines differ from others.
type way struct {
	name Connector
	does trait
	read func(*generation) // reads what a request says of the other engine, if NIXL's names do not say it
}

// ways has a row for each connector. In push mode a decode engine tells the prefill engine nothing of what it rejects: the
// registration stays with it.
func ways() []way {
	return []way{
		{ConnectorNixl, traitHandsOut | traitTellsUnread, nil},
		{ConnectorPush, traitSends | traitHandsOut | traitPatient, (*generation).readPush},
		{ConnectorMoriio, traitHandsOut | traitTellsUnread, (*generation).readMoriio},
		{ConnectorWrite, traitSends | traitHandsOut | traitTellsUnread | traitPatient, (*generation).readMoriio},
		{ConnectorMooncake, traitSends | traitTellsUnread, (*generation).readMooncake},
		{ConnectorSGLang, traitSends, (*generation).readSGLang},
		{ConnectorP2P, traitSends, (*generation).readP2P},
		{ConnectorShared, traitStores, nil},
		{ConnectorStore, traitStores, nil},
		{ConnectorLMCache, traitStores | traitFragile, nil},
	}
}

// Connectors lists them.
func Connectors() []Connector {
	var all []Connector
	for _, w := range ways() {
		all = append(all, w.name)
	}
	return all
}

// has reports whether engines of the connector have the trait.
func (c Connector) has(t trait) bool {
	for _, w := range ways() {
		if w.name == c {
			return w.does&t != 0
		}
	}
	return false
}

// Stores reports whether engines of the connector need a folder for the KV, Options.Storage.
func (c Connector) Stores() bool { return c.has(traitStores) }

// Neighbours reports whether the side channels of a server's ranks must have ports that follow each other, because a leg names
// that of rank 0.
func (c Connector) Neighbours(role Role) bool {
	switch c {
	case ConnectorP2P, ConnectorSGLang:
		return role == RolePrefill
	case ConnectorMoriio, ConnectorWrite:
		return role == RolePrefill || role == RoleDecode
	}
	return false
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

func (o Options) stores() bool      { return o.Connector.has(traitStores) }
func (o Options) sends() bool       { return o.Connector.has(traitSends) }
func (o Options) handsOut() bool    { return o.Connector.has(traitHandsOut) }
func (o Options) tellsUnread() bool { return o.Connector.has(traitTellsUnread) }
func (o Options) fragile() bool     { return o.Connector.has(traitFragile) }
func (o Options) patient() bool     { return o.Connector.has(traitPatient) }

// readHandle reads what the request says of the other engine.
func (g *generation) readHandle() {
	g.h = parseHandle(g.r.kv)
	g.h.sent = g.c.o.sends()
	for _, w := range ways() {
		if w.name == g.c.o.Connector && w.read != nil {
			w.read(g)
		}
	}
}

// readPush reads under which id the legs pair: since the release after 0.33 that is the transfer_id of both, and before
// that the request's.
func (g *generation) readPush() {
	g.h.request = g.api.internalID(g.id, 0)
	if id := stringMember(g.h.members, "transfer_id"); id != "" && g.c.o.since(34) {
		g.h.request = id
	}
}

func (g *generation) readMooncake() {
	g.h.request = stringMember(g.h.members, "transfer_id")
	g.h.bootstrap = stringMember(g.h.members, "remote_bootstrap_addr")
}

func (g *generation) readSGLang() {
	g.h.request = strconv.FormatUint(g.r.room, 10)
	g.h.peer = peerKey{host: g.r.bootstrapHost, port: g.r.bootstrapPort}
}

// pinKey is the name under which a prefill pins the blocks of u.
func (g *generation) pinKey(u *unit) string {
	switch g.c.o.Connector {
	case ConnectorPush:
		if g.c.o.since(34) && g.h.members["transfer_id"] != nil {
			return g.h.request
		}
		return u.internalID[:strings.LastIndexByte(u.internalID, '-')]
	case ConnectorMoriio, ConnectorWrite:
		return moriioTransfer(u.internalID)
	case ConnectorMooncake, ConnectorSGLang, ConnectorP2P:
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
	known := c.peers.knows(peer)
	conn, err := c.connect(peer)
	if err != nil {
		c.waitForTheDead(known)
		return nil, err
	}
	c.pullTime(last - first)
	await := sideMessage{Op: "await", Request: h.request, First: first, Last: last, To: c.side.Addr().String(), Rank: c.o.Parallel.Rank}
	reply, err := conn.ask(await)
	if err != nil && !errors.Is(err, errRefused) && c.o.Connector == ConnectorWrite {
		conn, reply, err = c.askRestarted(conn, await, err)
	}
	c.gate.wait()
	if err != nil {
		c.discard(conn)
		c.waitForTheDead(!errors.Is(err, errRefused))
		return nil, err
	}
	c.park(conn)
	return reply.Contents, nil
}

// waitForTheDead waits until this engine ends, if it has shaken hands with a prefill engine that is gone. In
// push mode vLLM's decode engine does not fail a request whose registration it could not send, because that may
// have been sent in part. It does not notice an engine that dies after that either. The request waits without
// a limit, and its blocks stay in use even after its client has left. MoRIIO in write mode has no limit either.
func (c *core) waitForTheDead(known bool) {
	if known && c.o.patient() {
		<-c.life.Done()
	}
}

// send serves an await: it waits for the prefill with that key, and frees its blocks. In push mode vLLM's prefill engine
// keeps a registration for which it has no blocks, those that it has written already included, and its decode engine
// waits for them without a limit.
func (c *core) send(m sideMessage) sideReply {
	patience := c.o.Lease
	switch {
	case c.o.Connector == ConnectorP2P:
		patience = c.o.FetchTimeout
	case c.o.patient():
		patience = 0
	}
	blocks, ok := c.ledger.await(c.life, m.Request, patience)
	if !ok {
		return sideReply{Error: "no prefill " + m.Request}
	}
	if m.Last > len(blocks) || m.First > m.Last {
		return sideReply{Error: fmt.Sprintf("blocks %d to %d of %d", m.First, m.Last, len(blocks))}
	}
	contents, _ := c.ledger.read(m.Request, blocks[m.First:m.Last])
	c.writeElsewhere(m, contents)
	c.ledger.unpin(m.Request, freedByRead)
	return sideReply{Contents: contents}
}

// release frees the blocks of a prefill that nobody will read, as soon as there are any.
func (c *core) release(m sideMessage) {
	switch {
	case !c.o.sends():
		if !c.ledger.unpin(m.Request, m.By) {
			c.metrics.add("nixl_num_notifications_after_expiry_total", 1)
		}
		return
	case c.o.Connector == ConnectorP2P:
		c.ledger.refuse(m.Request)
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
// servers and the peer-to-peer tier do so; with the other connectors decode waits on.
func (g *generation) tellAborted() {
	if o := g.c.o; o.Connector == ConnectorSGLang || o.Connector == ConnectorP2P {
		g.c.ledger.refuse(g.h.request)
	}
}

// refuse ends the wait for key, and frees what is pinned under it.
func (l *ledger) refuse(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused[key] = true
	if e := l.pins[key]; e != nil {
		l.drop(e, freedByAbort)
		l.schedule()
	}
	l.wake()
}

// holds reports whether blocks are pinned under key.
func (l *ledger) holds(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pins[key] != nil
}

// await returns the blocks that are pinned under key. It waits for them until ctx or patience ends, which is without a
// limit if it is 0.
func (l *ledger) await(ctx context.Context, key string, patience time.Duration) ([]int, bool) {
	var late <-chan time.Time
	if patience > 0 {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		late = timer.C
	}
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
		case <-late:
			return nil, false
		case <-ctx.Done():
			return nil, false
		}
	}
}

// endAborted ends the transfer of a request whose client left before. If the answer was to be whole, Mooncake's decode engine
// asks the prefill engine once more under the same transfer id, to have its blocks freed. A prefill engine that serves
// this question first tells the other one nothing, and the decode engine's blocks stay in use until it is restarted. vLLM's
// engines lose them only if the questions come in that order. These always do, unless the prefill engine is gone.
func (g *generation) endAborted(r *reservation, result loadResult) {
	if g.c.o.Connector == ConnectorMooncake && !g.r.stream && result.err == nil {
		g.c.ledger.lose(r)
		return
	}
	g.c.ledger.finish(r)
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

// readRoom reads SGLang's members, which vLLM does not know. Anything else in them stands for none. The bootstrap server of
// a rank stands for that of its server, and has the port that many after that of rank 0.
func (r *request) readRoom(f *fields) {
	_ = json.Unmarshal(f.members["bootstrap_host"], &r.bootstrapHost)
	_ = json.Unmarshal(f.members["bootstrap_port"], &r.bootstrapPort)
	_ = json.Unmarshal(f.members["bootstrap_room"], &r.room)
	var rank int
	_ = json.Unmarshal(f.members["disagg_prefill_dp_rank"], &rank)
	r.bootstrapPort += rank
}

// pulls reports whether this is the second leg: its KV comes from another engine.
func (g *generation) pulls() bool {
	switch o := g.c.o; {
	case !o.connector() || o.stores():
		return false
	case o.Connector == ConnectorSGLang:
		return o.Role == RoleDecode && g.r.room > 0
	case o.Connector == ConnectorP2P:
		return g.h.members["remote_prefiller"] != nil && g.h.addressable()
	}
	return g.h.remotePrefill()
}
