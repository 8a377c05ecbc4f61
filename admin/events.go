package admin

import (
	"net/http"
	"strconv"
	"time"

	"xpyd/engines/journal"
)

// eventsEntry is the answer to GET /events.
type eventsEntry struct {
	// Started is when this process began, in Unix seconds. The numbers of another process say nothing here.
	Started float64         `json:"started"`
	Last    uint64          `json:"last"`   // the number of the last event, for the next since
	Events  []journal.Event `json:"events"` // the oldest first
}

// events answers with what has changed after ?since: the number of an event, or how long ago.
func (p *pages) events(w http.ResponseWriter, r *http.Request) {
	text := r.URL.Query().Get("since")
	seq, err := strconv.ParseUint(text, 10, 64)
	ago, wrong := time.ParseDuration(text)
	if text != "" && err != nil && (wrong != nil || ago < 0) {
		refuse(w, http.StatusBadRequest, "since: "+strconv.Quote(text)+" must be the number of an event, such as 12, or how long ago, such as 15m")
		return
	}
	answer := eventsEntry{Started: unix(p.cfg.Desk.Started)}
	answer.Events, answer.Last = p.cfg.Journal.Since(seq)
	if text != "" && err != nil {
		from := unix(time.Now().Add(-ago))
		for len(answer.Events) > 0 && answer.Events[0].Time < from {
			answer.Events = answer.Events[1:]
		}
	}
	writeIndented(w, answer)
}
