// Package announce publishes which KV blocks a simulated engine has stored and removed, as vLLM does with
// --kv-events-config: a PUB socket for the batches, and a ROUTER socket at which they are said again.
package announce

import (
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"strconv"
	"sync"
	"time"

	"xpyd/internal/msgpack"
	"xpyd/internal/zmtp"
)

const (
	keptBatches   = 10_000 // buffer_steps
	queuedBatches = 100_000
	askBytes      = 1 << 10 // of a subscription, and of a request for a replay
)

// Announcer publishes the events of one incarnation of an engine. A nil one publishes nothing.
type Announcer struct {
	pub, replay net.Listener // replay may be nil
	seed        uint64
	wait        func() // holds a batch back while the engine is frozen
	wg          sync.WaitGroup

	mu     sync.Mutex
	seq    uint64
	past   []batch
	subs   map[chan batch]struct{}
	conns  map[net.Conn]struct{}
	closed bool
	drop   int  // batches that are not published
	forget bool // and not kept either
	room   int  // batches of the next replay for which its socket has room; 0: all
}

type batch struct {
	seq     uint64
	payload []byte
}

// Start listens on events, and on replay unless that is empty. Hashes of blocks are made with seed, as with a
// PYTHONHASHSEED that is not set.
func Start(events, replay string, seed uint64, wait func()) (*Announcer, error) {
	a := &Announcer{seed: seed, wait: wait, subs: map[chan batch]struct{}{}, conns: map[net.Conn]struct{}{}}
	var err error
	if a.pub, err = net.Listen("tcp", events); err != nil {
		return nil, fmt.Errorf("listen for KV events on %s: %w", events, err)
	}
	a.wg.Go(func() { a.accept(a.pub, a.publish) })
	if replay == "" {
		return a, nil
	}
	if a.replay, err = net.Listen("tcp", replay); err != nil {
		a.Close()
		return nil, fmt.Errorf("listen for replays of KV events on %s: %w", replay, err)
	}
	a.wg.Go(func() { a.accept(a.replay, a.answer) })
	return a, nil
}

// Addrs are those of both sockets; replay is empty if there is none.
func (a *Announcer) Addrs() (events, replay string) {
	if a == nil {
		return "", ""
	}
	if a.replay != nil {
		replay = a.replay.Addr().String()
	}
	return a.pub.Addr().String(), replay
}

// AppendSources appends what vLLM's /kv_event_sources answers.
func (a *Announcer) AppendSources(dst []byte) []byte {
	events, replay := a.Addrs()
	if events == "" {
		return append(dst, "{}"...)
	}
	again := "null"
	if replay != "" {
		again = strconv.Quote("tcp://" + replay)
	}
	return fmt.Appendf(dst, `{"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://%s","replay_endpoint":%s,`+
		`"buffer_steps":%d,"hwm":100000,"max_queue_size":%d,"topic":""}}`, events, again, keptBatches, queuedBatches)
}

// Close ends all connections and waits for them.
func (a *Announcer) Close() {
	if a == nil {
		return
	}
	a.mu.Lock()
	a.closed = true
	for _, l := range []net.Listener{a.pub, a.replay} {
		if l != nil {
			_ = l.Close()
		}
	}
	for c := range a.conns {
		_ = c.Close()
	}
	a.mu.Unlock()
	a.wg.Wait()
}

// Drop makes the next n batches not be published. If forget is set, a replay does not have them either.
func (a *Announcer) Drop(n int, forget bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop, a.forget = n, forget
}

// Subscribers is how many listen.
func (a *Announcer) Subscribers() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.subs)
}

// CutReplay makes the next replay drop what comes after n batches, as a socket does that has no room for more.
func (a *Announcer) CutReplay(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.room = n
}

// Removed publishes that the blocks of these keys are no longer cached.
func (a *Announcer) Removed(keys []uint64) {
	if a == nil || len(keys) == 0 {
		return
	}
	b := msgpack.AppendText(named(a.begin(), 3), "BlockRemoved")
	b = a.appendHashes(b, keys)
	a.send(msgpack.AppendText(msgpack.AppendText(b, "medium"), "GPU"))
}

// Stored publishes that the blocks from one on are cached. keys are those of all blocks of the prompt up to the last one,
// ids its tokens.
func (a *Announcer) Stored(keys []uint64, ids []int, size, from int) {
	if a == nil || from >= len(keys) {
		return
	}
	b := msgpack.AppendText(named(a.begin(), 6), "BlockStored")
	b = a.appendHashes(b, keys[from:])
	b = msgpack.AppendText(b, "parent_block_hash")
	if from == 0 {
		b = msgpack.AppendNil(b)
	} else {
		b = msgpack.AppendUint(b, a.hash(keys[from-1]))
	}
	b = msgpack.AppendArray(msgpack.AppendText(b, "token_ids"), (len(keys)-from)*size)
	for _, id := range ids[from*size : len(keys)*size] {
		b = msgpack.AppendUint(b, uint64(id))
	}
	b = msgpack.AppendUint(msgpack.AppendText(b, "block_size"), uint64(size))
	a.send(msgpack.AppendText(msgpack.AppendText(b, "medium"), "GPU"))
}

