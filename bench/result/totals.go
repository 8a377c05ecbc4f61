package result

import (
	"cmp"
	"math"
	"slices"
)

// Totals are the sums of a run's records. Failed requests count in no sum except Failed, but the
// duration includes their time.
type Totals struct {
	Completed int            `json:"completed"`
	Failed    int            `json:"failed"`
	Cut       int            `json:"interrupted"` // broken off by the tool: neither completed nor failed
	Failures  map[string]int `json:"failures"`    // by code
	Short     int            `json:"short"`       // completed with fewer tokens than requested

	InputTokens  int `json:"input_tokens"`
	OutputTokens int `json:"output_tokens"`
	CachedTokens int `json:"cached_tokens"`
	Events       int `json:"events"` // with tokens; fewer than tokens if a server bundles

	RequestRate float64  `json:"requests_per_second"`
	OutputRate  float64  `json:"output_tokens_per_second"`
	TotalRate   float64  `json:"total_tokens_per_second"`
	GoodRate    *float64 `json:"good_requests_per_second"` // null: no bounds
	PeakOutput  float64  `json:"peak_events_per_second"`   // in buckets of a second
	PeakOpen    int      `json:"peak_concurrent_requests"` // in buckets of a second, as vllm bench serve counts them
	MostOpen    int      `json:"most_open_requests"`       // at one moment

	MS map[string]Stat `json:"ms"` // by metric, in milliseconds
}

// Stat is one metric's statistics.
type Stat struct {
	Mean   float64 `json:"mean"`
	Median float64 `json:"median"`
	Std    float64 `json:"std"`
	Min    float64 `json:"min"`
	P90    float64 `json:"p90"`
	P99    float64 `json:"p99"`
	Max    float64 `json:"max"`
}

// The metrics of a run. Normalised latency is the end-to-end latency per output token.
const (
	TTFT      = "ttft"
	TPOT      = "tpot"
	ITL       = "itl"
	E2EL      = "e2el"
	NTPOT     = "ntpot"
	Queue     = "client_queue_time"
	E2ELQueue = "e2el_including_client_queue"
	Lateness  = "lateness"
)

// Metrics lists the metrics in the order of reports.
func Metrics() []string {
	return []string{TTFT, TPOT, ITL, E2EL, NTPOT, Queue, E2ELQueue, Lateness}
}

// Values are a metric's figures in milliseconds. Only whole answers have them, except for Lateness:
// every request that was sent has one.
func (r *Run) Values(metric string) Values {
	var v []float64
	for i := range r.Records {
		rec := &r.Records[i]
		if metric == Lateness {
			v = append(v, ms(rec.LateUS()))
		} else if rec.OK() {
			v = rec.appendTo(v, metric)
		}
	}
	return NewValues(v)
}

func ms(us int64) float64 { return float64(us) / 1000 }

func (r *Record) appendTo(v []float64, metric string) []float64 {
	switch metric {
	case TTFT:
		return append(v, ms(r.TTFTUS))
	case TPOT: // an answer of one token has none
		if r.Output > 1 {
			return append(v, r.tpot())
		}
	case ITL:
		for _, gap := range r.ITLUS {
			v = append(v, ms(gap))
		}
	case E2EL:
		return append(v, ms(r.E2ELUS))
	case NTPOT:
		return append(v, ms(r.E2ELUS)/float64(max(r.Output, 1)))
	case Queue:
		return append(v, ms(r.QueueUS()))
	case E2ELQueue:
		return append(v, ms(r.E2ELUS+r.QueueUS()))
	}
	return v
}

// tpot is the time per token after the first, in ms; 0 for an answer of one token.
func (r *Record) tpot() float64 {
	if r.Output < 2 {
		return 0
	}
	return ms(r.E2ELUS-r.TTFTUS) / float64(r.Output-1)
}

