package metrics

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxModels bounds how many models have series of their own. Clients name the model, so without a bound
// they could make as many series as they like.
const maxModels = 100

// unnamed is the model of a completion that names none. The engine then takes its own.
const unnamed = "unnamed"

// Tokens are what a completion was made of. A count below 0 is not known.
type Tokens struct {
	Prompt, Cached, Completion int
	// Told says that the engines counted the tokens of the completion.
	Told bool
}

// Model counts the completions of one model.
type Model struct {
	outcomes                   counters
	prompt, cached, completion prometheus.Counter
	untold                     prometheus.Counter
	ttft, tpot                 prometheus.Observer
}

// models holds the series of the models. The map is replaced and never changed, so that no completion
// waits for another one.
type models struct {
	requests, prompt, cached, completion, untold *prometheus.CounterVec
	ttft, tpot                                   *prometheus.SummaryVec

	outcomes []string
	known    atomic.Pointer[map[string]*Model]
	mu       sync.Mutex // held while known is replaced
	others   *Model
}

func (m *Metrics) registerModels() {
	s := &m.models
	s.outcomes = m.labels.Outcomes
	s.requests = m.counterVec("xpyd_model_requests_total", "Completions that ended, by model and outcome. The first 100 models that an engine has served have series of their own. All others count as other.", "model", "outcome")
	s.prompt = m.counterVec("xpyd_prompt_tokens_total", "Prompt tokens of the completions that engines answered.", "model")
	s.cached = m.counterVec("xpyd_prompt_tokens_cached_total", "Prompt tokens that were in the prefix cache of the engine that computed the prompt.", "model")
	s.completion = m.counterVec("xpyd_completion_tokens_total", "Tokens of the answers that engines gave.", "model")
	s.untold = m.counterVec("xpyd_completions_without_usage_total", "Completions whose answer had no usage, so that their events count as tokens.", "model")
	s.ttft = m.summaryVec("xpyd_model_ttft_seconds", "As xpyd_ttft_seconds, by model.", "model")
	s.tpot = m.summaryVec("xpyd_model_time_per_output_token_seconds", "As xpyd_time_per_output_token_seconds, by model.", "model")
	s.known.Store(&map[string]*Model{})
	s.others = s.series(other)
}

// Model returns the counts of a model. served says that an engine has answered with it. Only then the
// model gets series of its own, as a client may ask for any name.
func (m *Metrics) Model(name []byte, served bool) *Model {
	s := &m.models
	if c := (*s.known.Load())[string(name)]; c != nil {
		return c
	}
	if !served {
		return s.others
	}
	return s.add(string(name))
}

func (s *models) add(name string) *Model {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := *s.known.Load()
	if c := old[name]; c != nil {
		return c
	}
	if len(old) >= maxModels {
		return s.others
	}
	label := strings.ToValidUTF8(name, "\uFFFD")
	if label == "" {
		label = unnamed
	}
	c := s.series(label)
	known := maps.Clone(old)
	known[name] = c
	s.known.Store(&known)
	return c
}

func (s *models) series(label string) *Model {
	c := &Model{
		prompt: s.prompt.WithLabelValues(label), cached: s.cached.WithLabelValues(label),
		completion: s.completion.WithLabelValues(label), untold: s.untold.WithLabelValues(label),
		ttft: s.ttft.WithLabelValues(label), tpot: s.tpot.WithLabelValues(label),
	}
	c.outcomes.vec = s.requests.MustCurryWith(prometheus.Labels{"model": label})
	for _, o := range s.outcomes {
		c.outcomes.by = append(c.outcomes.by, c.outcomes.vec.WithLabelValues(o))
	}
	return c
}

// Ended counts a completion of the model.
func (c *Model) Ended(outcome int) { c.outcomes.inc(outcome) }

// Answered counts the tokens of a completion whose answer began.
func (c *Model) Answered(t Tokens) {
	add := func(to prometheus.Counter, n int) {
		if n > 0 {
			to.Add(float64(n))
		}
	}
	add(c.prompt, t.Prompt)
	add(c.cached, t.Cached)
	add(c.completion, t.Completion)
	if !t.Told {
		c.untold.Inc()
	}
}

// Streamed observes a stream as Metrics.Stream does.
func (c *Model) Streamed(ttft, span time.Duration, events int) {
	c.ttft.Observe(ttft.Seconds())
	if events > 1 {
		c.tpot.Observe(span.Seconds() / float64(events-1))
	}
}
