package kvevents

import (
	"sync/atomic"
	"testing"
	"time"

	"xpyd/internal/msgpack"
	"xpyd/router/prefix"
)

// noCache counts what an index tells, and believes it.
type noCache struct{ counts prefix.News }

func (*noCache) Stored([]uint64)            {}
func (*noCache) Removed([]uint64)           {}
func (*noCache) Grown(int)                  {}
func (*noCache) Cleared()                   {}
func (*noCache) Listen(chan<- prefix.Heard) {}
func (c *noCache) Counts() *prefix.News     { return &c.counts }

// batchOf is a batch of one event, as msgspec writes maps.
func batchOf(event []byte) []byte {
	b := msgpack.AppendFloat(msgpack.AppendArray(nil, 3), 1.5)
	return msgpack.AppendUint(append(msgpack.AppendArray(b, 1), event...), 0)
}

func storedEvent(first uint64, blocks, size int) []byte {
	b := msgpack.AppendText(msgpack.AppendText(msgpack.AppendMap(nil, 5), "type"), "BlockStored")
	b = msgpack.AppendArray(msgpack.AppendText(b, "block_hashes"), blocks)
	for i := range blocks {
		b = msgpack.AppendUint(b, first+uint64(i))
	}
	b = msgpack.AppendNil(msgpack.AppendText(b, "parent_block_hash"))
	b = msgpack.AppendArray(msgpack.AppendText(b, "token_ids"), blocks*size)
	for i := range blocks * size {
		b = msgpack.AppendUint(b, first+uint64(i))
	}
	return msgpack.AppendUint(msgpack.AppendText(b, "block_size"), uint64(size))
}

func removedEvent(hashes ...uint64) []byte {
	b := msgpack.AppendText(msgpack.AppendText(msgpack.AppendMap(nil, 2), "type"), "BlockRemoved")
	b = msgpack.AppendArray(msgpack.AppendText(b, "block_hashes"), len(hashes))
	for _, h := range hashes {
		b = msgpack.AppendUint(b, h)
	}
	return b
}

func newTestIndex(most int64) *index {
	bound := new(atomic.Int64)
	bound.Store(most)
	return newIndex(caches{new(noCache)}, new(names), bound)
}

// FuzzBatch wants no payload to break a reader, to make it hold more than the bound, or to cost more than it is long.
func FuzzBatch(f *testing.F) {
	f.Add(batchOf(storedEvent(1000, 3, 4)))
	f.Add(batchOf(removedEvent(1000, 1<<63)))
	f.Add(batchOf(msgpack.AppendText(msgpack.AppendText(msgpack.AppendMap(nil, 1), "type"), "AllBlocksCleared")))
	f.Add([]byte("\x93\xcb\x3f\xf8\x00\x00\x00\x00\x00\x00\x91\x96\xabBlockStored\x92\x01\xc4\x02ab\xc0\x94\x01\x02\x03\x04\x02\xc0\x00")) // an array, as older releases write it
	f.Add([]byte("\xdd\xff\xff\xff\xff\xdf\xff\xff\xff\xff"))
	x := newTestIndex(100)
	f.Fuzz(func(t *testing.T, payload []byte) {
		var d decoder
		_ = d.read(payload, func(e *event) {
			x.take(e, time.Unix(1, 0))
			if len(e.tokens) > len(payload) || len(e.hashes) > len(payload) || len(e.extra) > len(payload) {
				t.Fatalf("%d tokens and %d hashes of %d bytes", len(e.tokens), len(e.hashes), len(payload))
			}
		})
		if len(x.blocks) > 100 {
			t.Fatalf("%d blocks", len(x.blocks))
		}
	})
}

