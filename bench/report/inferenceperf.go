package report

import (
	"encoding/json"
	"fmt"
	"strings"

	"xpyd/bench/advice"
	"xpyd/bench/plot"
	"xpyd/bench/result"
)

// perfStat is inference-perf's object of statistics, null where nothing was measured.
type perfStat struct {
	Mean   pyFloat `json:"mean"`
	Min    pyFloat `json:"min"`
	Max    pyFloat `json:"max"`
	P0p1   pyFloat `json:"p0.1"`
	P1     pyFloat `json:"p1"`
	P5     pyFloat `json:"p5"`
	P10    pyFloat `json:"p10"`
	P25    pyFloat `json:"p25"`
	Median pyFloat `json:"median"`
	P75    pyFloat `json:"p75"`
	P90    pyFloat `json:"p90"`
	P95    pyFloat `json:"p95"`
	P99    pyFloat `json:"p99"`
	P99p9  pyFloat `json:"p99.9"`
}

// newPerfStat makes statistics in the unit of v times scale.
func newPerfStat(v result.Values, scale float64) *perfStat {
	if len(v) == 0 {
		return nil
	}
	p := func(rank float64) pyFloat { return pyFloat(v.Percentile(rank) * scale) }
	return &perfStat{
		Mean: pyFloat(v.Mean() * scale), Min: p(0), Max: p(100), P0p1: p(0.1), P1: p(1), P5: p(5), P10: p(10), P25: p(25),
		Median: p(50), P75: p(75), P90: p(90), P95: p(95), P99: p(99), P99p9: p(99.9),
	}
}

// perfTokens is the shape in newer versions: the sum before the statistics.
type perfTokens struct {
	Total    pyFloat  `json:"total"`
	Cached   *pyFloat `json:"cached,omitempty"`
	Uncached *pyFloat `json:"uncached,omitempty"`
	*perfStat
}

func newPerfTokens(v result.Values) perfTokens {
	return perfTokens{Total: pyFloat(v.Mean() * float64(len(v))), perfStat: newPerfStat(v, 1)}
}

// perfReport is a lifecycle report. Versions before 0.4 have prompt_len, newer ones prompt_tokens,
// output_tokens, by_label and benchmark_time_seconds. The report has both, for readers of either.
type perfReport struct {
	Seconds   pyFloat       `json:"benchmark_time_seconds"`
	Load      perfLoad      `json:"load_summary"`
	Successes perfSuccesses `json:"successes"`
	Failures  perfFailures  `json:"failures"`
}

type perfLoad struct {
	Count         int       `json:"count"`
	ScheduleDelay *perfStat `json:"schedule_delay"`
	// A stage has these as well.
	SendDuration  *pyFloat `json:"send_duration,omitempty"`
	RequestedRate *pyFloat `json:"requested_rate,omitempty"`
	AchievedRate  *pyFloat `json:"achieved_rate,omitempty"`
	Concurrency   int      `json:"concurrency,omitempty"`
}

type perfSuccesses struct {
	Count   int `json:"count"`
	Latency struct {
		Request    *perfStat `json:"request_latency"`
		Normalized *perfStat `json:"normalized_time_per_output_token"`
		TPOT       *perfStat `json:"time_per_output_token"`
		TTFT       *perfStat `json:"time_to_first_token"`
		ITL        *perfStat `json:"inter_token_latency"`
	} `json:"latency"`
	Throughput struct {
		Input    pyFloat `json:"input_tokens_per_sec"`
		Output   pyFloat `json:"output_tokens_per_sec"`
		Total    pyFloat `json:"total_tokens_per_sec"`
		Requests pyFloat `json:"requests_per_sec"`
	} `json:"throughput"`
	PromptLen    *perfStat  `json:"prompt_len"`
	OutputLen    *perfStat  `json:"output_len"`
	PromptTokens perfTokens `json:"prompt_tokens"`
	OutputTokens perfTokens `json:"output_tokens"`
}

type perfFailures struct {
	Count        int             `json:"count"`
	Request      *perfStat       `json:"request_latency"`
	PromptLen    *perfStat       `json:"prompt_len"`
	PromptTokens perfTokens      `json:"prompt_tokens"`
	ByLabel      json.RawMessage `json:"by_label"`
}

// newPerfReport makes the report of runs that came one after the other. stage says whether it is the
// report of one stage.
func newPerfReport(runs []*result.Run, stage bool) perfReport {
	all := &result.Run{Config: runs[0].Config}
	for _, r := range runs {
		all.DurationUS += r.DurationUS
		all.Records = append(all.Records, r.Records...)
	}
	all.Sum()
	report := perfReport{
		Seconds: seconds(all.DurationUS),
		Load:    perfLoad{Count: len(all.Records), ScheduleDelay: newPerfStat(delays(all), 1e-3)},
	}
	if stage {
		report.Load.stage(runs[0])
	}
	report.Successes.set(all)
	report.Failures.set(all)
	return report
}

// delays are the times from when requests were due to when they were sent, in ms.
func delays(r *result.Run) result.Values {
	var v []float64
	for i := range r.Records {
		v = append(v, float64(r.Records[i].SentUS-r.Records[i].DueUS)/1000)
	}
	return result.NewValues(v)
}

