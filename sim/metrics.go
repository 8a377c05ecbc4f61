package sim

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// family is one metric with vLLM's name. Every sample carries the labels engine
// and model_name; label adds one more, with a sample for each of its values.
type family struct {
	name, kind, help string
	label            string
	values           []string
	edges            []float64 // of a histogram
}

var (
	finishReasons = []string{"stop", "length", "abort", "error", "repetition"}
	tokenSources  = []string{"local_compute", "local_cache_hit", "external_kv_transfer"}
	waitReasons   = []string{"capacity", "deferred"}

	tokenEdges   = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000}
	latencyEdges = []float64{0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	gapEdges     = []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	firstEdges   = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	xferEdges    = []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 5}
	byteEdges    = []float64{2048, 8192, 32768, 131072, 524288, 2097152, 8388608, 33554432, 134217728, 536870912, 2147483648, 8589934592}
	blockEdges   = []float64{10, 20, 30, 50, 75, 100, 200, 400, 1000, 2000, 4000, 10000, 20000, 50000}
)

var families = []family{
	{name: "nixl_xfer_time_seconds", kind: "histogram", help: "Time of one KV pull, in seconds.", edges: xferEdges},
	{name: "nixl_bytes_transferred", kind: "histogram", help: "Bytes of one KV pull.", edges: byteEdges},
	{name: "nixl_num_descriptors", kind: "histogram", help: "Blocks of one KV pull.", edges: blockEdges},
	{name: "nixl_num_failed_transfers_total", kind: "counter", help: "KV pulls that failed, handshakes included."},
	{name: "nixl_num_failed_notifications_total", kind: "counter", help: "Notifications that could not be sent."},
	{name: "nixl_num_kv_expired_reqs_total", kind: "counter", help: "Finished prefills whose lease ended unread."},
	{name: "num_requests_running", kind: "gauge", help: "Sequences that run."},
	{name: "num_requests_waiting", kind: "gauge", help: "Requests that queue."},
	{name: "num_requests_waiting_by_reason", kind: "gauge", help: "Requests that queue, by reason.", label: "reason", values: waitReasons},
	{name: "kv_cache_usage_perc", kind: "gauge", help: "Share of the KV blocks in use or pinned, 0 to 1."},
	{name: "prefix_cache_queries_total", kind: "counter", help: "Prompt tokens looked up in the prefix cache."},
	{name: "prefix_cache_hits_total", kind: "counter", help: "Prompt tokens found in the prefix cache."},
	{name: "external_prefix_cache_queries_total", kind: "counter", help: "Prompt tokens asked of the KV connector: those not in the prefix cache."},
	{name: "external_prefix_cache_hits_total", kind: "counter", help: "Prompt tokens that the KV connector brought."},
	{name: "num_preemptions_total", kind: "counter", help: "Preemptions; there are none here."},
	{name: "prompt_tokens_total", kind: "counter", help: "Prompt tokens."},
	{name: "prompt_tokens_by_source_total", kind: "counter", help: "Prompt tokens by where their KV came from.", label: "source", values: tokenSources},
	{name: "prompt_tokens_cached_total", kind: "counter", help: "Prompt tokens that were not computed."},
	{name: "generation_tokens_total", kind: "counter", help: "Tokens generated."},
	{name: "request_success_total", kind: "counter", help: "Requests that ended, by how.", label: "finished_reason", values: finishReasons},
	{name: "request_prompt_tokens", kind: "histogram", help: "Prompt tokens of a request; each of its choices is one.", edges: tokenEdges},
	{name: "request_generation_tokens", kind: "histogram", help: "Tokens generated for a request.", edges: tokenEdges},
	{name: "time_to_first_token_seconds", kind: "histogram", help: "From arrival to the first token.", edges: firstEdges},
	{name: "inter_token_latency_seconds", kind: "histogram", help: "Between two tokens, the mean of each request.", edges: gapEdges},
	{name: "e2e_request_latency_seconds", kind: "histogram", help: "From arrival to the end.", edges: latencyEdges},
	{name: "request_queue_time_seconds", kind: "histogram", help: "From arrival to the request's turn.", edges: latencyEdges},
	{name: "request_prefill_time_seconds", kind: "histogram", help: "From the request's turn to the first token.", edges: latencyEdges},
	{name: "request_decode_time_seconds", kind: "histogram", help: "From the first token to the last one.", edges: latencyEdges},
}

