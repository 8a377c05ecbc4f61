package kvparams

import (
	"math/bits"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// BlockBytes is how much of a prompt one hash of Blocks stands for: about 64 tokens of English, four blocks of vLLM's
// default size.
const BlockBytes = 256

// maxBlocks bounds what Blocks hashes, to the first 4 MiB.
const maxBlocks = 16384

// keptBlocks is the room for hashes that a Request keeps for the next one: of a prompt of half a megabyte.
const keptBlocks = 2048

// openingBlocks bounds how much of a prompt can tell its conversation from others, see Conversation: in a chat 64 KiB,
// in a plain prompt, which does not say where its first turn ends, 4 KiB.
const (
	openingBlocks      = 256
	plainOpeningBlocks = 16
)

// maxRendered bounds the members that are noted, as each may stand there any number of times.
const maxRendered = 32

// rendered is a top-level member besides the prompt that changes the tokens from early on, or the key under which an
// engine caches their blocks.
type rendered struct {
	name  span // as written
	val   span
	tools bool
}

// shapesPrompt reports whether a member makes two requests with the same prompt differ in their first tokens, or in
// vLLM's cache key (cache_salt). Members that change only how the prompt ends are left out (add_generation_prompt,
// continue_final_message, response_format), and tool_choice, which templates do not render: the tokens before stay the
// same, and so do their cached blocks.
func shapesPrompt(name []byte) bool {
	switch string(name) {
	case "tools", "chat_template", "chat_template_kwargs", "documents", "reasoning_effort", "mm_processor_kwargs",
		"media_io_kwargs", "add_special_tokens", "truncate_prompt_tokens", "truncation_side", "cache_salt":
		return true
	}
	return false
}

// noteRendered remembers a member that shapesPrompt named.
func (r *Request) noteRendered(w *walk, end int, tools bool) {
	if end > 0 && r.s.b[w.at] != 'n' && len(r.rendered) < maxRendered {
		r.rendered = append(r.rendered, rendered{w.key, span{w.at, end}, tools})
	}
}

// Blocks are chained hashes of the prompt, the n-th of its first n+1 blocks of BlockBytes: two requests whose hashes are
// equal up to the n-th have n+1 blocks in common, and so most likely the tokens that these make. What changes the
// rendering of the whole prompt (model, tools, chat template, cache_salt, ...) is part of every hash; the order of the
// members is not. The bytes are those of the body: tools first, as templates render them early, then the messages or the
// prompt without their last bracket, so that the next turn of a chat goes on where this one ended. Only full blocks
// count, at most 16384. The same body has the same hashes in each process. nil: no prompt, several, or one of embeddings.
//
// They are made at the first call after Parse, not by it: who routes without them does not pay for them. Valid until
// Parse or Reset.
func (r *Request) Blocks() []uint64 {
	r.hashPrompt()
	return r.blocks
}

// Conversation is a hash that stays the same over the turns of a chat and differs between chats as far as they begin
// differently: of the prompt's shape (see Blocks) and its messages up to the first that is not the system's, 64 KiB at
// most; of a plain prompt, of its first 4 KiB. 0 where Blocks is nil for want of a single prompt. Valid as Blocks is.
func (r *Request) Conversation() uint64 {
	r.hashPrompt()
	return r.conversation
}

func (r *Request) hashPrompt() {
	if r.hashed {
		return
	}
	r.hashed = true
	p := r.promptSpan()
	if p.end-p.at < 2 || r.promptCount() != 1 || r.raw(fieldPromptEmbeds) != nil {
		return
	}
	b, chain := r.s.b, r.shape()
	for _, m := range r.rendered {
		if m.tools {
			chain = r.chain(chain, m.val.of(b))
		}
	}
	p.end-- // the bracket or quote
	first := len(r.blocks)
	r.chain(chain, p.of(b))
	r.conversation = r.open(chain, r.blocks[first:], p)
}

// open hashes how the prompt at p begins, for Conversation. blocks are those of p, chain is what they begin with.
func (r *Request) open(chain uint64, blocks []uint64, p span) uint64 {
	end, most := p.end, plainOpeningBlocks
	if r.opening > 0 {
		end, most = r.opening, openingBlocks
	}
	full := (end - p.at) / BlockBytes
	rest := r.s.b[p.at+full*BlockBytes : end]
	if most = min(most, len(blocks)); full > most {
		full, rest = most, nil
	}
	if full > 0 {
		chain = blocks[full-1]
	}
	return mix(chain, xxhash.Sum64(rest))
}

// chain appends the hashes of p's full blocks and returns one of all that was hashed so far, its remainder included.
func (r *Request) chain(chain uint64, p []byte) uint64 {
	n := min(len(p)/BlockBytes, maxBlocks-len(r.blocks))
	r.blocks = slices.Grow(r.blocks, n)
	for range n {
		chain = mix(chain, xxhash.Sum64(p[:BlockBytes]))
		r.blocks = append(r.blocks, chain)
		p = p[BlockBytes:]
	}
	return mix(chain, xxhash.Sum64(p))
}

// shape hashes what changes the whole prompt, whatever the order of the members. The tools have blocks of their own.
func (r *Request) shape() uint64 {
	b := r.s.b
	sum := mix(uint64(r.api)+1, xxhash.Sum64(r.model))
	for _, m := range r.rendered {
		if !m.tools {
			sum += mix(xxhash.Sum64(m.name.of(b)), xxhash.Sum64(m.val.of(b)))
		}
	}
	return sum
}

// mix is one hash of two, in which their order counts.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0xa0761d6478bd642f, b^0xe7037ed1a0b428db)
	return hi ^ lo
}

// readMessages validates the messages and finds where the first one ends that is not the system's.
func (r *Request) readMessages(w *walk) (end int, err error) {
	in := r.s.enter(w.at, w.depth)
	for in.next(&r.s) {
		system := r.opening == 0 && r.systemMessage(&in)
		end := r.s.value(in.at, in.depth)
		if r.opening == 0 && !system {
			r.opening = end
		}
		in.done(end)
	}
	return in.pos, nil
}

// systemMessage reports whether a message that has not been validated yet names its role first, and that is system or
// developer. A role behind the content is not looked for: it would mean to read the content twice.
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
