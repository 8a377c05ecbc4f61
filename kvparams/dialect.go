package kvparams

// Dialect is how one KV connector of vLLM speaks: what the two legs of a completion carry, and
// what comes back. It has no state and is safe for concurrent use. Each dialect has its own file.
type Dialect interface {
	Name() string
	// Concurrent says that both legs are sent at once, because decode needs nothing from the
	// prefill answer.
	Concurrent() bool
	// HandleInAnswer says that the prefill answer holds the handle that decode needs.
	HandleInAnswer() bool
	// DecodeOnlySafe says that decode serves a request without KV parameters, and does not wait for
	// KV that never comes.
	DecodeOnlySafe() bool
	Reclaim() Reclaim

	// AppendPrefill appends the body of the prefill leg, which asks for one token, not streamed,
	// and has the KV kept for decode.
	AppendPrefill(dst Segments, r *Request, leg *Leg) Segments
	// AppendDecode appends the body of the decode leg. Without a handle that is the plain body if
	// DecodeOnlySafe.
	AppendDecode(dst Segments, r *Request, h Handle, leg *Leg) Segments
	// ParseAnswer reads a complete, non-streamed prefill answer. Every error is an *AnswerError.
	ParseAnswer(body []byte) (Answer, error)
	// AppendRelease appends a body for POST /v1/completions that decode rejects. It then tells P
	// to free the blocks (vLLM 0.32 and later), without GPU work.
	AppendRelease(dst Segments, r *Request, h Handle) Segments
	// AppendDrain appends a body for the path of the request. Its one-token answer, read to the
	// end, frees the blocks on every vLLM.
	AppendDrain(dst Segments, r *Request, h Handle) Segments
}

// Reclaim is how the blocks of a prefill that no decode will read are freed.
type Reclaim uint8

const (
	ReclaimReject Reclaim = iota // by AppendRelease if the engine knows it, otherwise by AppendDrain
	ReclaimDrain                 // by AppendDrain
	ReclaimLease                 // only by the end of the engine's lease
)

// Leg is one attempt. The dialect formats values into Scratch and never shortens it. The owner of
// the Leg may shorten it when no segments of the attempt are in use.
type Leg struct {
	ID      string // unique for each attempt, the same on both legs; of [A-Za-z0-9._-]
	Scratch []byte
}

// Lookup finds a dialect by its name in a configuration.
func Lookup(name string) (Dialect, bool) {
	for _, d := range dialects() {
		if d.Name() == name {
			return d, true
		}
	}
	return nil, false
}

// Names lists the dialects that Lookup knows.
func Names() []string {
	var names []string
	for _, d := range dialects() {
		names = append(names, d.Name())
	}
	return names
}

func dialects() []Dialect { return []Dialect{nixl{}} }
