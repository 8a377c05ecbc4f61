package sim

// Event is one phase that one request has reached. Options.Hook gets it.
type Event struct {
	Phase     Phase
	RequestID string // X-Request-Id as received
	Engine    string // Options.Name
	Index     int    // stream_event: which event, from 0, the chat's role event and [DONE] included
}

// Phase names a moment in a request's life on an engine.
type Phase string

// The phases. A hook that blocks in one holds the request there.
const (
	PhasePrefillStart    Phase = "prefill_start"    // admitted, computing
	PhasePrefillEnding   Phase = "prefill_ending"   // blocks pinned, answer not written; a client that leaves now strands them
	PhasePrefillAnswered Phase = "prefill_answered" // the answer is written to the socket
	PhaseDecodeReceived  Phase = "decode_received"  // a valid request that is no prefill leg, before it queues
	PhaseDecodeLoaded    Phase = "decode_loaded"    // its KV is pulled, before the first event
	PhaseStreamEvent     Phase = "stream_event"     // event Index is written
	PhaseStreamEnd       Phase = "stream_end"       // the whole answer is written, streamed or not
	PhaseAborted         Phase = "aborted"          // the engine saw that the client has gone
	PhaseRejected        Phase = "rejected"         // a 4xx is written
	PhaseStalled         Phase = "stalled"          // a fault hangs the request from here on
)