// Cleared publishes that nothing is cached.
func (a *Announcer) Cleared() {
	if a != nil {
		a.send(msgpack.AppendText(named(a.begin(), 1), "AllBlocksCleared"))
	}
}

// begin begins a batch of one event.
func (a *Announcer) begin() []byte {
	b := msgpack.AppendFloat(msgpack.AppendArray(nil, 3), float64(time.Now().UnixMicro())/1e6)
	return msgpack.AppendArray(b, 1)
}

// named begins a map of so many members, the first of which is the type.
func named(b []byte, members int) []byte {
	return msgpack.AppendText(msgpack.AppendMap(b, members), "type")
}

func (a *Announcer) appendHashes(b []byte, keys []uint64) []byte {
	b = msgpack.AppendArray(msgpack.AppendText(b, "block_hashes"), len(keys))
	for _, key := range keys {
		b = msgpack.AppendUint(b, a.hash(key))
	}
	return b
}

// hash is what others know a block by.
func (a *Announcer) hash(key uint64) uint64 { return (key ^ a.seed) * 0x9e3779b97f4a7c15 }

// send publishes a batch, which lacks only the rank.
func (a *Announcer) send(b []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	x := batch{a.seq, msgpack.AppendUint(b, 0)}
	a.seq++
	dropped := a.drop > 0
	if dropped {
		a.drop--
	}
	if !dropped || !a.forget {
		a.past = append(a.past, x)
		a.past = a.past[max(0, len(a.past)-keptBatches):]
	}
	for sub := range a.subs {
		if dropped {
			break
		}
		select {
		case sub <- x:
		default: // its reader is too slow
		}
	}
}

func (a *Announcer) accept(l net.Listener, serve func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		a.mu.Lock()
		if a.closed {
			_ = c.Close()
		} else {
			a.conns[c] = struct{}{}
			a.wg.Go(func() {
				serve(c)
				_ = c.Close()
				a.mu.Lock()
				delete(a.conns, c)
				a.mu.Unlock()
			})
		}
		a.mu.Unlock()
	}
}

// publish serves a subscriber until it hangs up.
func (a *Announcer) publish(c net.Conn) {
	z, err := zmtp.Open(c, zmtp.Pub, zmtp.Sub, askBytes)
	if err != nil {
		return
	}
	if _, err := z.Receive(); err != nil { // the subscription, to all topics
		return
	}
	sub := make(chan batch, queuedBatches)
	a.mu.Lock()
	a.subs[sub] = struct{}{}
	a.mu.Unlock()
	gone := make(chan struct{})
	a.wg.Go(func() {
		defer close(gone)
		for err == nil {
			_, err = z.Receive()
		}
	})
	defer func() {
		a.mu.Lock()
		delete(a.subs, sub)
		a.mu.Unlock()
		_ = c.Close()
		<-gone
	}()
	for {
		select {
		case <-gone:
			return
		case x := <-sub:
			a.wait()
			if z.Send(nil, binary.BigEndian.AppendUint64(nil, x.seq), x.payload) != nil {
				return
			}
		}
	}
}

// answer serves one that asks for batches again.
func (a *Announcer) answer(c net.Conn) {
	z, err := zmtp.Open(c, zmtp.Router, zmtp.Dealer, askBytes)
	if err != nil {
		return
	}
	for {
		frames, err := z.Receive()
		if err != nil || len(frames) != 2 || len(frames[1]) != 8 {
			return
		}
		if a.again(z, binary.BigEndian.Uint64(frames[1])) != nil {
			return
		}
	}
}

// again sends the batches from a number on, and that there are no more, as vLLM 0.32 does.
func (a *Announcer) again(z *zmtp.Conn, from uint64) error {
	a.mu.Lock()
	past, room := a.past, a.room
	a.room = 0
	a.mu.Unlock()
	sent := 0
	for _, x := range past {
		if x.seq < from {
			continue
		}
		if sent++; room > 0 && sent > room {
			return nil
		}
		if err := z.Send(nil, nil, binary.BigEndian.AppendUint64(nil, x.seq), x.payload); err != nil {
			return err
		}
	}
	return z.Send(nil, nil, binary.BigEndian.AppendUint64(nil, math.MaxUint64), nil)
}
