// Package result is the saved run of a benchmark: the settings, one record for each request, and the
// totals. Every printer reads a Run and nothing else, so a report is the same whenever it is printed.
package result

import "time"

// Schema names the shape of a saved run. It changes when readers of the old shape would misread it.
const Schema = "xpyd-bench-run/1"

// Run is one benchmark run. Times are in microseconds. Those of records count from Started.
type Run struct {
	Schema      string    `json:"schema"`
	Tool        string    `json:"tool"`        // the program and its version
	Started     time.Time `json:"started"`     // when the first request could be due
	DurationUS  int64     `json:"duration_us"` // from Started to the end of the last request
	Unsent      int       `json:"unsent"`      // requests of the plan that were not sent: the duration was over, or a signal came
	Interrupted bool      `json:"interrupted"` // ended by a signal before all requests were sent
	WakeP99US   int64     `json:"wake_p99_us"` // P99 of how late the tool's own timers woke it up; it reads events as late
	Config      Config    `json:"config"`      // the settings
	Prompts     Prompts   `json:"prompts"`     // how far they are as requested
	Totals      *Totals   `json:"totals"`      // of the records; see Sum
	Engines     []Engine  `json:"engines,omitempty"`
	Records     []Record  `json:"records"` // in the order in which the requests were due

	EngineLines []string `json:"-"` // with their times; Save writes them beside the run

	Given map[string]Given `json:"-"` // by metric, of a run that another tool has saved; such a run has no records
}

// Config are the settings of a run, without keys and values of headers.
type Config struct {
	Label       string   `json:"label"` // "" for none
	URL         string   `json:"url"`
	API         string   `json:"api"` // "completions" or "chat"
	Model       string   `json:"model"`
	Headers     []string `json:"headers,omitempty"` // only names
	Dataset     string   `json:"dataset"`
	File        string   `json:"file,omitempty"`
	InputLen    int      `json:"input_len,omitempty"`
	OutputLen   int      `json:"output_len,omitempty"`
	PrefixLen   int      `json:"prefix_len,omitempty"`
	Prefixes    int      `json:"prefixes,omitempty"`
	RangeRatio  float64  `json:"range_ratio,omitempty"`
	OutputRatio *float64 `json:"output_range_ratio,omitempty"` // nil: the same
	NumPrompts  int      `json:"num_prompts"`
	DurationUS  int64    `json:"duration_us,omitempty"` // 0: until all prompts are sent
	Rate        *float64 `json:"rate"`                  // requests a second; null: all at once
	Burstiness  *float64 `json:"burstiness"`            // null: constant gaps
	Ramp        *Ramp    `json:"ramp,omitempty"`
	Concurrency int      `json:"concurrency"` // 0: no cap
	Seed        uint64   `json:"seed"`
	TimesSeed   uint64   `json:"times_seed,omitempty"` // of the due times; 0: Seed
	IgnoreEOS   bool     `json:"ignore_eos"`
	Primed      bool     `json:"primed,omitempty"` // each prompt was sent once before the run, so that its KV was cached

	Metadata    map[string]string  `json:"metadata,omitempty"` // the user's own
	Goodput     map[string]float64 `json:"goodput,omitempty"`  // bounds in ms: ttft, tpot, e2el
	Metrics     []string           `json:"metrics"`            // shown in vLLM's block
	Percentiles []float64          `json:"percentiles"`
	MaxLateUS   int64              `json:"max_late_us,omitempty"` // 0: no bound
	Cell        *Cell              `json:"cell,omitempty"`        // nil for a run outside a sweep
}

// Cell is the place of a run in a sweep. Runs that differ only in Repeat are the same measurement.
type Cell struct {
	Sweep      string  `json:"sweep"`
	Target     string  `json:"target"`               // a server or topology, such as "1P1D"
	Prefill    int     `json:"prefill,omitempty"`    // engines of the target's prefill pool
	Decode     int     `json:"decode,omitempty"`     // engines of its decode pool
	Collocated int     `json:"collocated,omitempty"` // engines that do both; all three 0: not known
	GPUs       float64 `json:"gpus,omitempty"`       // of all its engines together; 0: not known
	Workload   string  `json:"workload"`
	Repeat     int     `json:"repeat"`         // from 1
	Plan       string  `json:"plan,omitempty"` // a digest of the cell's settings in the sweep
}

// Ramp is a rate that grows with the index of the request.
type Ramp struct {
	Strategy string  `json:"strategy"` // "linear" or "exponential"
	From     float64 `json:"from"`
	To       float64 `json:"to"`
}

// Prompts says how far the prompts are as requested.
type Prompts struct {
	LengthBy string `json:"length_by"` // "tokenize", "bytes", or "file" if no length was requested
	Inexact  int    `json:"inexact"`   // prompts that could not be cut to the requested length
	Reused   int    `json:"reused"`    // requests that repeat an earlier request's prompt
}

// Record is one request. A failed one has the times of the part that came.
type Record struct {
	ID       string  `json:"id"`
	DueUS    int64   `json:"due_us"`   // by the schedule
	StartUS  int64   `json:"start_us"` // when it may be sent: due, and below the cap; ttft and e2el count from here
	SentUS   int64   `json:"sent_us"`  // when it was sent; the time since the start is the tool's own lateness
	TTFTUS   int64   `json:"ttft_us"`  // 0: no token came
	E2ELUS   int64   `json:"e2el_us"`  // to the last token; of a failed request to the failure
	ITLUS    []int64 `json:"itl_us,omitempty"`
	Asked    int     `json:"asked_prompt_tokens"` // 0: not known
	AskedOut int     `json:"asked_output_tokens"`
	Prompt   int     `json:"prompt_tokens"` // by usage
	Output   int     `json:"output_tokens"` // by usage
	Cached   int     `json:"cached_tokens"` // by usage, if the server says
	Finish   string  `json:"finish_reason,omitempty"`
	Status   int     `json:"status,omitempty"`  // of HTTP; 0: no head came
	Failure  string  `json:"failure,omitempty"` // a code; "" for a whole answer
	Error    string  `json:"error,omitempty"`   // text of the failure
	Text     string  `json:"-"`                 // the answer, with --save-detailed; never in a saved run
}

// Interrupted is the failure code of requests that the tool itself broke off. They are neither
// completed nor failed.
const Interrupted = "interrupted"

// OK reports whether the answer is whole.
func (r *Record) OK() bool { return r.Failure == "" }

// LateUS is how late the tool sent the request.
func (r *Record) LateUS() int64 { return r.SentUS - r.StartUS }

// QueueUS is how long the request waited for the cap.
func (r *Record) QueueUS() int64 { return r.StartUS - r.DueUS }
