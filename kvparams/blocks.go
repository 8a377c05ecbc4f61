package kvparams

import (
	"math/bits"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// maxBlocks bounds what Blocks hashes: to the first 4 MiB, with blocks of 256 bytes.
const maxBlocks = 16384

// keptBlocks is the room for hashes that a Request keeps for the next one: that of a prompt of
// half a megabyte.
const keptBlocks = 2048

// openingBytes bounds how much of a chat identifies it, see Conversation.
const openingBytes = 64 << 10

// maxRendered bounds the members that are noted, because a body may repeat each any number of
// times.
const maxRendered = 32

// rendered is a top-level member besides the prompt that changes its tokens from early on, or the
// key under which an engine caches their blocks.
type rendered struct {
	name span // as written
	val  span
	as   rendering
}

// rendering says where a member of a request goes in the prompt.
type rendering uint8

const (
	notRendered    rendering = iota
	renderedShape            // anywhere, or into the key of the cache
	renderedTools            // near the beginning
	renderedSystem           // between the tools and the messages, for APIs that have it outside of these
)

// renders says where a member goes that is not the prompt itself.
func (a API) renders(name []byte) rendering {
	switch {
	case string(name) == "tools":
		return renderedTools
	case a == Messages && string(name) == "system", a == Responses && string(name) == "instructions":
		return renderedSystem
	case shapesPrompt(name), a.shapesPrompt(name):
		return renderedShape
	}
	return notRendered
}

// shapesPrompt names what only one API has of the members that shapesPrompt names.
func (a API) shapesPrompt(name []byte) bool {
	switch string(name) {
	case "output_config":
		return a == Messages
	case "reasoning", "previous_input_messages":
		return a == Responses
	case "features", "content_parts":
		return a == Generate
	}
	return false
}

// shapesPrompt reports whether a member makes two requests with the same prompt differ in their
// first tokens, or in vLLM's cache key (cache_salt). It leaves out members that change only the end
// of the prompt (add_generation_prompt, continue_final_message, response_format), because the
// tokens before and their cached blocks stay the same. It also leaves out tool_choice, which
// templates do not render.
func shapesPrompt(name []byte) bool {
	switch string(name) {
	case "chat_template", "chat_template_kwargs", "documents", "reasoning_effort", "mm_processor_kwargs",
		"media_io_kwargs", "add_special_tokens", "truncate_prompt_tokens", "truncation_side", "cache_salt":
		return true
	}
	return false
}

// noteRendered notes a member that renders has placed.
func (r *Request) noteRendered(w *walk, end int, as rendering) {
	if as != notRendered && end > 0 && r.s.b[w.at] != 'n' && len(r.rendered) < maxRendered {
		r.rendered = append(r.rendered, rendered{w.key, span{w.at, end}, as})
	}
}

// Blocks returns chained hashes of the prompt. The n-th hash covers the first n+1 blocks, each of
// blockBytes.
// If the hashes of two requests are equal up to the n-th, they have n+1 blocks in common, and most
// likely the tokens of these blocks.
//
// Each hash includes everything that changes how the whole prompt is rendered (model, tools, chat
// template, cache_salt and so on). The order of the members does not matter. Blocks hashes the bytes of
// the body. The tools come first, because templates render them early. Then come the messages or the
// prompt without the last bracket, so that the next turn of a chat continues where this one ended. Only
// full blocks count, at most 16384. An image, sound or video counts for mediaBytes, and text begins a new
// block after it. The same body has the same hashes in every process. The result is
// nil if there is no prompt, several prompts, or a prompt of embeddings.
//
// The first call after Parse computes the hashes, so a caller that does not need them does not pay for
// them, and later ones return the same. They are valid until Parse or Reset.
func (r *Request) Blocks(blockBytes int) []uint64 {
	r.hashPrompt(blockBytes)
	return r.blocks
}

// Conversation is a hash that stays the same over the turns of a chat. It differs between chats that
// differ in the prompt's shape (see Blocks) or in the messages up to the first one that is not from the
// system, 64 KiB at most. It is 0 for a plain prompt, which does not show where its first turn ends, and
// if Blocks is nil because there is no single prompt. It is valid as long as Blocks.
func (r *Request) Conversation(blockBytes int) uint64 {
	r.hashPrompt(blockBytes)
	return r.conversation
}

func (r *Request) hashPrompt(blockBytes int) {
	if r.block > 0 {
		return
	}
	r.block = blockBytes
	p := r.promptSpan()
	if p.end-p.at < 2 || r.promptCount() != 1 || r.raw(fieldPromptEmbeds) != nil {
		return
	}
	b, chain := r.s.b, r.shape()
	for _, as := range [...]rendering{renderedTools, renderedSystem} {
		for _, m := range r.rendered {
			if m.as == as {
				chain = r.chain(chain, m.val.of(b))
			}
		}
	}
	p.end-- // without the bracket or quote
	first, tail, last := len(r.blocks), p, chain
	for _, m := range r.parts {
		last = r.chainMedia(r.chain(last, b[tail.at:m.at]), m.hash(b))
		tail.at = m.end
	}
	r.chain(last, tail.of(b))
	r.conversation = r.open(chain, r.blocks[first:], p)
}

// mediaBytes is how many bytes an image, sound or video counts for, in blocks: about as many as text with its tokens.
const mediaBytes = 4096

// chainMedia appends the hashes of an image, sound or video. It returns a hash of everything so far.
func (r *Request) chainMedia(chain, sum uint64) uint64 {
	for range min(max(mediaBytes/r.block, 1), maxBlocks-len(r.blocks)) {
		chain = mix(chain, sum)
		r.blocks = append(r.blocks, chain)
	}
	return mix(chain, sum)
}

// hash is the same for what engines take for the same.
func (p item) hash(b []byte) uint64 {
	if p.id != 0 {
		return p.id
	}
	return xxhash.Sum64(p.of(b))
}

// open hashes how the chat at p begins, for Conversation. blocks are those of p, chain is the hash
// before them.
func (r *Request) open(chain uint64, blocks []uint64, p span) uint64 {
	end, most := r.opening, max(openingBytes/r.block, 1)
	if end == 0 {
		return 0
	}
	if len(r.parts) > 0 && r.parts[0].at < end { // the blocks are not of the same size
		if first := r.parts[0]; first.id != 0 {
			return mix(mix(chain, xxhash.Sum64(r.s.b[p.at:min(first.at, p.at+most*r.block)])), first.id)
		}
		return mix(chain, xxhash.Sum64(r.s.b[p.at:min(end, p.at+most*r.block)]))
	}
	full := (end - p.at) / r.block
	rest := r.s.b[p.at+full*r.block : end]
	if most = min(most, len(blocks)); full > most {
		full, rest = most, nil
	}
	if full > 0 {
		chain = blocks[full-1]
	}
	return mix(chain, xxhash.Sum64(rest))
}

// chain appends the hashes of the full blocks of p. It returns a hash of everything so far, the
// rest of p included.
func (r *Request) chain(chain uint64, p []byte) uint64 {
	n := min(len(p)/r.block, maxBlocks-len(r.blocks))
	r.blocks = slices.Grow(r.blocks, n)
	for range n {
		chain = mix(chain, xxhash.Sum64(p[:r.block]))
		r.blocks = append(r.blocks, chain)
		p = p[r.block:]
	}
	return mix(chain, xxhash.Sum64(p))
}

// shape hashes what changes the whole prompt, in any order of the members. The tools have blocks
// of their own.
func (r *Request) shape() uint64 {
	b := r.s.b
	sum := mix(uint64(r.api)+1, xxhash.Sum64(r.model))
	if len(r.adds.salt) > 0 {
		sum += xxhash.Sum64(r.adds.salt)
	}
	for _, m := range r.rendered {
		if m.as == renderedShape {
			sum += mix(xxhash.Sum64(m.name.of(b)), xxhash.Sum64(m.val.of(b)))
		}
	}
	return sum
}

// mix is one hash of two. Their order counts.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0xa0761d6478bd642f, b^0xe7037ed1a0b428db)
	return hi ^ lo
}

// readMessages validates the messages, and finds the end of the first one that is not the
// system's. See also readMessage.
func (r *Request) readMessages(w *walk) (end int, err error) {
	in := r.s.enter(w.at, w.depth)
	for in.next(&r.s) {
		system := r.opening == 0 && r.systemMessage(&in)
		end := r.readMessage(in.at, in.depth)
		if r.opening == 0 && !system {
			r.opening = end
		}
		in.done(end)
	}
	return in.pos, nil
}

// systemMessage reports whether a message, not validated so far, names its role first and that role
// is system or developer. It does not look for a role after the content, because it would have to
// read the content twice.
func (r *Request) systemMessage(in *walk) bool {
	if r.s.byteAt(in.at) != '{' {
		return false
	}
	i := r.s.space(in.at + 1)
	for _, want := range [...]string{`"role"`, ":"} {
		if !r.startsWith(i, want) {
			return false
		}
		i = r.s.space(i + len(want))
	}
	return r.startsWith(i, `"system"`) || r.startsWith(i, `"developer"`)
}

func (r *Request) startsWith(i int, text string) bool {
	return len(r.s.b)-i >= len(text) && string(r.s.b[i:i+len(text)]) == text
}
