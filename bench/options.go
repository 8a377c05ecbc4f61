// Package bench measures a server as vllm bench serve does: it makes prompts, sends them by a plan,
// and keeps one record for each request.
package bench

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"xpyd/bench/client"
	"xpyd/bench/dataset"
	"xpyd/bench/load"
	"xpyd/bench/result"
)

// Options are one benchmark. Seed is for the prompts, and for the plan if TimesSeed is 0.
type Options struct {
	Label   string
	Tool    string // the program and its version
	Client  client.Options
	Dataset dataset.Options
	Load    load.Plan
	Seed    uint64
	Warmups int  // requests before the run, of the first prompt's lengths
	Prime   bool // each prompt is sent once before the run, for one token, so that its KV is cached

	// TimesSeed lets targets have the same times and different prompts, because targets may share
	// a cache.
	TimesSeed uint64

	Ready   time.Duration // how long to wait for a server that is not up
	NoReuse bool          // no more requests than there are prompts
	Untimed bool          // ignores a trace's times

	RequestIDPrefix string
	Metadata        map[string]string  // for the result file
	Goodput         map[string]float64 // bounds in ms
	Metrics         []string           // shown in vLLM's block
	Percentiles     []float64
	MaxLate         time.Duration // bound of the 99th percentile of the tool's lateness; 0: none
}

// Validate reports the first invalid option.
func (o *Options) Validate() error {
	if o.Dataset.Kind != dataset.Trace { // which brings its times
		if err := o.Load.Validate(); err != nil {
			return err
		}
	}
	if err := o.Dataset.Validate(); err != nil {
		return err
	}
	if err := CheckBounds("goodput", o.Goodput); err != nil {
		return err
	}
	for _, name := range o.Metrics {
		if !slices.Contains(result.Metrics(), name) {
			return fmt.Errorf("metric %q: want some of %v", name, result.Metrics())
		}
	}
	for _, p := range o.Percentiles {
		if !(p >= 0 && p <= 100) {
			return fmt.Errorf("percentile %v: want 0 to 100", p)
		}
	}
	if o.Client.Stall <= 0 || o.Client.Timeout <= 0 {
		return errors.New("the bounds of a request and of a stall want more than 0")
	}
	return nil
}

// config is the part of the options that the saved run shows.
func (o *Options) config() result.Config {
	c := result.Config{
		Label: o.Label, URL: o.Client.URL, API: o.Client.API, Model: o.Client.Model,
		Headers: slices.Sorted(maps.Keys(o.Client.Header)),
		Dataset: o.Dataset.Kind, File: o.Dataset.File, InputLen: o.Dataset.InputLen, OutputLen: o.Dataset.OutputLen,
		PrefixLen: o.Dataset.PrefixLen, RangeRatio: o.Dataset.RangeRatio, OutputRatio: o.Dataset.OutputRatio, Prefixes: o.Dataset.Prefixes,
		NumPrompts: o.Load.Requests(), DurationUS: o.Load.Duration.Microseconds(),
		Rate: finite(o.Load.Rate), Burstiness: finite(o.Load.Burstiness), Concurrency: o.Load.Concurrency,
		Seed: o.Seed, TimesSeed: o.TimesSeed, Primed: o.Prime, IgnoreEOS: o.Client.IgnoreEOS,
		Metadata: o.Metadata, Goodput: o.Goodput, Metrics: o.Metrics, Percentiles: o.Percentiles, MaxLateUS: o.MaxLate.Microseconds(),
	}
	if o.Load.Ramp != (load.Ramp{}) {
		c.Ramp = &result.Ramp{Strategy: o.Load.Ramp.Strategy, From: o.Load.Ramp.From, To: o.Load.Ramp.To}
		c.Rate = nil
	}
	return c
}

// finite is nil for infinity, which JSON does not have.
func finite(x float64) *float64 {
	if math.IsInf(x, 0) {
		return nil
	}
	return &x
}

// CheckBounds refuses bounds, in ms, of metrics that a single request does not have. what names them in the error.
func CheckBounds(what string, bounds map[string]float64) error {
	for _, name := range slices.Sorted(maps.Keys(bounds)) {
		if !slices.Contains([]string{result.TTFT, result.TPOT, result.E2EL}, name) || !(bounds[name] >= 0) {
			return fmt.Errorf("%s %s:%v: want ttft, tpot or e2el and a bound in ms", what, name, bounds[name])
		}
	}
	return nil
}
