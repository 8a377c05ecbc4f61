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
	Leg       string    `json:"leg"` // prefill (do_remote_decode), decode (do_remote_prefill), encode or plain
	Stream    bool      `json:"stream"`
	MaxTokens int       `json:"max_tokens"` // the limit that applied; 0 if none was given

	DoRemoteDecode  bool   `json:"do_remote_decode"`
	DoRemotePrefill bool   `json:"do_remote_prefill"`
	BlockIDs        []int  `json:"block_ids,omitempty"`         // of the handle: issued by a prefill, received by a decode
	RemoteRequestID string `json:"remote_request_id,omitempty"` // likewise
	RemoteEngineID  string `json:"remote_engine_id,omitempty"`
	RemoteHost      string `json:"remote_host,omitempty"`
	RemotePort      int    `json:"remote_port,omitempty"`
	PromptIDs       bool   `json:"prompt_ids"`   // the prompt came as token ids in kv_transfer_params, and no message was tokenised
	HandleReuse     bool   `json:"handle_reuse"` // not rejected, and this engine has had the handle before

	// Media is how many items the request had to encode. Of those that this engine did not have it loaded
	// and computed as many.
	Media             int `json:"media,omitempty"`
	EncodingsLoaded   int `json:"encodings_loaded,omitempty"`
	EncodingsComputed int `json:"encodings_computed,omitempty"`

	Status       int    `json:"status"` // 0 if none was sent
	PromptTokens int    `json:"prompt_tokens"`
	CachedTokens int    `json:"cached_tokens"` // of the prompts, found in this engine's own cache
	Tokens       int    `json:"tokens"`        // written
	Events       int    `json:"events"`        // written, streamed answers only
	WrongKV      bool   `json:"wrong_kv"`
	Outcome      string `json:"outcome"` // ok, rejected, aborted, stranded, kv_failed, hung, dead, fault:KIND

	serial int // among this engine's requests, from 1; 0 until it is kept

	Header http.Header `json:"-"` // as received
	Body   []byte      `json:"-"` // as received, when at most 8 KiB
}

// records is the bounded memory behind Engine.Requests, and the log.
type records struct {
	mu      sync.Mutex
	ring    []Record        // the serial-th request since cleared is at serial-1 modulo recordsKept
	serial  int             // of the last request
	cleared int             // serial when the list was last cleared
	handles map[string]bool // remote_request_id of each handle that came recently
	older   map[string]bool // the generation before, so that the memory is bounded
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

// keep files rec, or replaces what was filed for the same request before.
func (r *records) keep(rec *Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec.serial == 0 {
		r.serial++
		rec.serial = r.serial
	}
	if rec.serial <= r.cleared {
		return
	}
	at := (rec.serial - 1 - r.cleared) % recordsKept
	switch {
	case at >= len(r.ring):
		r.ring = append(r.ring, *rec)
	case r.ring[at].serial <= rec.serial: // otherwise it was so slow that its place is taken
		r.ring[at] = *rec
	}
}

// logLine writes rec to the log.
func (r *records) logLine(rec *Record) {
	if r.log == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = json.NewEncoder(r.log).Encode(rec) // an error of the log cannot be reported
}

func (r *records) list() []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	oldest := 0
	if len(r.ring) == recordsKept {
		oldest = (r.serial - r.cleared) % recordsKept
	}
	return append(append([]Record{}, r.ring[oldest:]...), r.ring[:oldest]...)
}

func (r *records) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ring, r.cleared, r.handles, r.older = nil, r.serial, map[string]bool{}, nil
}

func newRecord(g *generation) *Record {
	rec := &Record{
		Time: g.start, Engine: g.c.o.Name, RequestID: g.x.req.Header.Get("X-Request-Id"),
		Path: g.x.req.URL.Path, Leg: "plain", Header: g.x.req.Header,
	}
	if len(g.x.body) <= bodyKept {
		rec.Body = g.x.body
	}
	return rec
}
