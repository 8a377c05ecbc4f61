package kvevents

import (
	"errors"

	"github.com/cespare/xxhash/v2"

	"xpyd/internal/msgpack"
)

// errBatch is any fault of a payload. What an engine sends is not quoted, because it holds the tokens of prompts.
var errBatch = errors.New("the payload is no batch of KV events")

// change is what an event says.
type change uint8

const (
	other change = iota
	stored
	removed
	cleared
)

// event is one of a batch. It is valid until the next one is read.
type event struct {
	change change
	hashes []uint64 // the engine's, of blocks that follow each other if they are stored
	parent uint64   // the engine's, of the block before them; 0: none
	tokens []uint32 // of all blocks
	size   int      // tokens of a block
	lora   uint64   // hash of the adapter's name; 0: none
	extra  []uint64 // by block: hash of what else its hash covers, such as the cache salt; may be empty
	gpu    bool     // the blocks are, or were, in the memory of the GPU
	group  uint64   // of the layers of one kind; the first one stands for all
}

// The fields in the order in which vLLM writes them where it writes arrays. An array begins with the event's name.
var (
	batchFields   = [...]string{"ts", "events", "data_parallel_rank"}
	storedFields  = [...]string{"type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys", "group_idx"}
	removedFields = [...]string{"type", "block_hashes", "medium", "group_idx"}
)

// decoder reads batches. It keeps its room, and belongs to one goroutine.
type decoder struct {
	r  msgpack.Reader
	ev event
}

// read calls each for every event of a batch. It returns an error if the payload is no batch. Events before the fault
// have been read then.
func (d *decoder) read(payload []byte, each func(*event)) error {
	r := &d.r
	*r = msgpack.Reader{B: payload}
	n, named := r.Struct()
	for i := 0; i < n && !r.Bad; i++ {
		if fieldAt(r, i, named, batchFields[:]) != "events" {
			r.Raw()
			continue
		}
		for n := r.List(); n > 0 && !r.Bad; n-- {
			if d.event(); !r.Bad {
				each(&d.ev)
			}
		}
	}
	if d.r.Bad {
		return errBatch
	}
	return nil
}

// fieldAt is the name of the i-th field of a struct.
func fieldAt(r *msgpack.Reader, i int, named bool, names []string) string {
	if !named {
		if i < len(names) {
			return names[i]
		}
		return ""
	}
	name := r.Scalar().Bytes
	for _, known := range names {
		if known == string(name) {
			return known
		}
	}
	return ""
}

// event reads one event. A name means the same in all events.
func (d *decoder) event() {
	r, e := &d.r, &d.ev
	*e = event{hashes: e.hashes[:0], tokens: e.tokens[:0], extra: e.extra[:0], gpu: true}
	n, named := r.Struct()
	for i := 0; i < n && !r.Bad; i++ {
		names := storedFields[:]
		if !named && e.change == removed {
			names = removedFields[:]
		}
		e.read(r, fieldAt(r, i, named, names))
	}
}

// changeOf is what an event of that name says.
func changeOf(name []byte) change {
	switch string(name) {
	case "BlockStored":
		return stored
	case "BlockRemoved":
		return removed
	case "AllBlocksCleared":
		return cleared
	}
	return other
}

// read reads one field.
func (e *event) read(in *msgpack.Reader, field string) {
	switch field {
	case "type":
		e.change = changeOf(in.Scalar().Bytes)
	case "block_hashes":
		for n := in.List(); n > 0 && !in.Bad; n-- {
			e.hashes = append(e.hashes, hashOf(in))
		}
	case "parent_block_hash":
		e.parent = hashOf(in)
	case "token_ids":
		e.tokens = in.AppendInts(e.tokens)
	case "block_size":
		e.size = int(min(in.Scalar().N, 1<<20))
	case "medium":
		medium := in.Scalar().Bytes
		e.gpu = len(medium) == 0 || string(medium) == "GPU"
	case "lora_name":
		if name := in.Scalar().Bytes; len(name) > 0 {
			e.lora = xxhash.Sum64(name)
		}
	case "extra_keys":
		for n := in.List(); n > 0 && !in.Bad; n-- {
			e.extra = append(e.extra, sumOf(in.Raw()))
		}
	case "group_idx":
		e.group = in.Scalar().N
	default:
		in.Raw()
	}
}

// hashOf reads the hash of a block, which is an integer or bytes. It is 0 for none.
func hashOf(in *msgpack.Reader) uint64 {
	switch v := in.Scalar(); v.Kind {
	case msgpack.Int:
		return max(v.N, 1)
	case msgpack.Bytes:
		return max(xxhash.Sum64(v.Bytes), 1)
	default:
		return 0
	}
}

// sumOf is 0 for nil.
func sumOf(raw []byte) uint64 {
	if len(raw) == 1 && raw[0] == 0xc0 {
		return 0
	}
	return max(xxhash.Sum64(raw), 1)
}