// Sum sets Totals from the records.
func (r *Run) Sum() {
	t := &Totals{Failures: map[string]int{}, MS: map[string]Stat{}}
	good := 0
	for i := range r.Records {
		rec := &r.Records[i]
		switch {
		case rec.OK():
			t.add(rec)
			if rec.good(r.Config.Goodput) {
				good++
			}
		case rec.Failure == Interrupted:
			t.Cut++
		default:
			t.Failed++
			t.Failures[rec.Failure]++
		}
	}
	if seconds := float64(r.DurationUS) / 1e6; seconds > 0 {
		t.RequestRate = float64(t.Completed) / seconds
		t.OutputRate = float64(t.OutputTokens) / seconds
		t.TotalRate = float64(t.InputTokens+t.OutputTokens) / seconds
		if len(r.Config.Goodput) > 0 {
			rate := float64(good) / seconds
			t.GoodRate = &rate
		}
	}
	t.PeakOutput, t.PeakOpen = r.peaks()
	t.MostOpen = r.mostOpen()
	for _, metric := range Metrics() {
		v := r.Values(metric)
		t.MS[metric] = Stat{Mean: v.Mean(), Median: v.Median(), Std: v.Std(), Min: v.Min(), P90: v.Percentile(90), P99: v.Percentile(99), Max: v.Max()}
	}
	r.Totals = t
}

func (t *Totals) add(r *Record) {
	t.Completed++
	t.InputTokens += r.Prompt
	t.OutputTokens += r.Output
	t.CachedTokens += r.Cached
	t.Events += 1 + len(r.ITLUS)
	if r.Output < r.AskedOut {
		t.Short++
	}
}

// good reports whether a whole answer keeps every bound.
func (r *Record) good(bounds map[string]float64) bool {
	for metric, bound := range bounds {
		value := 0.0
		switch metric {
		case TTFT:
			value = ms(r.TTFTUS)
		case TPOT:
			value = r.tpot()
		case E2EL:
			value = ms(r.E2ELUS)
		}
		if value > bound {
			return false
		}
	}
	return true
}

// peaks are the most events with tokens in a second, and the most answers of which a part fell into a second. Both count
// seconds from the first start, and whole answers only, as vllm bench serve does. So more may be counted than were ever
// open at once, see mostOpen.
func (r *Run) peaks() (events float64, open int) {
	first := int64(math.MaxInt64)
	for i := range r.Records {
		if rec := &r.Records[i]; rec.OK() {
			first = min(first, rec.StartUS)
		}
	}
	seconds, answers := map[int64]int{}, map[int64]int{}
	for i := range r.Records {
		rec := &r.Records[i]
		if !rec.OK() {
			continue
		}
		at := rec.StartUS + rec.TTFTUS - first
		seconds[at/1e6]++
		for _, gap := range rec.ITLUS {
			at += gap
			seconds[at/1e6]++
		}
		for second := (rec.StartUS - first) / 1e6; second <= (rec.StartUS+rec.E2ELUS-first)/1e6; second++ {
			answers[second]++
		}
	}
	for _, n := range seconds {
		events = max(events, float64(n))
	}
	for _, n := range answers {
		open = max(open, n)
	}
	return events, open
}

// Unreached reports that a closed loop never had as many requests open as it should: they were too few, or answered too
// quickly. The figures are then those of a lower concurrency.
func (r *Run) Unreached() bool {
	c, open := r.Config, r.Totals.Open()
	return c.Rate == nil && c.Ramp == nil && 0 < open && open < c.Concurrency
}

// Open is how many requests were open at once, at most. Of a run of another tool, only its own count may be known. It is 0
// if there is none.
func (t *Totals) Open() int { return cmp.Or(t.MostOpen, t.PeakOpen) }

// mostOpen is the most requests that were open at one moment, each from its start to its last token or its failure.
func (r *Run) mostOpen() (open int) {
	type edge struct{ at, delta int64 }
	var edges []edge
	for i := range r.Records {
		rec := &r.Records[i]
		edges = append(edges, edge{rec.StartUS, 1}, edge{rec.StartUS + rec.E2ELUS, -1})
	}
	slices.SortFunc(edges, func(a, b edge) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return int(a.delta - b.delta) // an end comes before a start: intervals are half open
	})
	now := 0
	for _, e := range edges {
		now += int(e.delta)
		open = max(open, now)
	}
	return open
}
