package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"xpyd/bench/result"
)

// members is a JSON object whose members keep their order.
type members struct {
	b   bytes.Buffer
	err error
}

func (m *members) add(name string, value any) {
	if m.b.Len() > 0 {
		m.b.WriteString(", ")
	}
	text, err := json.Marshal(value)
	if err != nil && m.err == nil {
		m.err = fmt.Errorf("write %s: %w", name, err)
	}
	fmt.Fprintf(&m.b, "%q: %s", name, text)
}

func (m *members) float(name string, x float64) { m.add(name, pyFloat(x)) }

// dateLayout is vLLM's date, in local time.
const dateLayout = "20060102-150405"

// vllmJSON is the file of vllm bench serve --save-result, with the same keys, order and types.
// tokenizer_id is null, since only the server counts tokens. detailed adds the lists of --save-detailed.
func vllmJSON(w *strings.Builder, r *result.Run, detailed bool) error {
	m, c := &members{}, r.Config
	backend := map[string]string{"completions": "openai", "chat": "openai-chat"}[c.API]
	m.add("date", r.Started.Local().Format(dateLayout))
	m.add("endpoint_type", backend)
	m.add("backend", backend)
	m.add("label", orNull(c.Label, c.Label == ""))
	m.add("model_id", c.Model)
	m.add("tokenizer_id", nil)
	m.add("num_prompts", orNull(len(r.Records)+r.Unsent, false))
	for _, name := range slices.Sorted(maps.Keys(c.Metadata)) {
		m.add(name, c.Metadata[name])
	}
	if c.Rate == nil {
		m.add("request_rate", "inf")
	} else {
		m.float("request_rate", *c.Rate)
	}
	if c.Burstiness == nil {
		m.add("burstiness", json.RawMessage("1e999")) // Python reads it as inf
	} else {
		m.float("burstiness", *c.Burstiness)
	}
	m.add("max_concurrency", orNull(c.Concurrency, c.Concurrency == 0))
	if c.Ramp != nil {
		m.add("ramp_up_strategy", c.Ramp.Strategy)
		m.add("ramp_up_start_rps", int(c.Ramp.From))
		m.add("ramp_up_end_rps", int(c.Ramp.To))
	}
	vllmTotals(m, r)
	newVLLMLists(r).add(m, detailed)
	m.float("max_output_tokens_per_s", r.Totals.PeakOutput)
	m.add("max_concurrent_requests", r.Totals.PeakOpen)
	m.float("rtfx", 0)
	vllmSections(m, r)
	if m.err != nil {
		return m.err
	}
	fmt.Fprintf(w, "{%s}\n", m.b.String())
	return nil
}

func vllmTotals(m *members, r *result.Run) {
	t := r.Totals
	m.float("duration", float64(r.DurationUS)/1e6)
	m.add("completed", t.Completed)
	m.add("failed", t.Failed)
	m.add("total_input_tokens", t.InputTokens)
	m.add("total_output_tokens", t.OutputTokens)
	m.float("request_throughput", t.RequestRate)
	if t.GoodRate == nil {
		m.add("request_goodput", nil)
	} else {
		m.float("request_goodput", *t.GoodRate)
	}
	m.float("output_throughput", t.OutputRate)
	m.float("total_token_throughput", t.TotalRate)
}

// vllmLists have an element a request, failed ones included, in vLLM's order and in seconds. A request
// that failed has no latency, no output length and no text there.
type vllmLists struct {
	inputs, outputs []int
	ttfts           []pyFloat
	itls            [][]pyFloat
	latencies       []pyFloat
	starts, queues  []pyFloat // starts count from the beginning of the run; vLLM's from that of the machine
	texts, errors   []string
}

func newVLLMLists(r *result.Run) *vllmLists {
	n := len(r.Records)
	l := &vllmLists{
		inputs: make([]int, n), outputs: make([]int, n), ttfts: make([]pyFloat, n), itls: make([][]pyFloat, n), latencies: make([]pyFloat, n),
		starts: make([]pyFloat, n), queues: make([]pyFloat, n), texts: make([]string, n), errors: make([]string, n),
	}
	for i := range r.Records {
		rec := &r.Records[i]
		l.inputs[i], l.ttfts[i], l.itls[i] = rec.Asked, seconds(rec.TTFTUS), make([]pyFloat, len(rec.ITLUS))
		for j, gap := range rec.ITLUS {
			l.itls[i][j] = seconds(gap)
		}
		l.starts[i], l.queues[i] = seconds(rec.StartUS), seconds(rec.QueueUS())
		if rec.OK() {
			l.inputs[i], l.outputs[i], l.latencies[i], l.texts[i] = rec.Prompt, rec.Output, seconds(rec.E2ELUS), rec.Text
		} else {
			l.errors[i] = strings.TrimSuffix(rec.Failure+": "+rec.Error, ": ")
		}
	}
	return l
}

func (l *vllmLists) add(m *members, detailed bool) {
	if !detailed {
		m.add("latencies", l.latencies)
		m.add("queue_times", l.queues)
		return
	}
	m.add("input_lens", l.inputs)
	m.add("output_lens", l.outputs)
	m.add("ttfts", l.ttfts)
	m.add("itls", l.itls)
	m.add("latencies", l.latencies)
	m.add("start_times", l.starts)
	m.add("queue_times", l.queues)
	m.add("generated_texts", l.texts)
	m.add("errors", l.errors)
}

// vllmJSONs are the result files of all runs, an object a line.
func vllmJSONs(w *strings.Builder, runs []*result.Run, o Options) error {
	for _, r := range runs {
		if err := vllmJSON(w, r, o.Detailed); err != nil {
			return err
		}
	}
	return nil
}

func vllmSections(m *members, r *result.Run) {
	for _, s := range sections(r) {
		v := r.Values(s.metric)
		m.float("mean_"+s.metric+"_ms", v.Mean())
		m.float("median_"+s.metric+"_ms", v.Median())
		m.float("std_"+s.metric+"_ms", v.Std())
		for _, p := range r.Config.Percentiles {
			m.float("p"+percentile(p)+"_"+s.metric+"_ms", v.Percentile(p))
		}
	}
}

func seconds(us int64) pyFloat { return pyFloat((time.Duration(us) * time.Microsecond).Seconds()) }

func orNull(value any, null bool) any {
	if null {
		return nil
	}
	return value
}

// FileName is vLLM's name for a run's result, without the suffix.
func FileName(r *result.Run) string {
	c := r.Config
	name := c.Label
	if name == "" {
		name = map[string]string{"completions": "openai", "chat": "openai-chat"}[c.API]
	}
	if c.Ramp != nil {
		name += fmt.Sprintf("-ramp-up-%s-%vqps-%vqps", c.Ramp.Strategy, c.Ramp.From, c.Ramp.To)
	} else {
		name += "-" + rate(c.Rate) + "qps"
	}
	if c.Concurrency > 0 {
		name += fmt.Sprintf("-concurrency%d", c.Concurrency)
	}
	model := c.Model[strings.LastIndexByte(c.Model, '/')+1:]
	return strings.ReplaceAll(name+"-"+model+"-"+r.Started.Local().Format(dateLayout), "/", "_")
}

// vllmFiles are a result file for each run, under vLLM's name.
func vllmFiles(runs []*result.Run, _ Options) (files []File, err error) {
	for _, r := range runs {
		var text strings.Builder
		if err := vllmJSON(&text, r, false); err != nil {
			return nil, err
		}
		files = append(files, File{FileName(r) + ".json", []byte(text.String())})
	}
	return files, nil
}
