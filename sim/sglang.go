package sim

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
)

// sglangVersion is the one whose source these engines were written from.
const sglangVersion = "0.5.23"

// sglangEndpoint is the part of the route table in which SGLang differs from vLLM. known is false for
// the rest. SGLang's /health generates a token and takes a second at least; here it answers at once.
func (c *core) sglangEndpoint(path string) (methods string, handle func(context.Context, *exchange), known bool) {
	switch path {
	case "/ping", "/health_generate":
		return "GET", func(_ context.Context, x *exchange) { x.empty() }, true
	case "/model_info", "/get_model_info":
		return "GET", func(_ context.Context, x *exchange) { c.modelInfo(x) }, true
	case "/server_info", "/get_server_info":
		return "GET", func(_ context.Context, x *exchange) {
			x.json(append(appendString([]byte(`{"dp_size":1,"frontend":"python","version":`), sglangVersion), '}'))
		}, true
	case "/metrics":
		return "GET", func(_ context.Context, x *exchange) { c.sglangExposition(x) }, true
	case "/version", "/load":
		return "", nil, true
	}
	return "", nil, false
}

func (c *core) modelInfo(x *exchange) {
	b := appendString([]byte(`{"model_path":`), c.o.Model)
	b = appendString(append(b, `,"served_model_name":`...), c.o.Model)
	b = appendString(append(b, `,"tokenizer_path":`...), c.o.Model)
	b = append(b, `,"is_generation":true,"preferred_sampling_params":null,"weight_version":"default","disaggregation_mode":`...)
	x.json(append(appendString(b, string(c.o.Role)), '}'))
}

// sglangExposition has the series of SGLang 0.5.23 that tell an engine's load. It has no
// process_start_time_seconds, as a server of several processes has none. A real engine writes its gauges
// at each prefill, each 40 steps of decode, and when it falls idle.
func (c *core) sglangExposition(x *exchange) {
	l := c.ledger.load()
	var b bytes.Buffer
	gauge := func(name string, value float64) {
		fmt.Fprintf(&b, "# HELP sglang:%s\n# TYPE sglang:%s gauge\nsglang:%s%s %s\n", name, name, name, c.sglangLabels(""), pyFloat(value))
	}
	gauge("num_running_reqs", float64(l.running))
	gauge("num_queue_reqs", float64(l.waiting))
	gauge("num_grammar_queue_reqs", 0)
	gauge("token_usage", float64(l.used)/float64(l.total))
	gauge("num_prefill_bootstrap_queue_reqs", 0) // here a prefill is computed before its decode server is known
	gauge("num_prefill_inflight_queue_reqs", float64(c.ledger.unread()))
	gauge("num_decode_prealloc_queue_reqs", 0)
	gauge("num_decode_transfer_queue_reqs", float64(l.loading))
	gauge("page_size", float64(c.o.BlockSize))
	gauge("num_pages", float64(c.o.NumBlocks))
	c.metrics.appendSGLangCounters(&b, c.sglangLabels(`,is_streaming="False"`))
	_ = x.answer(http.StatusOK, "text/plain; version=1.0.0; charset=utf-8", b.Bytes())
}

func (m *metrics) appendSGLangCounters(b *bytes.Buffer, labels string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range []string{"prompt_tokens_total", "generation_tokens_total"} {
		fmt.Fprintf(b, "# HELP sglang:%s\n# TYPE sglang:%s counter\nsglang:%s%s %s\n", name, name, name, labels, pyFloat(m.counters[name]))
	}
}

func (c *core) sglangLabels(more string) string {
	return fmt.Sprintf(`{engine_type=%q,model_name=%q,moe_ep_rank="0",pp_rank="0",tp_rank="0"%s}`, c.o.Role, c.o.Model, more)
}

// unread is how many prefills wait for their reader.
func (l *ledger) unread() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pins)
}
