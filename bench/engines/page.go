package engines

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// figure is one that an engine's metrics have.
type figure int

const (
	computed figure = iota
	hit
	queried
	pulled
	asked // of the KV connector
	prompt
	generated
	preemptions
	transfers
	transferBytes
	transferSeconds
	transferFailed
	running
	waiting
	usage
	figures
)

// source is where a figure stands in a metrics page.
type source struct {
	family string // without "vllm:"
	value  string // of the label source; "" for no such label
	count  bool   // of a histogram: its count, not its sum
}

// sources are those of each figure, that of the newest vLLM first.
func sources() [figures][]source {
	return [figures][]source{
		computed:        {{family: "prompt_tokens_by_source_total", value: "local_compute"}, {family: "request_prefill_kv_computed_tokens"}},
		hit:             {{family: "prefix_cache_hits_total"}, {family: "gpu_prefix_cache_hits_total"}},
		queried:         {{family: "prefix_cache_queries_total"}, {family: "gpu_prefix_cache_queries_total"}},
		pulled:          {{family: "prompt_tokens_by_source_total", value: "external_kv_transfer"}, {family: "external_prefix_cache_hits_total"}},
		asked:           {{family: "external_prefix_cache_queries_total"}},
		prompt:          {{family: "prompt_tokens_total"}},
		generated:       {{family: "generation_tokens_total"}},
		preemptions:     {{family: "num_preemptions_total"}},
		transfers:       {{family: "nixl_xfer_time_seconds", count: true}},
		transferBytes:   {{family: "nixl_bytes_transferred"}},
		transferSeconds: {{family: "nixl_xfer_time_seconds"}},
		transferFailed:  {{family: "nixl_num_failed_transfers_total"}},
		running:         {{family: "num_requests_running"}},
		waiting:         {{family: "num_requests_waiting"}},
		usage:           {{family: "kv_cache_usage_perc"}, {family: "gpu_cache_usage_perc"}},
	}
}

// values are an engine's figures; NaN is one that it does not have.
type values [figures]float64

func unknown() (v values) {
	for i := range v {
		v[i] = math.NaN()
	}
	return v
}

// page is one reading of an engine's metrics.
type page struct {
	started float64           // of the process, in Unix seconds; NaN: not known
	ranks   map[string]values // by vLLM's label engine: one for each data-parallel rank
}

func readPage(in io.Reader) (page, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(in)
	if err != nil {
		return page{}, fmt.Errorf("read the metrics: %w", err)
	}
	p := page{started: math.NaN(), ranks: map[string]values{}}
	if f := families["process_start_time_seconds"]; f != nil && len(f.Metric) > 0 {
		p.started = number(f.Metric[0], false)
	}
	for i, from := range sources() {
		for _, s := range from {
			if p.add(figure(i), families["vllm:"+s.family], s) {
				break
			}
		}
	}
	if len(p.ranks) == 0 {
		return page{}, fmt.Errorf("its metrics have none of vLLM's")
	}
	return p, nil
}

// add takes a figure's samples and reports whether there were any.
func (p *page) add(f figure, family *dto.MetricFamily, s source) (found bool) {
	for _, m := range family.GetMetric() {
		if s.value != "" && label(m, "source") != s.value {
			continue
		}
		rank := label(m, "engine")
		v, ok := p.ranks[rank]
		if !ok {
			v = unknown()
		}
		if math.IsNaN(v[f]) {
			v[f] = 0
		}
		v[f] += number(m, s.count)
		p.ranks[rank] = v
		found = true
	}
	return found
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.Label {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// number is a sample's value; of a histogram its sum, or its count.
func number(m *dto.Metric, count bool) float64 {
	switch h := m.Histogram; {
	case h != nil && count:
		return float64(h.GetSampleCount())
	case h != nil:
		return h.GetSampleSum()
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	}
	return m.Untyped.GetValue()
}

// names lists the ranks in the order of their numbers.
func (p page) names() []string {
	return slices.SortedFunc(maps.Keys(p.ranks), func(a, b string) int { return rankNumber(a) - rankNumber(b) })
}

func rankNumber(name string) int {
	n, _ := strconv.Atoi(name) // a server without ranks is rank 0
	return n
}

// whole adds the ranks up. The share of blocks in use is that of the fullest rank.
func (p page) whole() values {
	sum := unknown()
	for _, v := range p.ranks {
		for f, x := range v {
			switch {
			case math.IsNaN(x):
			case math.IsNaN(sum[f]):
				sum[f] = x
			case figure(f) == usage:
				sum[f] = max(sum[f], x)
			default:
				sum[f] += x
			}
		}
	}
	return sum
}

// since is the growth of counters from an earlier reading; gauges stay as they are.
func (v values) since(old values) values {
	for f := range running {
		v[f] -= old[f]
	}
	return v
}