// bytesPerBlock is how many bytes one pulled block adds to nixl_bytes_transferred.
const bytesPerBlock = 32 << 10

// metrics is what one incarnation counted.
type metrics struct {
	o  Options
	mu sync.Mutex
	// counters are by name and label value ("name" or "name/value").
	began      time.Time // of the process
	counters   map[string]float64
	histograms map[string]*histogram
}

type histogram struct {
	counts []int // by edge, not cumulative
	count  int
	sum    float64
}

func newMetrics(o Options) *metrics {
	m := &metrics{o: o, began: time.Now(), counters: map[string]float64{}, histograms: map[string]*histogram{}}
	for _, f := range families {
		if f.kind == "histogram" {
			m.histograms[f.name] = &histogram{counts: make([]int, len(f.edges)+1)}
		}
	}
	return m
}

func (m *metrics) add(key string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counters[key] += float64(n)
}

// observe counts times observations of value.
func (m *metrics) observe(name string, value float64, times int) {
	at := slices.IndexFunc(families, func(f family) bool { return f.name == name })
	edge, _ := slices.BinarySearch(families[at].edges, value)
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.histograms[name]
	h.counts[edge] += times
	h.count += times
	h.sum += value * float64(times)
}

func (m *metrics) expired(n int)       { m.add("nixl_num_kv_expired_reqs_total", n) }
func (m *metrics) failedTransfer()     { m.add("nixl_num_failed_transfers_total", 1) }
func (m *metrics) failedNotification() { m.add("nixl_num_failed_notifications_total", 1) }

func (m *metrics) transferred(blocks int, took time.Duration) {
	m.observe("nixl_xfer_time_seconds", took.Seconds(), 1)
	m.observe("nixl_bytes_transferred", float64(blocks*bytesPerBlock), 1)
	m.observe("nixl_num_descriptors", float64(blocks), 1)
}

// scheduled counts the lookup for a request that may run. What the connector has promised counts as
// brought, whether it comes or not.
func (m *metrics) scheduled(g *generation, r *reservation) {
	for _, s := range r.seats {
		hits := s.hits * m.o.BlockSize
		if !m.o.NoPrefixCaching && s.reads {
			m.add("prefix_cache_queries_total", s.kv.tokens)
			m.add("prefix_cache_hits_total", hits)
		}
		if m.o.connector() {
			m.add("external_prefix_cache_queries_total", s.kv.tokens-hits)
		}
		if !r.computes {
			m.add("external_prefix_cache_hits_total", s.kv.tokens-hits)
		}
	}
}

// started counts a request whose prompts' KV is in place.
func (m *metrics) started(g *generation) {
	for _, u := range g.units {
		m.countPrompt(u.prompt.tokens, u.cached, g.pulled)
	}
	g.first = time.Now()
	m.observe("time_to_first_token_seconds", g.first.Sub(g.start).Seconds(), 1)
}

// countPrompt counts a prompt by where its KV came from, with two oddities of vLLM. If only the
// last token was computed, it counts as found too. A pulled prompt of one token counts as computed.
func (m *metrics) countPrompt(tokens, hits int, pulled bool) {
	external := 0
	if pulled && tokens > 1 {
		external = tokens - hits
	}
	cached := hits + external
	m.add("prompt_tokens_total", tokens)
	m.add("prompt_tokens_by_source_total/local_compute", tokens-cached)
	m.add("prompt_tokens_by_source_total/external_kv_transfer", external)
	if cached+1 == tokens && cached > 0 {
		hits++
	}
	m.add("prompt_tokens_by_source_total/local_cache_hit", hits)
	m.add("prompt_tokens_cached_total", cached)
}

// streamed counts a token that its stream shows. vLLM counts each step's tokens, and so does a stream here. An answer that
// comes whole counts at its end.
func (m *metrics) streamed(g *generation) {
	g.counted++
	m.add("generation_tokens_total", 1)
}

// finished counts the end of a request. reason is vLLM's finished_reason.
func (m *metrics) finished(g *generation, reason string) {
	m.add("request_success_total/"+reason, 1)
	m.add("generation_tokens_total", g.rec.Tokens-g.counted)
	for _, u := range g.units {
		m.observe("request_prompt_tokens", float64(u.prompt.tokens), 1)
	}
	m.observe("request_generation_tokens", float64(g.rec.Tokens), 1)
	took := time.Since(g.start).Seconds()
	m.observe("e2e_request_latency_seconds", took, 1)
	if n := g.rec.Tokens - 1; n > 0 && !g.first.IsZero() {
		m.observe("inter_token_latency_seconds", time.Since(g.first).Seconds()/float64(n), n)
	}
	m.phases(g)
}

