package sim

import (
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"time"
)

// These bound what an engine remembers of its requests.
const (
	recordsKept = 1024
	handlesKept = 32 << 10
	bodyKept    = 8 << 10 // bytes; a longer body is left out
)

// Record is what one completion request carried and how it ended. It never
// holds the prompt in its JSON form.
type Record struct {
	Time      time.Time `json:"time"` // when it came
	Engine    string    `json:"engine"`
	RequestID string    `json:"request_id"` // X-Request-Id as received
	ID        string    `json:"id"`         // the id in the answer
	Path      string    `json:"path"`
	Leg       string    `json:"leg"` // prefill (do_remote_decode), decode (do_remote_prefill) or plain
	Stream    bool      `json:"stream"`
	MaxTokens int       `json:"max_tokens"` // the limit that held; 0 = none given

	DoRemoteDecode  bool   `json:"do_remote_decode"`
	DoRemotePrefill bool   `json:"do_remote_prefill"`
	BlockIDs        []int  `json:"block_ids,omitempty"`         // of the handle: issued by a prefill, received by a decode
	RemoteRequestID string `json:"remote_request_id,omitempty"` // likewise
	RemoteEngineID  string `json:"remote_engine_id,omitempty"`
	RemoteHost      string `json:"remote_host,omitempty"`
	RemotePort      int    `json:"remote_port,omitempty"`
	HandleReuse     bool   `json:"handle_reuse"` // not rejected, and this engine has had the handle before

	Status       int    `json:"status"` // 0: none was sent
	PromptTokens int    `json:"prompt_tokens"`
	Tokens       int    `json:"tokens"` // written
	Events       int    `json:"events"` // written, streamed answers only
	WrongKV      bool   `json:"wrong_kv"`
	Outcome      string `json:"outcome"` // ok, rejected, aborted, stranded, kv_failed, hung, dead, fault:KIND

	Header http.Header `json:"-"` // as received
	Body   []byte      `json:"-"` // as received, when at most 8 KiB
}

// records is the bounded memory behind Engine.Requests, and the log.
type records struct {
	mu      sync.Mutex
	ring    []Record
	next    int             // where the oldest is, once the ring is full
	handles map[string]bool // remote_request_id of each handle received of late
	older   map[string]bool // the generation before, so that memory is bounded
	log     io.Writer
}

func newRecords(log io.Writer) *records {
	return &records{handles: map[string]bool{}, log: log}
}

// seen notes that a handle came and reports whether it had come before.
func (r *records) seen(remoteRequestID string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.handles[remoteRequestID] || r.older[remoteRequestID]
	if len(r.handles) == handlesKept {
		r.handles, r.older = map[string]bool{}, r.handles
	}
	r.handles[remoteRequestID] = true
	return before
}

func (r *records) keep(rec Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ring) < recordsKept {
		r.ring = append(r.ring, rec)
	} else {
		r.ring[r.next] = rec
		r.next = (r.next + 1) % recordsKept
	}
	if r.log != nil {
		_ = json.NewEncoder(r.log).Encode(rec) // nobody could be told of a log that fails
	}
}

func (r *records) list() []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(append([]Record{}, r.ring[r.next:]...), r.ring[:r.next]...)
}

func (r *records) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ring, r.next, r.handles, r.older = nil, 0, map[string]bool{}, nil
}
