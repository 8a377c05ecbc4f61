package progress

import (
	"time"

	"xpyd/router"
)

// An engine is slow at slowAt of its peers' speed or less, for as long as the configuration says, and no longer at fastAt for
// fastFor.
const (
	slowAt  = 1.0 / 3
	fastAt  = 1.0 / 2
	fastFor = 20 * time.Second
)

// Speeds finds out which engines are slow. The zero value knows none.
type Speeds struct{ rows map[*router.Backend]*speedRow }

type speedRow struct {
	best  float64   // how fast it has been beside its peers
	turns time.Time // since when the speed is on the other side; zero if it is not
	slow  *router.Slow
}

// Look takes in the speeds of all engines at a moment, and has the router act on them. after is how long an engine is at a
// third of its peers' speed before it is slow; 0: none is. told is called for each that has become slow, or with nil is no
// longer.
func (s *Speeds) Look(at time.Time, all []router.Speed, after time.Duration, told func(*router.Backend, *router.Slow)) {
	rows := map[*router.Backend]*speedRow{}
	for _, speed := range all {
		r := s.rows[speed.Backend]
		if r == nil {
			r = new(speedRow)
		}
		rows[speed.Backend] = r
		if was := r.slow; r.look(at, speed, after) {
			router.Slowed(speed.Backend, r.slow)
			if (was == nil) != (r.slow == nil) {
				told(speed.Backend, r.slow)
			}
		}
	}
	for b, r := range s.rows {
		if rows[b] == nil && r.slow != nil {
			router.Slowed(b, nil) // it is not up, and may come back as another one
		}
	}
	s.rows = rows
}

// look reports whether what is known of a slow engine has changed.
func (r *speedRow) look(at time.Time, speed router.Speed, after time.Duration) (changed bool) {
	ratio := speed.Ratio
	if ratio == 0 && after > 0 {
		return false // too little is known
	}
	r.best = max(r.best, ratio)
	if !speed.Alike { // it may always have been so, with other GPUs
		ratio /= r.best
	}
	over := after == 0 || ratio > fastAt
	switch {
	case r.slow == nil && ratio > slowAt, r.slow != nil && !over:
		r.turns = time.Time{}
	case r.turns.IsZero():
		r.turns = at
	}
	if r.slow == nil {
		if after == 0 || r.turns.IsZero() || at.Sub(r.turns) < after {
			return false
		}
		r.slow, r.turns = slowOf(speed, ratio, r.turns), time.Time{}
		return true
	}
	if over && (after == 0 || at.Sub(r.turns) >= fastFor) {
		r.slow, r.turns = nil, time.Time{}
		return true
	}
	r.slow = slowOf(speed, ratio, r.slow.Since)
	return true
}

func slowOf(s router.Speed, ratio float64, since time.Time) *router.Slow {
	return &router.Slow{Since: since, Work: s.Work, Ratio: ratio, Own: s.Own, Peers: s.Peers}
}
