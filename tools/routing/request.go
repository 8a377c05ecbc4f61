package routing

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"hash/fnv"
	"slices"
	"time"

	"xpyd/sim"
)

// model is what the engines serve.
const model = "bench"

// turn is a request as a workload thinks of it.
type turn struct {
	at       time.Duration // from the beginning
	session  string        // whose conversation it belongs to
	messages []sim.Message
	output   int // tokens of the answer
}

// request is what is sent, and what the oracle has to know of it.
type request struct {
	at      time.Duration
	session string
	body    []byte
	tokens  int      // of the prompt, as the engines count
	blocks  []uint64 // of each full KV block of the prompt, a hash of all up to its end
	output  int
}

// requestsOf renders turns in the order of their times.
func requestsOf(turns []turn) []request {
	slices.SortStableFunc(turns, func(a, b turn) int { return cmp.Compare(a.at, b.at) })
	all := make([]request, len(turns))
	for i, t := range turns {
		prompt := sim.ChatPrompt(t.messages...)
		all[i] = request{at: t.at, session: t.session, body: t.body(), tokens: tokensOf(prompt), blocks: blockHashes(prompt), output: t.output}
	}
	return all
}

func (t turn) body() []byte {
	b, err := json.Marshal(map[string]any{
		"model": model, "messages": t.messages, "max_tokens": t.output, "temperature": 0,
		"stream": true, "stream_options": map[string]bool{"include_usage": true},
	})
	if err != nil {
		panic("BUG: a request that cannot be JSON: " + err.Error())
	}
	return b
}

// blockHashes is chained: two prompts share a hash if they are equal up to the block's end.
func blockHashes(prompt string) []uint64 {
	const size = blockTokens * tokenBytes
	all := make([]uint64, 0, len(prompt)/size)
	h := fnv.New64a()
	var parent [8]byte
	for ; len(prompt) >= size; prompt = prompt[size:] {
		h.Reset()
		_, _ = h.Write(parent[:])             // never fails
		_, _ = h.Write([]byte(prompt[:size])) // never fails
		all = append(all, h.Sum64())
		binary.LittleEndian.PutUint64(parent[:], h.Sum64())
	}
	return all
}
