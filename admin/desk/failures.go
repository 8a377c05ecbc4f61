package desk

import (
	"cmp"
	"slices"
	"strings"

	"xpyd/proxy"
)

// KeptFailures is how many failed completions the desk remembers.
const KeptFailures = 500

// failures is a ring of the completions that failed last, and not because of their clients.
type failures struct {
	ring  []proxy.Life // at most KeptFailures; the next one goes to ring[total % KeptFailures] once it is full
	total uint64       // since the start
}

func (f *failures) add(l *proxy.Life) {
	if !isFailure(l) {
		return
	}
	if len(f.ring) < KeptFailures {
		f.ring = append(f.ring, *l)
	} else {
		f.ring[f.total%KeptFailures] = *l
	}
	f.total++
}

// isFailure reports that a completion failed, and not because of its client.
func isFailure(l *proxy.Life) bool {
	return l.Outcome != outcomeOK && l.Outcome != outcomeGone && l.Outcome != outcomeFault
}

// FailureEntry is a completion that has failed.
type FailureEntry struct {
	LifeEntry
	Status int    `json:"status"` // of the answer's head
	Model  string `json:"model,omitempty"`
	Key    string `json:"key,omitempty"` // the name of the client's key
	Error  string `json:"error"`         // as in the log
}

// FailureGroup are the remembered failures with one code on one engine.
type FailureGroup struct {
	Code    string  `json:"code"`
	Backend string  `json:"backend,omitempty"` // of the leg that failed; empty: none was asked
	Count   int     `json:"count"`
	First   float64 `json:"first"` // Unix seconds
	Last    float64 `json:"last"`
	// Error and ID are those of the last one.
	Error string `json:"error"`
	ID    string `json:"id"`
}

// Failures are the failed completions that the desk remembers.
type Failures struct {
	Total    uint64         `json:"total"`    // since the start
	Groups   []FailureGroup `json:"groups"`   // the largest first
	Failures []FailureEntry `json:"failures"` // the newest first
}

// Failures returns what the desk remembers. No member is nil.
func (d *Desk) Failures() Failures {
	d.mu.Lock()
	total, lives := d.failures.total, make([]proxy.Life, 0, len(d.failures.ring))
	for i := range uint64(len(d.failures.ring)) {
		lives = append(lives, d.failures.ring[(total-1-i)%KeptFailures])
	}
	d.mu.Unlock()
	all := Failures{Total: total, Groups: []FailureGroup{}, Failures: []FailureEntry{}}
	for i := range lives {
		l := &lives[i]
		e := FailureEntry{LifeEntry: entryOf(total-1-uint64(i), l), Status: l.Status, Model: l.Model, Key: l.Key, Error: l.Error}
		all.Failures = append(all.Failures, e)
		all.group(&e, failedOn(l))
	}
	slices.SortStableFunc(all.Groups, func(a, b FailureGroup) int { return cmp.Compare(b.Count, a.Count) })
	return all
}

// group counts an entry, which is older than those before it.
func (f *Failures) group(e *FailureEntry, backend string) {
	at := e.Start + e.Total/1e3
	for i := range f.Groups {
		if g := &f.Groups[i]; g.Code == e.Code && g.Backend == backend {
			g.Count++
			g.First = min(g.First, at)
			return
		}
	}
	f.Groups = append(f.Groups, FailureGroup{Code: e.Code, Backend: backend, Count: 1, First: at, Last: at, Error: e.Error, ID: e.ID})
}

// failedOn is the engine of the leg that failed. Codes begin with the name of the leg, where there is one.
func failedOn(l *proxy.Life) string {
	if strings.HasPrefix(l.Code, "prefill") {
		return l.Prefill
	}
	return cmp.Or(l.Decode, l.Prefill)
}
