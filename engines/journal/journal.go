// Package journal keeps what has become of the engines and of this process, for operators: the last changes of state, and
// how each backend stands and why. Whoever logs a change tells the journal by the same call, so both use the same words.
// It costs requests nothing.
package journal

import (
	"sync"
	"time"

	"github.com/rs/zerolog"

	"xpyd/router"
)

// Kept is how many events the journal remembers.
const Kept = 1000

// Event is one change of state.
type Event struct {
	Seq  uint64  `json:"seq"`  // its number since the process began, from 1
	Time float64 `json:"time"` // Unix seconds
	Kind Kind    `json:"kind"`
	// Role and Backend name the engine, and Partner the decode engine of a pair. They are empty for what is about none.
	Role    string `json:"role,omitempty"`
	Backend string `json:"backend,omitempty"`
	Partner string `json:"partner,omitempty"`
	Text    string `json:"text"`             // the message of the log line
	Reason  string `json:"reason,omitempty"` // why; error in the log line
	Change  string `json:"change,omitempty"` // what was changed
	By      string `json:"by,omitempty"`     // who did it
}

// Journal is safe for concurrent use.
type Journal struct {
	mu        sync.Mutex
	ring      []Event // at most Kept; event n is at (n−1) % Kept
	last      uint64  // the number of the last event
	standings map[*router.Backend]*Standing
}

// New returns an empty journal.
func New() *Journal { return &Journal{standings: map[*router.Backend]*Standing{}} }

// Tell ends the log line with the event, and keeps the event. line has the level and what only the log says.
func (j *Journal) Tell(line *zerolog.Event, e Event) {
	line.Str("event", string(e.Kind))
	for _, field := range [...]struct{ name, value string }{
		{"role", e.Role}, {"backend", e.Backend}, {"partner", e.Partner}, {"error", e.Reason}, {"change", e.Change}, {"by", e.By},
	} {
		if field.value != "" {
			line.Str(field.name, field.value)
		}
	}
	line.Msg(e.Text)
	j.keep(e)
}

// About is an event about a backend.
func About(b *router.Backend, kind Kind, text string) Event {
	return Event{Kind: kind, Role: b.Role.String(), Backend: b.URL, Text: text}
}

func (j *Journal) keep(e Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last++
	e.Seq, e.Time = j.last, seconds(time.Now())
	if len(j.ring) < Kept {
		j.ring = append(j.ring, e)
		return
	}
	j.ring[(e.Seq-1)%Kept] = e
}

// Since returns the events after the one with the number seq, the oldest first, and the number of the last event. Those
// that were dropped are missing.
func (j *Journal) Since(seq uint64) (events []Event, last uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	events = []Event{}
	for n := max(seq, j.last-uint64(len(j.ring))); n < j.last; n++ {
		events = append(events, j.ring[n%Kept])
	}
	return events, j.last
}

// Last returns the number of the last event.
func (j *Journal) Last() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.last
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1e3 }