func (l *perfLoad) stage(r *result.Run) {
	var first, last int64
	for i := range r.Records {
		sent := r.Records[i].SentUS
		if i == 0 {
			first, last = sent, sent
		}
		first, last = min(first, sent), max(last, sent)
	}
	duration, requested, achieved := seconds(last-first), pyFloat(len(r.Records)+r.Unsent), pyFloat(0)
	if duration > 0 {
		achieved = pyFloat(len(r.Records)) / duration
	}
	c := r.Config
	switch {
	case c.Rate != nil:
		requested = pyFloat(*c.Rate)
	case c.Ramp != nil:
		requested = pyFloat((c.Ramp.From + c.Ramp.To) / 2)
	default: // a stage of inference-perf's load type concurrent: all requests are due within a second
		l.Concurrency = c.Concurrency
	}
	l.SendDuration, l.RequestedRate, l.AchievedRate = &duration, &requested, &achieved
}

func (s *perfSuccesses) set(r *result.Run) {
	t := r.Totals
	s.Count = t.Completed
	s.Latency.Request = newPerfStat(r.Values(result.E2EL), 1e-3)
	s.Latency.Normalized = newPerfStat(r.Values(result.NTPOT), 1e-3)
	s.Latency.TPOT = newPerfStat(r.Values(result.TPOT), 1e-3)
	s.Latency.TTFT = newPerfStat(r.Values(result.TTFT), 1e-3)
	s.Latency.ITL = newPerfStat(r.Values(result.ITL), 1e-3)
	s.Throughput.Input = pyFloat(t.TotalRate - t.OutputRate)
	s.Throughput.Output = pyFloat(t.OutputRate)
	s.Throughput.Total = pyFloat(t.TotalRate)
	s.Throughput.Requests = pyFloat(t.RequestRate)
	prompts, outputs := tokens(r, promptTokens), tokens(r, outputTokens)
	s.PromptLen, s.OutputLen = newPerfStat(prompts, 1), newPerfStat(outputs, 1)
	s.PromptTokens, s.OutputTokens = newPerfTokens(prompts), newPerfTokens(outputs)
	cached, uncached := pyFloat(t.CachedTokens), pyFloat(t.InputTokens-t.CachedTokens)
	s.PromptTokens.Cached, s.PromptTokens.Uncached = &cached, &uncached
}

func (f *perfFailures) set(r *result.Run) {
	var latencies, prompts []float64
	for i := range r.Records {
		if rec := &r.Records[i]; !rec.OK() && rec.Failure != result.Interrupted {
			latencies = append(latencies, float64(rec.E2ELUS)/1e6)
			prompts = append(prompts, float64(rec.Asked))
		}
	}
	f.Count = r.Totals.Failed
	f.Request = newPerfStat(result.NewValues(latencies), 1)
	asked := result.NewValues(prompts)
	f.PromptLen, f.PromptTokens = newPerfStat(asked, 1), newPerfTokens(asked)
	labels := &members{}
	for _, code := range byCount(r.Totals.Failures) {
		labels.add(perfLabel(code), map[string]any{"count": r.Totals.Failures[code], "messages": []any{map[string]string{"message": example(r, code)}}})
	}
	f.ByLabel = json.RawMessage("{" + labels.b.String() + "}")
}

// perfLabel is a failure code in inference-perf's words, if it has any.
func perfLabel(code string) string {
	status, isStatus := strings.CutPrefix(code, "http_")
	if isStatus {
		label := map[string]string{"429": "Rate Limit", "500": "Internal Server Error", "502": "Bad Gateway", "503": "Service Unavailable", "504": "Gateway Timeout"}[status]
		if label == "" {
			label = "other"
		}
		return status + " - " + label
	}
	if label := map[string]string{"timeout": "Timeout", "stall": "Timeout", "connect": "Connection Error", "reset": "Connection Error"}[code]; label != "" {
		return label + " (" + code + ")" // two codes must not share a key
	}
	return code
}

func perfJSON(report perfReport) ([]byte, error) {
	b, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the report: %w", err)
	}
	return append(b, '\n'), nil
}

// inferencePerf is the summary of each target and workload. Several make a stream of objects.
func inferencePerf(w *strings.Builder, runs []*result.Run, _ Options) error {
	for _, set := range sets(runs) {
		b, err := perfJSON(newPerfReport(set.runs, false))
		if err != nil {
			return err
		}
		w.Write(b)
	}
	return nil
}

// inferencePerfFiles are a folder of lifecycle reports for each target and workload, and the plots
// of all targets together for each workload. A single one needs no folder.
func inferencePerfFiles(runs []*result.Run, _ Options) ([]File, error) {
	var files []File
	all := sets(runs)
	for _, set := range all {
		folder := ""
		if len(all) > 1 {
			folder = fileName(set.workload, set.target) + "/"
		}
		b, err := perfJSON(newPerfReport(set.runs, false))
		if err != nil {
			return nil, err
		}
		files = append(files, File{folder + "summary_lifecycle_metrics.json", b})
		for stage, r := range set.runs {
			if b, err = perfJSON(newPerfReport([]*result.Run{r}, true)); err != nil {
				return nil, err
			}
			files = append(files, File{fmt.Sprintf("%sstage_%d_lifecycle_metrics.json", folder, stage), b})
		}
	}
	groups := advice.Groups(runs, advice.Token())
	for _, g := range groups {
		prefix := ""
		if len(groups) > 1 {
			prefix = groupFile(g) + "-"
		}
		pictures, err := pictureFiles(prefix, plot.InferencePerf(g))
		if err != nil {
			return nil, err
		}
		files = append(files, pictures...)
	}
	return files, nil
}
