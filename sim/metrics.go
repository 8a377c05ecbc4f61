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
	m.observe("nixl_post_time_seconds", took.Seconds()/2, 1) // about half of it, as recorded with short prompts
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
		m.add("prompt_tokens_cached_by_source_total/device", hits)
		if !r.computes {
			m.add("external_prefix_cache_hits_total", s.kv.tokens-hits)
			m.add("prompt_tokens_cached_by_source_total/p2p", s.kv.tokens-hits)
		}
	}
}

// started counts a request whose prompts' KV is in place.
func (m *metrics) started(g *generation) {
	computed := 0
	for _, u := range g.units {
		m.countPrompt(u.prompt.tokens, u.cached, g.pulled)
		if !g.pulled {
			computed += u.prompt.tokens - u.cached
		}
	}
	m.firstTokens(g)
	m.observe("iteration_tokens_total", float64(computed+len(g.units)), 1)
}

// firstTokens notes the moment of the first token. vLLM counts each choice as a request, and so do all histograms of requests.
func (m *metrics) firstTokens(g *generation) {
	g.first = time.Now()
	m.observe("time_to_first_token_seconds", g.first.Sub(g.start).Seconds(), len(g.units))
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

// finished counts the end of a request. reason is vLLM's finished_reason. With "error", for KV that did not come, vLLM takes
// that moment for the first token.
func (m *metrics) finished(g *generation, reason string) {
	m.add("generation_tokens_total", g.rec.Tokens-g.counted)
	if reason == "error" && g.first.IsZero() {
		m.firstTokens(g)
		m.observe("iteration_tokens_total", 0, 1)
	}
	longest := 0
	for i, u := range g.units {
		tokens := produced(g, i)
		longest = max(longest, tokens)
		m.add("request_success_total/"+reason, 1)
		m.finishedChoice(g, u, tokens)
	}
	m.asked(g)
	if g.first.IsZero() {
		return
	}
	for step := 1; step < longest; step++ { // each in an iteration of its own: that of several requests shows as several
		running := 0
		for i := range g.units {
			if produced(g, i) > step {
				running++
			}
		}
		m.observe("iteration_tokens_total", float64(running), 1)
	}
}

func (m *metrics) finishedChoice(g *generation, u *unit, tokens int) {
	m.observe("request_prompt_tokens", float64(u.prompt.tokens), 1)
	m.observe("request_generation_tokens", float64(tokens), 1)
	m.observe("request_num_preemptions", 0, 1)
	m.observe("request_params_max_tokens", float64(mayProduce(g, u)), 1)
	m.observe("e2e_request_latency_seconds", time.Since(g.start).Seconds(), 1)
	if g.first.IsZero() {
		return
	}
	cached := u.cached
	if g.pulled {
		cached = min(g.cachedElsewhere(), u.prompt.tokens)
	}
	m.observe("request_prefill_kv_computed_tokens", float64(u.prompt.tokens-cached), 1)
	each, decode := 0.0, 0.0
	if tokens > 1 {
		decode = time.Since(g.first).Seconds()
		each = decode / float64(tokens-1)
		m.observe("inter_token_latency_seconds", each, tokens-1)
	}
	m.observe("request_time_per_output_token_seconds", each, 1)
	m.observe("request_queue_time_seconds", g.granted.Sub(g.start).Seconds(), 1)
	m.observe("request_inference_time_seconds", time.Since(g.granted).Seconds(), 1)
	m.observe("request_prefill_time_seconds", g.first.Sub(g.granted).Seconds(), 1)
	m.observe("request_decode_time_seconds", decode, 1)
}

// asked counts what the request asked for: each of its prompts, with all choices.
func (m *metrics) asked(g *generation) {
	longest := 0
	for i, u := range g.units {
		longest = max(longest, produced(g, i))
		if i+1 < len(g.units) && g.units[i+1].choice > u.choice {
			continue
		}
		m.observe("request_params_n", float64(u.choice+1), 1)
		m.observe("request_max_num_generation_tokens", float64(longest), 1)
		longest = 0
	}
}

// produced is how many tokens of its i-th choice the request got.
func produced(g *generation, i int) int {
	if g.rec.Tokens == g.outputTokens() {
		return len(g.units[i].tokens)
	}
	return (g.rec.Tokens + len(g.units) - 1 - i) / len(g.units) // a stream that broke off had them by turns
}

// mayProduce is max_tokens, or else what the model has room for.
func mayProduce(g *generation, u *unit) int {
	if g.r.limited {
		return g.r.maxTokens
	}
	return g.c.o.MaxModelLen - u.prompt.tokens
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
	m.counters["num_requests_kv_fetch_by_stage/in_progress"] = float64(l.loading)
	m.counters["engine_sleep_state/awake"] = 1
	m.counters["kv_cache_usage_perc"] = float64(l.used) / float64(l.total)
	for _, f := range families {
		if !m.has(f) {
			continue
		}
		fmt.Fprintf(b, "# HELP vllm:%s %s\n# TYPE vllm:%s %s\n", f.name, f.help, f.name, f.kind)
		switch {
		case f.kind == "histogram":
			m.appendHistogram(b, f)
		default:
			for _, v := range f.samples() {
				fmt.Fprintf(b, "vllm:%s%s %s\n", f.name, m.labels(f, v), pyFloat(m.counters[f.key(v)]))
			}
		}
		m.appendCreated(b, f)
	}
	m.appendCacheConfig(b)
}

// appendCreated appends when counting began, which the Python client tells as a family of its own.
func (m *metrics) appendCreated(b *bytes.Buffer, f family) {
	if f.kind == "gauge" {
		return
	}
	name := strings.TrimSuffix(f.name, "_total") + "_created"
	if f.kind == "histogram" {
		name = f.name + "_created"
	}
	fmt.Fprintf(b, "# HELP vllm:%s %s\n# TYPE vllm:%s gauge\n", name, f.help, name)
	for _, v := range f.samples() {
		fmt.Fprintf(b, "vllm:%s%s %s\n", name, m.labels(f, v), pyFloat(float64(m.began.UnixMilli())/1000))
	}
}

func (m *metrics) appendHistogram(b *bytes.Buffer, f family) {
	h := m.histograms[f.name]
	total := 0
	buckets := family{name: f.name, label: "le"}
	for i, edge := range f.edges {
		total += h.counts[i]
		fmt.Fprintf(b, "vllm:%s_bucket%s %s\n", f.name, m.labels(buckets, pyFloat(edge)), pyFloat(float64(total)))
	}
	fmt.Fprintf(b, "vllm:%s_bucket%s %s\n", f.name, m.labels(buckets, "+Inf"), pyFloat(float64(h.count)))
	fmt.Fprintf(b, "vllm:%s_count%s %s\n", f.name, m.labels(f, ""), pyFloat(float64(h.count)))
	fmt.Fprintf(b, "vllm:%s_sum%s %s\n", f.name, m.labels(f, ""), pyFloat(h.sum))
}

// appendCacheConfig has those of vLLM's labels that the simulator has a value for.
func (m *metrics) appendCacheConfig(b *bytes.Buffer) {
	caching := "True"
	if m.o.NoPrefixCaching {
		caching = "False"
	}
	fmt.Fprintf(b, "# HELP vllm:cache_config_info Sizes of the KV cache.\n# TYPE vllm:cache_config_info gauge\n"+
		"vllm:cache_config_info{block_size=\"%d\",cache_dtype=\"auto\",enable_prefix_caching=%q,engine=\"0\",kv_cache_size_tokens=\"%d\",num_gpu_blocks=\"%d\",sliding_window=\"None\"} 1.0\n",
		m.o.BlockSize, caching, m.o.BlockSize*m.o.NumBlocks, m.o.NumBlocks)
}

// labels renders the labels of f's sample with value, in the order of their names.
func (m *metrics) labels(f family, value string) string {
	all := []string{"model_name=" + strconv.Quote(m.o.Model)}
	if !f.ofServer {
		all = append(all, `engine="0"`)
	}
	if f.label != "" {
		all = append(all, f.label+"="+strconv.Quote(value))
	}
	slices.Sort(all)
	return "{" + strings.Join(all, ",") + "}"
}

// has reports whether the engine has the family. Those of NIXL need a connector, and the stages of loads an engine that loads.
func (m *metrics) has(f family) bool {
	switch {
	case f.since > 0 && !m.o.since(f.since):
		return false
	case strings.HasPrefix(f.name, "nixl_"):
		return m.o.connector()
	case f.name == "num_requests_kv_fetch_by_stage":
		return m.o.Role == RoleDecode
	}
	return true
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
