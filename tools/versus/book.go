package versus

import (
	"bytes"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
)

// book is what engines of every load answer from, and what they count.
type book struct {
	pace      pacing
	refused   atomic.Int64 // requests that were not understood
	prefilled atomic.Int64 // requests that prefill engines have answered

	mu      sync.Mutex
	handles map[int][]byte // answers of prefill engines by blocks of the prompt
}

func newBook(pace pacing) *book { return &book{pace: pace, handles: map[int][]byte{}} }

var errHead = errors.New("a request without a length")

// length reads the size of a body from the head of its request.
func (b *book) length(head []byte) (int, error) {
	if !bytes.HasPrefix(head, []byte("POST ")) {
		return 0, nil
	}
	value, _ := field(head, "content-length")
	n, err := strconv.Atoi(string(value))
	if err != nil || n <= 0 {
		b.refused.Add(1)
		return 0, errHead
	}
	return n, nil
}

// answer returns the whole answer to a request, or that a stream is the answer.
func (b *book) answer(r role, head []byte, size int) (whole []byte, stream bool) {
	switch {
	case size > 0 && r == prefill:
		b.prefilled.Add(1)
		return b.prefillAnswer(size), false
	case size > 0 && bytes.HasPrefix(head, []byte("POST /v1/chat/completions ")):
		return nil, true
	case size > 0:
		return okWhole, false
	case bytes.HasPrefix(head, []byte("GET /health ")):
		return okHealth, false
	case bytes.HasPrefix(head, []byte("GET /v1/models ")):
		return okModels, false
	case bytes.HasPrefix(head, []byte("GET /version ")):
		return okVersion, false
	}
	return notFound, false
}

// prefillAnswer keeps an answer for each length that is requested, because a run has few lengths.
func (b *book) prefillAnswer(size int) []byte {
	blocks := size / tokenBytes / blockTokens
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.handles[blocks] == nil {
		b.handles[blocks] = prefillAnswer(size)
	}
	return b.handles[blocks]
}
