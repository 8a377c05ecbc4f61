package sim

// kv is what the KV blocks of one prompt hold.
type kv struct {
	tokens int   // of the prompt
	ids    []int // of its tokens
	salt   uint64
	root   uint64 // of the engine's weights

	// contents has a hash for each block. It covers the block's tokens and all tokens before them.
	// The last block may be partial.
	contents []uint64

	// keys are those of the full blocks that may come from the cache. The prompt's last token is
	// never among them, because it must be computed to have an output.
	keys []uint64
}

// newKV cuts p into blocks. Prompts of another cache_salt have other keys.
func newKV(p prompt, o Options, salt string) kv {
	k := kv{tokens: p.tokens, ids: p.idsFrom(0), salt: hashText(salt), root: o.weights()}
	k.contents = blockContents(k.root, k.ids, o.BlockSize)
	k.keys = make([]uint64, max(p.tokens-1, 0)/o.BlockSize)
	for i := range k.keys {
		k.keys[i] = k.key(k.contents[i])
	}
	return k
}

// blockContents continues the chain after parent, what the block before holds.
func blockContents(parent uint64, ids []int, blockSize int) []uint64 {
	contents := make([]uint64, 0, len(ids)/blockSize+1)
	h := parent
	for i, id := range ids {
		h = mix(h, uint64(id))
		if (i+1)%blockSize == 0 || i+1 == len(ids) {
			contents = append(contents, h)
		}
	}
	return contents
}

// keysOf are the keys of full blocks with these contents.
func (k kv) keysOf(contents []uint64) []uint64 {
	keys := make([]uint64, len(contents))
	for i, content := range contents {
		keys[i] = k.key(content)
	}
	return keys
}

// key returns the key by which a full block with that content is found.
func (k kv) key(content uint64) uint64 {
	return max(mix(k.salt, content), 1) // 0 is no key
}

// withAnswer returns the contents of the first count blocks after the answer to p is written. All
// of them are full. An answer counts by its text, in tokens of the prompt's kind, so that a next
// turn which repeats it finds it.
func (k kv) withAnswer(p prompt, answer string, count, blockSize int) []uint64 {
	full := k.tokens / blockSize
	contents := k.contents[:full:full]
	if count <= full {
		return contents[:count]
	}
	parent := k.root
	if full > 0 {
		parent = contents[full-1]
	}
	more := blockContents(parent, p.answered(answer).idsFrom(full*blockSize), blockSize)
	return append(contents, more[:min(count-full, len(more))]...)
}
