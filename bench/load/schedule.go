// Package load decides when requests are sent: at a rate, below a cap, or both. It does not know
// what they are.
package load

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Plan is one load. With a finite rate it is an open loop: requests are due whether or not the
// earlier ones have been answered.
type Plan struct {
	Rate        float64         // requests a second; +Inf: all are due at once
	Burstiness  float64         // shape of the gamma distribution of gaps; 1: a Poisson process, +Inf: constant gaps
	Ramp        Ramp            // in place of Rate
	Dues        []time.Duration // in place of all of these: when each request is due, ascending
	Count       int             // requests; 0: as many as fit into the duration
	Duration    time.Duration   // no request is sent later; 0: until Count are sent
	Concurrency int             // answers open at once; 0: no cap
	Seed        uint64
}

// Ramp is a rate that goes from From to To over the requests. The zero Ramp is none.
type Ramp struct {
	Strategy string // Linear or Exponential
	From, To float64
}

// The strategies of a Ramp.
const (
	Linear      = "linear"
	Exponential = "exponential"
)

// Validate reports the first thing that makes the plan invalid.
func (p *Plan) Validate() error {
	switch {
	case !(p.Rate > 0):
		return fmt.Errorf("rate %v: want more than 0 requests a second, or inf", p.Rate)
	case !(p.Burstiness > 0):
		return fmt.Errorf("burstiness %v: want more than 0", p.Burstiness)
	case p.Count < 0 || p.Concurrency < 0 || p.Duration < 0:
		return errors.New("a count, a cap and a duration cannot be negative")
	case p.Count == 0 && p.Duration == 0:
		return errors.New("want a number of requests, a duration, or both")
	case p.Count == 0 && p.endless() && p.Concurrency == 0:
		return errors.New("a duration without a rate and without a cap would send without end: give a rate, a cap or a number of requests")
	}
	return p.Ramp.validate()
}

func (r Ramp) validate() error {
	switch {
	case r == Ramp{}:
		return nil
	case r.Strategy != Linear && r.Strategy != Exponential:
		return fmt.Errorf("ramp %q: want %s or %s", r.Strategy, Linear, Exponential)
	case r.From <= 0 || r.To <= 0:
		return fmt.Errorf("ramp from %v to %v: want more than 0 requests a second", r.From, r.To)
	}
	return nil
}

// endless says whether the dues leave the number of requests unbounded.
func (p *Plan) endless() bool {
	return math.IsInf(p.Rate, 1) && p.Ramp == Ramp{} && p.Dues == nil
}

// Requests is how many requests the plan has; 0 when only the duration ends it.
func (p *Plan) Requests() int {
	switch {
	case p.Dues != nil:
		return len(p.Dues)
	case p.Count > 0:
		return p.Count
	case p.endless():
		return 0
	case p.Ramp != Ramp{}:
		return int(math.Ceil((p.Ramp.From + p.Ramp.To) / 2 * p.Duration.Seconds()))
	}
	return int(math.Ceil(p.Rate * p.Duration.Seconds()))
}

// Schedule is when each request is due, counted from the start. The gaps of n requests at a rate are
// rescaled to span exactly n/rate, so the rate does not depend on the seed. Nil means that all are
// due at once.
func (p *Plan) Schedule() []time.Duration {
	if p.Dues != nil || p.endless() {
		return p.Dues
	}
	rng := newDraws(p.Seed)
	dues := make([]float64, p.Requests())
	at := 0.0
	for i := range dues {
		at += p.gap(rng, p.rateAt(i, len(dues)))
		dues[i] = at
	}
	scale := 1.0
	if p.Ramp == (Ramp{}) && at > 0 {
		scale = float64(len(dues)) / p.Rate / at
	}
	schedule := make([]time.Duration, len(dues))
	for i, due := range dues {
		schedule[i] = time.Duration(math.Round(due * scale * float64(time.Second)))
	}
	return schedule
}

func (p *Plan) rateAt(i, n int) float64 {
	progress := float64(i) / float64(max(n-1, 1))
	switch p.Ramp.Strategy {
	case Linear:
		return p.Ramp.From + (p.Ramp.To-p.Ramp.From)*progress
	case Exponential:
		return p.Ramp.From * math.Pow(p.Ramp.To/p.Ramp.From, progress)
	}
	return p.Rate
}

// gap is one time between two requests, in seconds.
func (p *Plan) gap(rng *draws, rate float64) float64 {
	if math.IsInf(p.Burstiness, 1) {
		return 1 / rate
	}
	return rng.gamma(p.Burstiness) / (rate * p.Burstiness)
}
