// Package tally counts what a run has seen: what was wrong, and how long things took.
package tally

import (
	"cmp"
	"fmt"
	"io"
	"sync"
	"time"
)

// Breach is one way in which an invariant was broken, with how often and the first case.
type Breach struct {
	Invariant string    `json:"invariant"`
	What      string    `json:"what"`
	Count     int       `json:"count"`
	First     string    `json:"first"`
	At        time.Time `json:"at"`
}

// Verdict collects breaches. It is safe for concurrent use.
type Verdict struct {
	Seen     io.Writer // told of each when it is first met; may be nil
	mu       sync.Mutex
	breaches []*Breach
}

// Breach files a case of what. It keeps detail only for the first case.
func (v *Verdict) Breach(invariant, what, detail string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, b := range v.breaches {
		if b.Invariant == invariant && b.What == what {
			b.Count++
			return
		}
	}
	b := &Breach{Invariant: invariant, What: what, Count: 1, First: fmt.Sprintf(detail, args...), At: time.Now()}
	v.breaches = append(v.breaches, b)
	if v.Seen != nil {
		_, _ = fmt.Fprintf(v.Seen, "%s %s: %s: %s\n", b.At.UTC().Format(time.TimeOnly), b.Invariant, b.What, b.First)
	}
}

// Of lists the breaches of one invariant, or of all for "", in the order in which they were met.
func (v *Verdict) Of(invariant string) []Breach {
	v.mu.Lock()
	defer v.mu.Unlock()
	var all []Breach
	for _, b := range v.breaches {
		if cmp.Or(invariant, b.Invariant) == b.Invariant {
			all = append(all, *b)
		}
	}
	return all
}