// Both ways in which msgspec writes an event mean the same, and adapters, salts and layers tell blocks apart.
func TestEventsAreRead(t *testing.T) {
	read := func(payload string) (got []event) {
		var d decoder
		if err := d.read([]byte(payload), func(e *event) {
			c := *e
			c.hashes = append([]uint64(nil), e.hashes...)
			got = append(got, c)
		}); err != nil {
			t.Fatal(err)
		}
		return got
	}
	array := read("\x93\xcb\x3f\xf8\x00\x00\x00\x00\x00\x00\x92\x98\xabBlockStored\x92\x05\x06\x04\x94\x01\x02\x03\x04\x02\xc0\xa3GPU\xa1a\x92\xacBlockRemoved\x91\x05\x00")
	if len(array) != 2 || array[0].change != stored || array[0].parent != 4 || array[0].size != 2 || array[0].lora == 0 || !array[0].gpu ||
		array[1].change != removed || len(array[1].hashes) != 1 || array[1].hashes[0] != 5 {
		t.Errorf("%+v", array)
	}
	other := read("\x92\x00\x91\x83\xa4type\xacBlockRemoved\xacblock_hashes\x91\xc4\x01x\xa6medium\xa3CPU")
	if len(other) != 1 || other[0].gpu || len(other[0].hashes) != 1 {
		t.Errorf("%+v", other)
	}
	batches := read("\x82\xa2ts\x00\xa6events\x91\x81\xa4type\xb0AllBlocksCleared")
	if len(batches) != 1 || batches[0].change != cleared {
		t.Errorf("%+v", batches)
	}
	x := newTestIndex(10)
	e := event{change: stored, hashes: []uint64{1}, tokens: []uint32{1, 2}, size: 2}
	keys := map[uint64]bool{x.keyOf(0, &e, 0): true}
	e.lora = 7
	keys[x.keyOf(0, &e, 0)] = true
	e.extra = []uint64{9}
	keys[x.keyOf(0, &e, 0)] = true
	keys[x.keyOf(1, &e, 0)] = true
	if len(keys) != 4 {
		t.Errorf("%d keys of 4 blocks", len(keys))
	}
}

// A block that the engine has in two places is there until both have removed it.
func TestMediaCount(t *testing.T) {
	x := newTestIndex(10)
	e := event{change: stored, hashes: []uint64{1}, tokens: []uint32{1, 2}, size: 2, gpu: true}
	x.take(&e, time.Time{})
	e.gpu = false
	x.take(&e, time.Time{})
	gone := event{change: removed, hashes: []uint64{1}, gpu: true}
	if x.take(&gone, time.Time{}); len(x.blocks) != 1 {
		t.Error("removed where it is still in the memory of the host")
	}
	gone.gpu = false
	if x.take(&gone, time.Time{}); len(x.blocks) != 0 {
		t.Error("still there")
	}
}

// BenchmarkBatch is a prompt of 2,000 tokens that is stored, and one that is removed.
func BenchmarkBatch(b *testing.B) {
	x := newTestIndex(20_000)
	var d decoder
	on := batchOf(storedEvent(1<<40, 125, 16))
	hashes := make([]uint64, 125)
	for i := range hashes {
		hashes[i] = 1<<40 + uint64(i)
	}
	off := batchOf(removedEvent(hashes...))
	b.ReportAllocs()
	b.SetBytes(int64(len(on) + len(off)))
	for b.Loop() {
		for _, payload := range [][]byte{on, off} {
			if err := d.read(payload, func(e *event) { x.take(e, time.Time{}) }); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkEngines is one event of one block: every engine of 64 in turn, each with 20,000 blocks, stores one and removes one.
func BenchmarkEngines(b *testing.B) {
	var engines [64]*index
	for i := range engines {
		engines[i] = newTestIndex(30_000)
	}
	var d decoder
	send := func(x *index, payload []byte) {
		if err := d.read(payload, func(e *event) { x.take(e, time.Time{}) }); err != nil {
			b.Fatal(err)
		}
	}
	for n := range uint64(20_000) {
		on := batchOf(storedEvent(1<<40+n, 1, 16))
		for _, x := range engines {
			send(x, on)
		}
	}
	payloads := make([][]byte, 0, 2000)
	for n := range uint64(1000) {
		payloads = append(payloads, batchOf(storedEvent(1<<41+n, 1, 16)), batchOf(removedEvent(1<<41+n)))
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		send(engines[n/2%len(engines)], payloads[n%2+n/(2*len(engines))%1000*2])
	}
}
