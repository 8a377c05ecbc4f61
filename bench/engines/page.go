package engines

import (
	"errors"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"

	"xpyd/metrics/exposition"
)

// figure is one of the figures in an engine's metrics.
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

// source is where a metrics page has a figure.
type source struct {
	metric string // without "vllm:"
	label  string // of its series; "" for any
}

// sources are the places of each figure, the newest vLLM's first.
func sources() [figures][]source {
	const bySource = "prompt_tokens_by_source_total"
	return [figures][]source{
		computed:        {{bySource, `source="local_compute"`}, {"request_prefill_kv_computed_tokens_sum", ""}},
		hit:             {{"prefix_cache_hits_total", ""}, {"gpu_prefix_cache_hits_total", ""}},
		queried:         {{"prefix_cache_queries_total", ""}, {"gpu_prefix_cache_queries_total", ""}},
		pulled:          {{bySource, `source="external_kv_transfer"`}, {"external_prefix_cache_hits_total", ""}},
		asked:           {{"external_prefix_cache_queries_total", ""}},
		prompt:          {{"prompt_tokens_total", ""}},
		generated:       {{"generation_tokens_total", ""}},
		preemptions:     {{"num_preemptions_total", ""}},
		transfers:       {{"nixl_xfer_time_seconds_count", ""}},
		transferBytes:   {{"nixl_bytes_transferred_sum", ""}},
		transferSeconds: {{"nixl_xfer_time_seconds_sum", ""}},
		transferFailed:  {{"nixl_num_failed_transfers_total", ""}},
		running:         {{"num_requests_running", ""}},
		waiting:         {{"num_requests_waiting", ""}},
		usage:           {{"kv_cache_usage_perc", ""}, {"gpu_cache_usage_perc", ""}},
	}
}

// values are an engine's figures; NaN where it has none.
type values [figures]float64

func unknown() (v values) {
	for i := range v {
		v[i] = math.NaN()
	}
	return v
}

// page is one reading of an engine's metrics.
type page struct {
	started float64 // of the process, in Unix seconds; NaN: not known
	cache   cache
	ranks   map[string]values // by vLLM's label engine: one for each data-parallel rank
}

// cache is the size of the KV cache of all ranks; 0: not known.
type cache struct {
	blocks float64
	size   float64 // tokens a block
}

// readCache reads the labels of cache_config_info, of which each rank has one with the value 1.
func readCache(text exposition.Page) (c cache) {
	for label, ranks := range text.By("vllm:cache_config_info", "num_gpu_blocks") {
		if n, err := strconv.ParseFloat(label, 64); err == nil {
			c.blocks += n * ranks
		}
	}
	for label := range text.By("vllm:cache_config_info", "block_size") {
		if n, err := strconv.ParseFloat(label, 64); err == nil {
			c.size = n
		}
	}
	return c
}

func readPage(in io.Reader) (page, error) {
	text, err := exposition.Read(in)
	if err != nil {
		return page{}, err
	}
	p := page{started: math.NaN(), cache: readCache(text), ranks: map[string]values{}}
	if x, err := text.Sum("process_start_time_seconds"); err == nil {
		p.started = x
	}
	for _, rank := range ranks(text) {
		v := unknown()
		for f, from := range sources() {
			v[f] = first(text, rank, from)
		}
		p.ranks[rank] = v
	}
	if len(p.ranks) == 0 {
		return page{}, errors.New("its metrics have none of vLLM's")
	}
	return p, nil
}

// ranks are the values of the label engine in any metric that this package reads.
func ranks(text exposition.Page) []string {
	found := map[string]bool{}
	for _, from := range sources() {
		for _, s := range from {
			for rank := range text.By("vllm:"+s.metric, "engine") {
				found[rank] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// first is the value of the first source that the page has; NaN for none.
func first(text exposition.Page, rank string, from []source) float64 {
	for _, s := range from {
		labels := []string{`engine="` + rank + `"`}
		if s.label != "" {
			labels = append(labels, s.label)
		}
		if x, err := text.Sum("vllm:"+s.metric, labels...); err == nil {
			return x
		}
	}
	return math.NaN()
}

// names lists the ranks in the order of their numbers.
func (p page) names() []string {
	return slices.SortedFunc(maps.Keys(p.ranks), func(a, b string) int { return rankNumber(a) - rankNumber(b) })
}

func rankNumber(name string) int {
	n, _ := strconv.Atoi(name) // a name that is no number is rank 0
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