// phases observes the parts of a request that had its turn and its first token.
func (m *metrics) phases(g *generation) {
	if g.first.IsZero() {
		return
	}
	m.observe("request_queue_time_seconds", g.granted.Sub(g.start).Seconds(), 1)
	m.observe("request_prefill_time_seconds", g.first.Sub(g.granted).Seconds(), 1)
	m.observe("request_decode_time_seconds", time.Since(g.first).Seconds(), 1)
}

// appendText appends all families in the exposition format.
func (m *metrics) appendText(b *bytes.Buffer, l load) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b.WriteString("# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.\n# TYPE process_start_time_seconds gauge\n")
	fmt.Fprintf(b, "process_start_time_seconds %s\n", pyFloat(float64(m.began.UnixMilli())/1000))
	m.counters["num_requests_running"] = float64(l.running)
	m.counters["num_requests_waiting"] = float64(l.waiting + l.loading)
	m.counters["num_requests_waiting_by_reason/capacity"] = float64(l.waiting)
	m.counters["num_requests_waiting_by_reason/deferred"] = float64(l.loading)
	m.counters["kv_cache_usage_perc"] = float64(l.used) / float64(l.total)
	for _, f := range families {
		if strings.HasPrefix(f.name, "nixl_") && !m.o.connector() {
			continue // an engine without a connector has no metrics of NIXL
		}
		fmt.Fprintf(b, "# HELP vllm:%s %s\n# TYPE vllm:%s %s\n", f.name, f.help, f.name, f.kind)
		switch {
		case f.kind == "histogram":
			m.appendHistogram(b, f)
		case f.label == "":
			fmt.Fprintf(b, "vllm:%s%s %s\n", f.name, m.labels("", ""), pyFloat(m.counters[f.name]))
		default:
			for _, v := range f.values {
				fmt.Fprintf(b, "vllm:%s%s %s\n", f.name, m.labels(f.label, v), pyFloat(m.counters[f.name+"/"+v]))
			}
		}
	}
	m.appendCacheConfig(b)
}

func (m *metrics) appendHistogram(b *bytes.Buffer, f family) {
	h := m.histograms[f.name]
	total := 0
	for i, edge := range f.edges {
		total += h.counts[i]
		fmt.Fprintf(b, "vllm:%s_bucket%s %s\n", f.name, m.labels("le", pyFloat(edge)), pyFloat(float64(total)))
	}
	fmt.Fprintf(b, "vllm:%s_bucket%s %s\n", f.name, m.labels("le", "+Inf"), pyFloat(float64(h.count)))
	fmt.Fprintf(b, "vllm:%s_count%s %s\n", f.name, m.labels("", ""), pyFloat(float64(h.count)))
	fmt.Fprintf(b, "vllm:%s_sum%s %s\n", f.name, m.labels("", ""), pyFloat(h.sum))
}

func (m *metrics) appendCacheConfig(b *bytes.Buffer) {
	fmt.Fprintf(b, "# HELP vllm:cache_config_info Sizes of the KV cache.\n# TYPE vllm:cache_config_info gauge\n"+
		"vllm:cache_config_info{block_size=\"%d\",engine=\"0\",kv_cache_size_tokens=\"%d\",num_gpu_blocks=\"%d\",sliding_window=\"None\"} 1.0\n",
		m.o.BlockSize, m.o.BlockSize*m.o.NumBlocks, m.o.NumBlocks)
}

// labels renders a sample's labels in the order of their names.
func (m *metrics) labels(name, value string) string {
	all := []string{`engine="0"`, "model_name=" + strconv.Quote(m.o.Model)}
	if name != "" {
		all = append(all, name+"="+strconv.Quote(value))
	}
	slices.Sort(all)
	return "{" + strings.Join(all, ",") + "}"
}

// pyFloat prints a number as the Python client does.
func pyFloat(f float64) string {
	s := strconv.FormatFloat(f, 'g', -1, 64)
	if f >= 1e6 {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	if strings.ContainsAny(s, ".e") {
		return s
	}
	return s + ".0"
}
