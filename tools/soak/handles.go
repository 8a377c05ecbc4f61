package soak

import (
	"encoding/json"
	"strings"
	"sync"
	"time"

	"xpyd/sim"
	"xpyd/tools/tally"
)

// handleBook follows each handle from the prefill engine that issued it to the decode engine that
// used it. It reads the engines' own log lines and is their sim.Options.Log.
type handleBook struct {
	tally   *counts
	verdict *tally.Verdict
	held    func(engine string, from, to time.Time) bool // whether bytes to the engine may have been delayed

	mu      sync.Mutex
	issued  map[string]time.Time // when P's answer was written, by remote_request_id
	sent    map[string]sent
	swept   time.Time
	handles int // issued in all
	used    int // decodes with a handle
	wrongKV int // decodes from wrong blocks whose client was not told
	oldest  time.Duration
	last    map[string]int // requests in stageRecovery by engine
}

// sent is a handle's first use.
type sent struct {
	at     time.Time
	engine string
	known  bool // its issue has been seen
}

func newHandleBook(t *counts, v *tally.Verdict) *handleBook {
	return &handleBook{tally: t, verdict: v, issued: map[string]time.Time{}, sent: map[string]sent{}, swept: time.Now(), last: map[string]int{}}
}

// handleKept is how long handles are remembered: a lease, and the longest that can hold one up.
const handleKept = kvLease + time.Minute

// issueBound is how much later than its first use a handle's issue may be seen, because P writes
// its line after its answer.
const issueBound = 5 * time.Second

// plantedID is the remote_request_id of badhandle=id.
const plantedID = "no-such-request"

// Write takes one line, a sim.Record.
func (b *handleBook) Write(line []byte) (int, error) {
	var rec sim.Record
	if err := json.Unmarshal(line, &rec); err != nil {
		panic("BUG: an engine's log line is no record: " + err.Error())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tally.stage() == stageRecovery {
		b.last[rec.Engine]++
	}
	switch {
	case rec.Leg == "prefill":
		b.tally.in(rec.Time, func(s *second) { s.prefills++ })
		if rec.RemoteRequestID != "" {
			b.handles++
			b.issued[rec.RemoteRequestID] = time.Now()
		}
	case rec.Outcome != "rejected": // a release is rejected, and may come late
		b.tally.in(rec.Time, func(s *second) { s.decodes++ })
		b.decoded(rec)
	}
	b.sweep()
	return len(line), nil
}

// decoded checks one request that a decode engine has begun.
func (b *handleBook) decoded(rec sim.Record) {
	if rec.WrongKV {
		b.wrongKV++
		if rec.Outcome == "ok" && !strings.HasPrefix(rec.RequestID, "xpyd-warmup-") { // no client reads a warm-up's answer
			b.verdict.Breach(invHandles, "an answer from another prompt's blocks", "%s on %s, handle of %s", rec.RequestID, rec.Engine, rec.RemoteRequestID)
		}
	}
	id := rec.RemoteRequestID
	if rec.Leg != "decode" || id == "" || id == plantedID || strings.HasSuffix(rec.RequestID, "-release") {
		return // a release does not count as a use, whatever fault came before its rejection
	}
	b.used++
	if first, ok := b.sent[id]; ok {
		b.verdict.Breach(invHandles, "a handle used twice", "%s on %s, first on %s %v before", rec.RequestID, rec.Engine, first.engine, rec.Time.Sub(first.at))
		return
	}
	issued, known := b.issued[id]
	b.sent[id] = sent{at: rec.Time, engine: rec.Engine, known: known}
	age := rec.Time.Sub(issued)
	if !known || b.held(rec.Engine, issued, rec.Time) {
		return
	}
	b.oldest = max(b.oldest, age)
	if age > kvLease-kvLeaseMargin+tickSlack {
		b.verdict.Breach(invHandles, "a handle used after lease − margin", "%s on %s, %v old", rec.RequestID, rec.Engine, age)
	}
}

// tickSlack is what a busy machine may add between a decision and its effect.
const tickSlack = 300 * time.Millisecond

// sweep forgets what is old, once a second. It finds uses of handles that no prefill engine has
// issued.
func (b *handleBook) sweep() {
	now := time.Now()
	if now.Sub(b.swept) < time.Second {
		return
	}
	b.swept = now
	for id, s := range b.sent {
		if _, ok := b.issued[id]; !s.known && !ok && now.Sub(s.at) > issueBound {
			b.verdict.Breach(invHandles, "a handle that no prefill engine issued", "%.60q on %s", id, s.engine)
			s.known = true
			b.sent[id] = s
		}
		if now.Sub(s.at) > handleKept {
			delete(b.sent, id)
		}
	}
	for id, at := range b.issued {
		if now.Sub(at) > handleKept {
			delete(b.issued, id)
		}
	}
}

// idle lists the engines that had no request in stageRecovery.
func (b *handleBook) idle(stations []*station) (names []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range stations {
		if b.last[s.Name()] == 0 {
			names = append(names, s.Name())
		}
	}
	return names
}

// figures returns the counts so far.
func (b *handleBook) figures() (issued, used, wrongKV int, oldest time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.handles, b.used, b.wrongKV, b.oldest
}
